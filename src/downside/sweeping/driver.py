"""`sweep`: hands the runs of a study to an engine until all are finished or have failed."""

import collections
import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from downside._files import write_text
from downside._names import did_you_mean
from downside.evaluation.bootstrap import whole_number
from downside.sweeping.cells import ERROR, Cell, failure, note, state
from downside.sweeping.engines.base import ENGINES, AbstractEngine, Report, make_engine
from downside.sweeping.page import write_page
from downside.sweeping.progress import SweepProgress
from downside.sweeping.study import Study, read_study
from downside.sweeping.summary import Group, summarise, summary_tables, write_summary
from downside.train.callbacks import saved_in
from downside.train.interruption import Interruption

MOST_DEATHS = 5
"""How often the process of a run may die without a new checkpoint before the run has failed."""
_TICK = 0.5
"""Seconds between two looks at how far the runs are."""
_LATER = 2.0
"""Seconds until a run that another process has is asked for again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A study and what came of it."""

    study: Study
    folder: Path
    """Where everything is: a folder for each run, summary.csv and report.html."""
    groups: tuple[Group, ...]
    """One for each environment, agent and measure: the runs that differ in their seed alone."""
    failed: Mapping[str, str]
    """The runs that failed, with their errors."""
    report: Path
    """One page on the whole study."""

    def tables(self) -> list[Table]:
        """The means over seeds, a table for each environment: `rich.print(*result.tables())`."""
        return summary_tables(self.groups, self.study.measures)


def sweep(
    study: str | Path | Mapping[str, Any],
    *,
    engine: str = "local",
    folder: str | Path | None = None,
    workers: int | None = None,
    cpus_per_cell: int = 1,
    gpus_per_cell: float | int = 0.0,
    address: str | None = None,
    every_seconds: float | int = 60.0,
    progress_bar: bool = False,
) -> Sweep:
    """Runs a study: every environment x agent x measure x seed.

    It can be stopped or killed at any time and called again: finished runs are not run again, and
    the others go on from their last checkpoint. A run that fails does not stop the others; it is
    tried again the next time.

    Arguments:
        study: a TOML file, or a dictionary of the same shape.
        engine: "local", processes on this machine, or "ray", tasks on a Ray cluster.
        folder: where the runs go; by default studies/<name>. For a cluster it must be one that all
            machines share.
        workers: runs at a time; by default as many as there are cores for.
        cpus_per_cell: cores for each run.
        gpus_per_cell: accelerators for each run, with the engine "ray".
        address: of a Ray cluster, e.g. "auto"; by default one is started on this machine.
        every_seconds: time between two checkpoints of a run.
        progress_bar: whether to show how far it is.

    Raises:
        StudyError: if the study is not in order; it lists everything that is wrong with it.
    """
    if engine not in ENGINES:
        raise ValueError(
            f"`engine` must be one of {', '.join(ENGINES)}, got {engine!r}."
            f"{did_you_mean(engine, ENGINES)}"
        )
    if engine == "local" and (address is not None or gpus_per_cell):
        raise ValueError('`address` and `gpus_per_cell` are for the engine "ray", got "local".')
    workers = None if workers is None else whole_number(workers, "workers")
    cpus = whole_number(cpus_per_cell, "cpus_per_cell")
    plan = read_study(study)
    own = study_folder(plan, folder)
    plan.keep(own)
    left = [one for one in plan.cells if state(own / one.name, one.episodes) != "finished"]
    errors: dict[str, str] = {}
    try:
        with SweepProgress(own, plan.cells, left, disable=not progress_bar) as progress:
            if left:
                with make_engine(
                    engine,
                    address=address,
                    workers=workers,
                    cpus_per_cell=cpus,
                    gpus_per_cell=float(gpus_per_cell),
                ) as chosen:
                    _Driver(own, chosen, progress, every_seconds, errors).run(left)
        return conclude(plan, own, errors)
    except KeyboardInterrupt as interruption:
        with contextlib.suppress(KeyboardInterrupt, OSError):  # it can wait for the next time
            conclude(plan, own, errors)
        raise type(interruption)(_stopped(plan, own)) from None


def study_folder(study: Study, folder: str | Path | None) -> Path:
    """Where the runs of a study go."""
    return Path("studies") / study.name if folder is None else Path(folder)


def conclude(study: Study, folder: Path, errors: Mapping[str, str]) -> Sweep:
    """Sums up what there is in the folder of a study, and writes the table and the page.

    Arguments:
        study: the study.
        folder: of the study.
        errors: of runs by their names, for those that could not leave theirs in the folder.
    """
    failed = {
        one.name: text
        for one in study.cells
        if state(folder / one.name, one.episodes) != "finished"
        and (text := failure(folder / one.name) or errors.get(one.name)) is not None
    }
    groups = summarise(study, folder, failed)
    write_summary(folder / "summary.csv", groups)
    report = write_page(folder / "report.html", study, groups, failed)
    return Sweep(study=study, folder=folder, groups=groups, failed=failed, report=report)


def _stopped(study: Study, folder: Path) -> str:
    done = sum(state(folder / one.name, one.episodes) == "finished" for one in study.cells)
    return (
        f"stopped; {done} of {len(study.cells)} runs are finished, and what the others have saved "
        "stays. The same command goes on."
    )


class _Driver:
    def __init__(
        self,
        folder: Path,
        engine: AbstractEngine,
        progress: SweepProgress,
        every_seconds: float | int,
        errors: dict[str, str],
    ):
        self.folder, self.engine, self.errors = folder, engine, errors
        self.progress, self.every_seconds = progress, every_seconds
        self.waiting: collections.deque[Cell] = collections.deque()
        self.later: list[tuple[float, Cell]] = []
        self.running: dict[str, Cell] = {}
        self.deaths: dict[str, tuple[float, int]] = {}

    def run(self, cells: Sequence[Cell]) -> None:
        self.waiting.extend(cells)
        with Interruption() as interruption:
            try:
                while (self.waiting or self.later or self.running) and interruption.signal is None:
                    self.step()
            except Exception:  # an error here is none of theirs: they save what they have
                self.engine.stop()
                raise
            if interruption.signal is not None:
                self.engine.stop()
                raise interruption.error()

    def step(self) -> None:
        """Hands out what there is room for, and settles what came back."""
        self.wake()
        while self.waiting and self.engine.room > 0:
            self.begin(self.waiting.popleft())
        reports = self.engine.poll(_TICK)
        if not self.running:
            time.sleep(_TICK)
        for report in reports:
            self.settle(report)
        self.progress.update(self.running.values())

    def wake(self) -> None:
        """Those that another process had may be free, or finished, or have failed, by now."""
        due = [cell for when, cell in self.later if when <= time.monotonic()]
        self.later = [one for one in self.later if one[1] not in due]
        for cell in due:
            own = self.folder / cell.name
            if state(own, cell.episodes) == "finished":
                self.progress.finished(cell)
            elif error := failure(own):
                self.failed(cell, error.splitlines()[-1])
            else:
                self.waiting.append(cell)

    def begin(self, cell: Cell) -> None:
        own = self.folder / cell.name
        with contextlib.suppress(OSError):  # what happened the last time is over
            (own / ERROR).unlink(missing_ok=True)
        self.running[cell.key] = cell
        task = {
            "folder": os.path.abspath(own),
            "cell": dataclasses.asdict(cell),
            "every_seconds": self.every_seconds,
        }
        self.engine.submit(cell.key, task)
        self.progress.began(cell)

    def settle(self, report: Report) -> None:
        cell = self.running.pop(report.key)
        if report.outcome == "finished":
            self.progress.finished(cell)
        elif report.outcome == "failed":
            self.failed(cell, report.error)
        elif report.outcome == "busy":
            self.progress.elsewhere(cell)
            self.later.append((time.monotonic() + _LATER, cell))
        else:
            self.died(cell, report.error)

    def died(self, cell: Cell, error: str) -> None:
        """Its process is gone: it goes on with another one, unless it gets no further that way."""
        own = self.folder / cell.name
        saved = saved_in(own)
        reached = int(saved[0].stem.rpartition("-")[2]) if saved else 0
        before, times = self.deaths.get(cell.key, (-math.inf, 0))
        times = times + 1 if reached <= before else 1
        self.deaths[cell.key] = reached, times
        if times < MOST_DEATHS:
            self.progress.again(cell, error)
            self.waiting.appendleft(cell)
            return
        self.failed(cell, f"Its process died {times} times without getting any further. {error}")

    def failed(self, cell: Cell, error: str) -> None:
        """The worker left the whole story in the folder, unless it could not."""
        own = self.folder / cell.name
        self.errors[cell.name] = error
        with contextlib.suppress(OSError):  # a full disk is no reason to end the others
            if not (own / ERROR).exists():
                write_text(own / ERROR, error + "\n")
                note(own, "failed")
        self.progress.failed(cell, error)
