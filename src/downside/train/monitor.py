"""What happens between two outer steps: callbacks, the progress bar, Ctrl-C."""

import contextlib
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from downside.risk import AbstractSpectralRisk, as_risk
from downside.train.checkpoints.checkpoint import SUFFIX

if TYPE_CHECKING:
    from downside.train.agent import Agent

# --- callbacks ----------------------------------------------------------------------------------


class Callback:
    """Override what you need; all do nothing here."""

    def on_start(self, agent: "Agent") -> None:
        """Before the first step."""

    def on_step(self, agent: "Agent") -> bool | None:
        """After each outer step; returning False ends training."""

    def on_end(self, agent: "Agent") -> None:
        """After the last step, also when training was interrupted."""


class FunctionCallback(Callback):
    """A plain function of the agent, called after each outer step."""

    def __init__(self, function: Callable[["Agent"], bool | None]):
        self.function = function

    def on_step(self, agent: "Agent") -> bool | None:
        """Calls it."""
        return self.function(agent)


class Checkpoints(Callback):
    """Saves the agent into a folder, and keeps the last few files.

    Arguments:
        folder: where `checkpoint-<steps>.safetensors` go.
        every_seconds: the least time between two of them.
        every_steps: the least number of environment steps between two of them.
        keep: how many stay.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        every_seconds: float | int = 60.0,
        every_steps: int | None = None,
        keep: int = 2,
    ):
        if keep < 1:
            raise ValueError(f"`keep` must be a whole number >= 1, got {keep!r}.")
        self.folder, self.every_seconds, self.every_steps = Path(folder), every_seconds, every_steps
        self.keep = keep
        self._last_time, self._last_step = 0.0, 0

    def on_start(self, agent: "Agent") -> None:
        """The time runs from here. Checkpoints of later steps are set aside: they could not be
        read, or belong to another run."""
        self._last_time, self._last_step = time.monotonic(), agent.num_timesteps
        for path in saved_in(self.folder):
            if saved_at(path) > agent.num_timesteps:
                set_aside(path)

    def on_step(self, agent: "Agent") -> None:
        """Saves if it is time to."""
        if self.every_steps is not None:
            due = agent.num_timesteps - self._last_step >= self.every_steps
        else:
            due = time.monotonic() - self._last_time >= self.every_seconds
        if due:
            self._save(agent)

    def on_end(self, agent: "Agent") -> None:
        """Saves in any case."""
        self._save(agent)

    def _save(self, agent: "Agent") -> None:
        agent.save(self.folder / f"checkpoint-{agent.num_timesteps:012d}")
        self._last_time, self._last_step = time.monotonic(), agent.num_timesteps
        for old in saved_in(self.folder)[self.keep :]:
            with contextlib.suppress(OSError):  # one too many is no harm
                old.unlink(missing_ok=True)


def saved_in(folder: str | Path) -> list[Path]:
    """The checkpoints in a folder, the latest first."""
    pattern = re.compile(rf"checkpoint-[0-9]+\{SUFFIX}")
    paths = Path(folder).glob(f"checkpoint-*{SUFFIX}")
    return sorted(
        (path for path in paths if pattern.fullmatch(path.name)), key=saved_at, reverse=True
    )


def saved_at(path: Path) -> int:
    """The environment steps of a checkpoint, from its name."""
    return int(path.stem.rpartition("-")[2])


def set_aside(path: Path) -> Path:
    """Renames a file so that it counts no longer; nothing is deleted."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.aside-{number}")):
        number += 1
    return path.rename(aside)


class Evaluations(Callback):
    """Evaluates the policy now and then, by its own measure and by others.

    The values are in `results`, a dictionary for each time, and in the agent's log.

    Arguments:
        every_steps: environment steps between two evaluations.
        episodes: of each evaluation.
        risks: measures beside the agent's own.
        seed: of the episodes; other than those of the final evaluation.
        best_model_save_path: a folder; whenever the value by the agent's own measure is higher
            than ever before, the agent is saved there as `best_model`.
    """

    def __init__(
        self,
        every_steps: int,
        *,
        episodes: int = 1000,
        risks: Iterable[AbstractSpectralRisk | str] = (),
        seed: int = 20_000,
        best_model_save_path: str | Path | None = None,
    ):
        self.every_steps, self.episodes, self.seed = every_steps, episodes, seed
        self.best_path, self.best = best_model_save_path, -math.inf
        self.risks = [as_risk(risk) for risk in risks]
        self.results: list[dict[str, float]] = []
        self._last = 0

    def on_step(self, agent: "Agent") -> None:
        """Evaluates if it is time to."""
        if agent.num_timesteps - self._last < self.every_steps:
            return
        self._last = agent.num_timesteps
        returns = agent.simulate_returns(self.episodes, self.seed)
        values = {f"eval/{risk}": float(risk(returns)) for risk in (agent.risk, *self.risks)}
        agent.history[-1].update(values)
        self.results.append({"timesteps": agent.num_timesteps, **values})
        value = values[f"eval/{agent.risk}"]
        if value > self.best:
            self.best = value
            if self.best_path is not None:
                agent.save(Path(self.best_path) / "best_model")


class StopAtValue(Callback):
    """Ends training once the risk measure's value of the policy has reached a target."""

    def __init__(self, value: float | int):
        self.value = float(value)

    def on_step(self, agent: "Agent") -> bool:
        """Whether to go on."""
        return agent.history[-1]["best"] < self.value


def as_callbacks(given: Any) -> list[Callback]:
    """One callback, a function, a list of them, or nothing."""
    if given is None:
        return []
    if isinstance(given, Callback):
        return [given]
    if isinstance(given, Sequence):
        return [callback for part in given for callback in as_callbacks(part)]
    if callable(given):
        function: Any = given
        return [FunctionCallback(function)]
    raise TypeError(
        f"`callback` must be a ds.Callback, a function of the agent, or a list of them, got "
        f"{given!r}."
    )


# --- the progress bar ---------------------------------------------------------------------------


class TrainingBar:
    """One line on the terminal that follows a run; nothing at all if it is disabled."""

    def __init__(self, title: str, *, disable: bool):
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            console=Console(stderr=True),
            disable=disable,
        )
        self._task = self._bar.add_task(title, total=None, speed="", status="compiling")

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
        status = f"best {value:.4f}" if math.isfinite(value) else ""
        self._bar.update(self._task, completed=done, total=total, speed=speed, status=status)

    def say(self, text: str) -> None:
        """Something else is being done."""
        self._bar.update(self._task, status=text)


# --- Ctrl-C -------------------------------------------------------------------------------------


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
        sys.stderr.write("\nStopping after this outer step; once more to stop at once.\n")

    def error(self) -> KeyboardInterrupt:
        """What to raise for the signal that came."""
        return Terminated() if self.signal == signal.SIGTERM else KeyboardInterrupt()
