"""How far a study is: agents trained, time left, and a line for each that is done."""

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_WINDOW = 1800.0
"""Seconds over which the speed is measured that the time left is estimated from."""


class StudyBar:
    """A bar over all agents of one study or of several."""

    def __init__(self, agents: int):
        self._agents = agents
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.1f} of {task.total:.0f} agents"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            speed_estimate_period=_WINDOW,
        )
        self._task = self._bar.add_task("", total=agents)
        self._shares: dict[object, float] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> "StudyBar":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Out of the way of somebody who shows progress of his own."""
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def update(self, agent: object, share: float, title: str) -> None:
        """An agent has done this share of its training."""
        with self._lock:
            self._shares[agent] = share
            done = sum(self._shares.values())
            self._bar.update(self._task, completed=done, description=title)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._bar.console.print(text, highlight=False, markup=False)
