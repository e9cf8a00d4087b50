"""The progress of a study: bars on a terminal, plain lines elsewhere."""

import contextlib
import json
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from downside._files import check_regular
from downside.runs import run_info
from downside.studies.labels import labels
from downside.studies.spec import RunSpec
from downside.studies.storage import attempts
from downside.train.log import LINES

_MAX_BARS = 12
"""Runs that have a bar each: what fits on a screen."""
_EVERY = 60.0
"""Seconds between two lines on the progress, where there are no bars."""


class SweepProgress:
    """Follows the runs of a study through the files in their folders.

    Arguments:
        storage: the folder of the study.
        runs: all of its runs.
        left: those that are not finished yet.
        disable: whether to print nothing.
    """

    def __init__(
        self, storage: Path, runs: Sequence[RunSpec], left: Sequence[RunSpec], *, disable: bool
    ):
        self._storage, self._runs = storage, runs
        self._console = Console(stderr=True, highlight=False)
        self._disabled, self._live = disable, self._console.is_terminal and not disable
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[status]}", markup=False),
            console=self._console,
            disable=not self._live,
        )
        self._total = self._bars.add_task(
            "all runs", total=sum(run.total_timesteps for run in runs), status=""
        )
        self._names = {
            run.key: f"{', '.join(label)}, {run.risk}, seed {run.seed}"
            for run, label in zip(runs, labels(runs).values(), strict=True)
        }
        self._rows: dict[str, TaskID] = {}
        self._begun: dict[str, float] = {}
        self._steps = {run.key: run.total_timesteps for run in runs}
        self._steps |= {run.key: 0 for run in left}
        self._done, self._failed = len(runs) - len(left), 0
        self._last_line = time.monotonic()

    def __enter__(self) -> "SweepProgress":
        self._bars.start()
        before = f"; {self._done} were finished before" if self._done else ""
        self._print(f"{len(self._runs)} runs in {self._storage}{before}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for row in self._rows.values():
            self._bars.remove_task(row)
        self._bars.stop()

    # --- events of a run ----------------------------------------------------------------------

    def began(self, run: RunSpec) -> None:
        """It was submitted to the engine."""
        self._begun.setdefault(run.key, time.monotonic())
        if len(self._rows) < _MAX_BARS:
            self._rows[run.key] = self._bars.add_task(
                f"  {self._names[run.key]}", total=run.total_timesteps, status="starting"
            )

    def finished(self, run: RunSpec) -> None:
        """It is finished."""
        self._done += 1
        self._steps[run.key] = run.total_timesteps
        self._remove(run)
        value = ""
        with contextlib.suppress(OSError):  # its folder may be gone by now
            info = run_info(self._storage / run.name)
            value = "" if info.value is None else f"  {info.value:.4g}"
        seconds = time.monotonic() - self._begun.get(run.key, time.monotonic())
        self._print(f"finished  {self._names[run.key]}{value}  ({seconds:.0f} s)")

    def failed(self, run: RunSpec, error: str) -> None:
        """It ended with an error."""
        self._failed += 1
        self._steps[run.key] = run.total_timesteps
        self._remove(run)
        self._print(f"FAILED    {self._names[run.key]}: {_first_line(error)}")

    def again(self, run: RunSpec, error: str) -> None:
        """Its process died, and another one resumes it."""
        self._remove(run)
        self._print(f"again     {self._names[run.key]}: {_first_line(error)}")

    def damaged(self, run: RunSpec, problem: str) -> None:
        """One of its files cannot be read: it is made again."""
        self._print(f"again     {self._names[run.key]}: {_first_line(problem)}")

    def elsewhere(self, run: RunSpec) -> None:
        """Another process has it."""
        self._remove(run)

    # --- progress ---------------------------------------------------------------------------

    def update(self, running: Iterable[RunSpec]) -> None:
        """Reads the progress of the runs."""
        if self._disabled:
            return
        due = time.monotonic() - self._last_line >= _EVERY
        if not self._live and not due:
            return
        running = list(running)
        for run in running:
            steps, best = last_record(self._storage / run.name)
            steps = min(steps, run.total_timesteps)  # a run is a whole number of outer steps
            self._steps[run.key] = steps
            if run.key in self._rows:
                status = "starting" if best is None else f"best {best:.4g}"
                self._bars.update(self._rows[run.key], completed=steps, status=status)
        failed = f", {self._failed} failed" if self._failed else ""
        status = f"{self._done} of {len(self._runs)} finished{failed}"
        self._bars.update(self._total, completed=sum(self._steps.values()), status=status)
        if due and not self._live:
            share = sum(self._steps.values()) / sum(run.total_timesteps for run in self._runs)
            self._print(f"{len(running)} running; {share:.0%} of all steps are done{failed}")

    def _remove(self, run: RunSpec) -> None:
        row = self._rows.pop(run.key, None)
        if row is not None:
            self._bars.remove_task(row)

    def _print(self, text: str) -> None:
        if self._disabled:
            return
        self._last_line = time.monotonic()
        count = f"[{self._done + self._failed}/{len(self._runs)}]"
        self._console.print(escape(f"{count} {text}"), soft_wrap=True)


def _first_line(error: str) -> str:
    return error.splitlines()[0] if error else "no reason given"


def last_record(folder: Path) -> tuple[int, float | None]:
    """Environment steps and best value of a run so far, from its log."""
    with contextlib.suppress(
        OSError, ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError
    ):
        if not any(event["what"] == "began" for event in attempts(folder)):
            return 0, None
        logs = sorted(folder.glob(f"log_*/{LINES}"), key=lambda path: path.stat().st_mtime)
        check_regular(logs[-1])
        with logs[-1].open("rb") as file:
            file.seek(max(0, logs[-1].stat().st_size - 4096))
            record = json.loads(file.read().splitlines()[-1])
        best = record.get("best")
        known = isinstance(best, int | float) and math.isfinite(best)
        return int(record["timesteps"]), best if known else None
    return 0, None
