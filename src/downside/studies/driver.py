"""`sweep`: hands the runs of a study to an engine until all are finished or failed."""

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

from downside._files import remove_debris, write_text
from downside._locks import tidy
from downside._names import did_you_mean
from downside.evaluation.bootstrap import whole_number
from downside.runs import evaluation_problem
from downside.studies.engines.base import ENGINES, AbstractEngine, Report, make_engine
from downside.studies.page import write_page
from downside.studies.progress import SweepProgress
from downside.studies.spec import RunSpec
from downside.studies.storage import ERROR, failure, note, saved_steps, state, states
from downside.studies.study import Study, read_study
from downside.studies.summary import (
    Group,
    read_evaluations,
    summarise,
    summary_tables,
    write_summary,
)
from downside.train.monitor import Interruption, Terminated

MAX_DEATHS = 5
"""How often the process of a run may die without a new checkpoint before the run has failed."""
_TICK = 0.5
"""Seconds between two updates of the progress."""
_GRACE = 10.0
"""Seconds that a run has to save its state once its `timeout` is over, or after SIGTERM."""
_PATIENCE = 300.0
"""The same after Ctrl-C, which a second one cuts short."""
_RETRY = 2.0
"""Seconds until a run that another process has is tried again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A study and its results."""

    study: Study
    folder: Path
    """The storage: a folder for each run, summary.csv and report.html."""
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
    study: str | Path | Mapping[str, Any] | Study,
    *,
    engine: str = "local",
    folder: str | Path | None = None,
    workers: int | None = None,
    cpus_per_cell: int = 1,
    gpus_per_cell: float | int = 0.0,
    address: str | None = None,
    every_seconds: float | int = 60.0,
    timeout: float | int | None = None,
    progress_bar: bool = False,
) -> Sweep:
    """Runs a study: every environment x agent x measure x seed.

    It can be stopped or killed at any time and called again: finished runs do not run again, and
    the others resume from their latest checkpoint. A run that fails does not stop the others; the
    next call tries it again.

    Arguments:
        study: a TOML file, a dictionary of the same shape, or what `read_study` returns.
        engine: "local", processes on this machine, or "ray", tasks on a Ray cluster.
        folder: where the runs go; by default studies/<name>. For a cluster, all machines must share
            it.
        workers: runs at a time; by default as many as there are cores for.
        cpus_per_cell: cores for each run.
        gpus_per_cell: accelerators for each run, with the engine "ray".
        address: of a Ray cluster, e.g. "auto"; by default one is started on this machine.
        every_seconds: time between two checkpoints of a run.
        timeout: seconds that a run may take, from when its process gets it. Then it is asked to
            save, ended, and has failed; the next call goes on with it. None: as long as it takes.
        progress_bar: whether to show the progress.

    Raises:
        StudyError: if the study has errors; the message lists them all.
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
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ValueError(f"`timeout` must be a number of seconds > 0, or None, got {timeout!r}.")
    study = study if isinstance(study, Study) else read_study(study)
    storage = study_folder(study, folder)
    remove_debris(storage)
    study.save(storage)
    before = states(storage, study.runs)
    left = [run for run in study.runs if before[run.name] != "finished"]
    for run in study.runs:
        if before[run.name] == "finished":
            tidy(storage / run.name)
    errors: dict[str, str] = {}
    try:
        with SweepProgress(storage, study.runs, left, disable=not progress_bar) as progress:
            for run in left:
                if before[run.name] in ("unfinished", "failed") and (
                    damage := evaluation_problem(storage / run.name, run.episodes)
                ):
                    progress.damaged(run, damage)
            if left:
                with make_engine(
                    engine,
                    address=address,
                    workers=workers,
                    cpus_per_cell=cpus,
                    gpus_per_cell=float(gpus_per_cell),
                ) as chosen:
                    driver = _Driver(storage, chosen, progress, every_seconds, errors, timeout)
                    driver.drive(left)
        return conclude(study, storage, errors)
    except KeyboardInterrupt as interruption:
        with contextlib.suppress(KeyboardInterrupt, OSError):  # the next call writes it
            conclude(study, storage, errors)
        raise type(interruption)(_stopped(study, storage)) from None


def study_folder(study: Study, folder: str | Path | None) -> Path:
    """The storage of a study."""
    return Path("studies") / study.name if folder is None else Path(folder)


def conclude(study: Study, storage: Path, errors: Mapping[str, str]) -> Sweep:
    """Summarises the storage of a study, and writes the table and the page.

    Arguments:
        study: the study.
        storage: its folder.
        errors: by the name of a run, for those that could not write theirs.
    """
    reached = states(storage, study.runs)
    failed = {
        run.name: text
        for run in study.runs
        if reached[run.name] != "finished"
        and (text := failure(storage / run.name) or errors.get(run.name)) is not None
    }
    finished = [run for run in study.runs if reached[run.name] == "finished"]
    evaluations, damaged = read_evaluations(storage, finished)
    failed |= damaged
    groups = summarise(study, evaluations, failed)
    write_summary(storage / "summary.csv", groups)
    report = write_page(storage / "report.html", study, groups, failed)
    return Sweep(study=study, folder=storage, groups=groups, failed=failed, report=report)


def _stopped(study: Study, storage: Path) -> str:
    done = list(states(storage, study.runs).values()).count("finished")
    return (
        f"stopped; {done} of {len(study.runs)} runs are finished, and the checkpoints of the "
        "others are kept. The same command resumes."
    )


def _resume_hint(folder: Path) -> str:
    steps = saved_steps(folder)
    where = f"its checkpoint after {steps:,} steps" if steps else "the beginning"
    return f"The same command goes on from {where}."


class _Driver:
    def __init__(
        self,
        storage: Path,
        engine: AbstractEngine,
        progress: SweepProgress,
        every_seconds: float | int,
        errors: dict[str, str],
        timeout: float | int | None = None,
    ):
        self.storage, self.engine, self.errors = storage, engine, errors
        self.progress, self.every_seconds, self.timeout = progress, every_seconds, timeout
        self.deadlines: dict[str, float] = {}
        self.overdue: set[str] = set()
        self.waiting: collections.deque[RunSpec] = collections.deque()
        self.busy: list[tuple[float, RunSpec]] = []
        self.running: dict[str, RunSpec] = {}
        self.deaths: dict[str, tuple[float, int]] = {}

    def drive(self, runs: Sequence[RunSpec]) -> None:
        self.waiting.extend(runs)
        with Interruption() as interruption:
            try:
                while (self.waiting or self.busy or self.running) and interruption.signal is None:
                    self.step()
            except Exception:  # an error of the driver: the runs save their state
                self.engine.stop(_PATIENCE)
                raise
            if interruption.signal is not None:
                error = interruption.error()
                # SIGTERM comes from a system that kills what does not end soon.
                self.engine.stop(_GRACE if isinstance(error, Terminated) else _PATIENCE)
                raise error

    def step(self) -> None:
        """Submits as many runs as there is room for, and handles the reports."""
        self.recheck()
        while self.waiting and self.engine.room > 0:
            self.submit(self.waiting.popleft())
        reports = self.engine.poll(_TICK)
        if not self.running:
            time.sleep(_TICK)
        for report in reports:
            self.handle(report)
        self.enforce_timeout()
        self.progress.update(self.running.values())

    def enforce_timeout(self) -> None:
        """Asks runs whose time is over to save and end; after a while ends them."""
        now = time.monotonic()
        for key in [key for key in self.running if now >= self.deadlines.get(key, math.inf)]:
            self.engine.end(key, at_once=key in self.overdue)
            self.overdue.add(key)
            self.deadlines[key] = now + _GRACE

    def recheck(self) -> None:
        """Runs that another process had may be free, finished or failed by now."""
        due = [run for when, run in self.busy if when <= time.monotonic()]
        self.busy = [(when, run) for when, run in self.busy if run not in due]
        for run in due:
            folder = self.storage / run.name
            if state(folder, run.episodes) == "finished":
                self.progress.finished(run)
            elif error := failure(folder):
                self.failed(run, error.splitlines()[-1])
            else:
                self.waiting.append(run)

    def submit(self, run: RunSpec) -> None:
        folder = self.storage / run.name
        with contextlib.suppress(OSError):  # the error of an earlier attempt
            (folder / ERROR).unlink(missing_ok=True)
        self.running[run.key] = run
        if self.timeout is not None:
            self.deadlines[run.key] = time.monotonic() + self.timeout
        task = {
            "folder": os.path.abspath(folder),
            "spec": dataclasses.asdict(run),
            "every_seconds": self.every_seconds,
        }
        self.engine.submit(run.key, task)
        self.progress.began(run)

    def handle(self, report: Report) -> None:
        run = self.running.pop(report.key)
        if report.outcome == "finished":
            self.progress.finished(run)
        elif run.key in self.overdue:
            self.failed(
                run,
                f"It took longer than `timeout`, {self.timeout:g} seconds, and was ended. "
                f"{_resume_hint(self.storage / run.name)}",
            )
        elif report.outcome == "failed":
            self.failed(run, report.error)
        elif report.outcome == "busy":
            self.progress.elsewhere(run)
            self.busy.append((time.monotonic() + _RETRY, run))
        else:
            self.died(run, report.error)

    def died(self, run: RunSpec, error: str) -> None:
        """Its process is gone: another one resumes it, unless it makes no progress."""
        reached = saved_steps(self.storage / run.name)
        before, deaths = self.deaths.get(run.key, (-math.inf, 0))
        deaths = deaths + 1 if reached <= before else 1
        self.deaths[run.key] = reached, deaths
        if deaths < MAX_DEATHS:
            self.progress.again(run, error)
            self.waiting.appendleft(run)
            return
        self.failed(run, f"Its process died {deaths} times without progress. {error}")

    def failed(self, run: RunSpec, error: str) -> None:
        """Keeps the error; the worker has written the traceback, unless it could not."""
        folder = self.storage / run.name
        self.errors[run.name] = error
        with contextlib.suppress(OSError):  # a full disk does not stop the other runs
            if not (folder / ERROR).exists():
                write_text(folder / ERROR, error + "\n")
                note(folder, "failed")
        self.progress.failed(run, error)
