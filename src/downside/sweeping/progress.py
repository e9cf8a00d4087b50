"""How far a study is: bars on a terminal, plain lines anywhere else."""

import contextlib
import json
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

from downside.runs import run_info
from downside.sweeping.cells import Cell, attempts
from downside.sweeping.labels import labels

_MOST_BARS = 12
"""Runs that have a bar of their own; what does not fit on a screen helps nobody."""
_EVERY = 60.0
"""Seconds between two lines on how far it is, where there are no bars."""


class SweepProgress:
    """Follows all runs of a study through what they write into their folders.

    Arguments:
        folder: of the study.
        cells: all of its runs.
        left: those that are not finished yet.
        disable: to say nothing at all.
    """

    def __init__(self, folder: Path, cells: Sequence[Cell], left: Sequence[Cell], *, disable: bool):
        self._folder, self._cells, self._left = folder, cells, left
        self._console = Console(stderr=True, highlight=False)
        self._disabled, self._live = disable, self._console.is_terminal and not disable
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[said]}", markup=False),
            console=self._console,
            disable=not self._live,
        )
        self._total = self._bars.add_task(
            "all runs", total=sum(one.total_timesteps for one in cells), said=""
        )
        self._names = {
            one.key: f"{', '.join(labels_of)}, {one.risk}, seed {one.seed}"
            for one, labels_of in zip(cells, labels(cells).values(), strict=True)
        }
        self._rows: dict[str, TaskID] = {}
        self._begun: dict[str, float] = {}
        self._steps = {one.key: one.total_timesteps for one in cells}
        for one in left:
            self._steps[one.key] = 0
        self._done, self._wrong = len(cells) - len(left), 0
        self._last_line = time.monotonic()

    def __enter__(self) -> "SweepProgress":
        self._bars.start()
        before = f"; {self._done} were finished before" if self._done else ""
        self._say(f"{len(self._cells)} runs in {self._folder}{before}")
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

    # --- what happens to a run ----------------------------------------------------------------

    def began(self, cell: Cell) -> None:
        """It was handed to the engine."""
        self._begun.setdefault(cell.key, time.monotonic())
        if len(self._rows) < _MOST_BARS:
            self._rows[cell.key] = self._bars.add_task(
                f"  {self._names[cell.key]}", total=cell.total_timesteps, said="starting"
            )

    def finished(self, cell: Cell) -> None:
        """It is done."""
        self._done += 1
        self._steps[cell.key] = cell.total_timesteps
        self._remove(cell)
        run = run_info(self._folder / cell.name)
        value = "" if run.value is None else f"  {run.value:.4g}"
        seconds = time.monotonic() - self._begun.get(cell.key, time.monotonic())
        self._say(f"finished  {self._names[cell.key]}{value}  ({seconds:.0f} s)")

    def failed(self, cell: Cell, error: str) -> None:
        """It ended with an error."""
        self._wrong += 1
        self._steps[cell.key] = cell.total_timesteps
        self._remove(cell)
        self._say(f"FAILED    {self._names[cell.key]}: {_first_line(error)}")

    def again(self, cell: Cell, error: str) -> None:
        """Its process died, and it goes on with another one."""
        self._remove(cell)
        self._say(f"again     {self._names[cell.key]}: {_first_line(error)}")

    def elsewhere(self, cell: Cell) -> None:
        """Another process has it."""
        self._remove(cell)

    # --- how far everything is ----------------------------------------------------------------

    def update(self, running: Iterable[Cell]) -> None:
        """Looks at how far the runs are."""
        if self._disabled:
            return
        due = time.monotonic() - self._last_line >= _EVERY
        if not self._live and not due:
            return
        running = list(running)
        for cell in running:
            steps, best = last_record(self._folder / cell.name)
            self._steps[cell.key] = min(steps, cell.total_timesteps)
            if cell.key in self._rows:
                said = "starting" if best is None else f"best {best:.4g}"
                self._bars.update(self._rows[cell.key], completed=steps, said=said)
        wrong = f", {self._wrong} failed" if self._wrong else ""
        said = f"{self._done} of {len(self._cells)} finished{wrong}"
        self._bars.update(self._total, completed=sum(self._steps.values()), said=said)
        if due and not self._live:
            share = sum(self._steps.values()) / sum(one.total_timesteps for one in self._cells)
            self._say(f"{len(running)} running; {share:.0%} of all steps are done{wrong}")

    def _remove(self, cell: Cell) -> None:
        row = self._rows.pop(cell.key, None)
        if row is not None:
            self._bars.remove_task(row)

    def _say(self, text: str) -> None:
        if self._disabled:
            return
        self._last_line = time.monotonic()
        count = f"[{self._done + self._wrong}/{len(self._cells)}]"
        self._console.print(escape(f"{count} {text}"), soft_wrap=True)


def _first_line(error: str) -> str:
    return error.splitlines()[0] if error else "no reason given"


def last_record(folder: Path) -> tuple[int, float | None]:
    """The environment steps of a run so far, and what its best policy is worth, from its log."""
    begun = next((one for one in reversed(attempts(folder)) if one["what"] == "began"), None)
    logs = sorted(folder.glob("log_*/progress.jsonl"), key=lambda one: one.stat().st_mtime)
    if begun is None or not logs:
        return 0, None
    with logs[-1].open("rb") as file, contextlib.suppress(ValueError, IndexError, KeyError):
        file.seek(max(0, logs[-1].stat().st_size - 4096))
        record = json.loads(file.read().splitlines()[-1])
        return int(record["timesteps"]), record.get("best")
    return 0, None
