"""Ctrl-C and SIGTERM wait for the end of a step, so that nothing is left half done."""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Terminated(KeyboardInterrupt):
    """Training was asked to stop by SIGTERM."""


class Interruption:
    """While it is entered, the first signal is noted and a second one acts at once.

    Only in the main thread; elsewhere signals do not arrive.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.signal is not None:
            raise self.error()
        self.signal = number
        sys.stderr.write("\nStopping after this step; once more to stop at once.\n")

    def error(self) -> KeyboardInterrupt:
        """What to raise for the signal that came."""
        return Terminated() if self.signal == signal.SIGTERM else KeyboardInterrupt()
