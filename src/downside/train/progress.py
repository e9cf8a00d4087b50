"""A progress bar for training: steps, speed, time left, and the value reached."""

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class TrainingBar:
    """One line on the terminal that follows a run; nothing at all if it is disabled."""

    def __init__(self, title: str, *, disable: bool):
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}"),
            console=Console(stderr=True),
            disable=disable,
        )
        self._task = self._bar.add_task(title, total=None, speed="", said="compiling")

    def __enter__(self) -> "TrainingBar":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def update(self, done: int, total: int, value: float) -> None:
        """So many steps are done of so many, and the best policy so far is worth this."""
        elapsed = self._bar.tasks[0].elapsed or 0.0
        speed = f"{done / elapsed:,.0f} steps/s" if elapsed > 0 else ""
        said = f"best {value:.4f}"
        self._bar.update(self._task, completed=done, total=total, speed=speed, said=said)

    def say(self, text: str) -> None:
        """Something else is being done."""
        self._bar.update(self._task, said=text)
