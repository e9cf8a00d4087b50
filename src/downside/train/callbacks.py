"""What can happen between two steps of training: save, evaluate, stop, or anything of your own."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from downside.risk import AbstractSpectralRisk, as_risk
from downside.train.checkpoint import SUFFIX

if TYPE_CHECKING:
    from downside.train.agent import Agent


class Callback:
    """Override what you need; all do nothing here."""

    def on_start(self, agent: "Agent") -> None:
        """Before the first step."""

    def on_step(self, agent: "Agent") -> bool | None:
        """After each outer step; returning False ends training."""

    def on_end(self, agent: "Agent") -> None:
        """After the last step, also when training was interrupted."""


class Called(Callback):
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
        """The time runs from here."""
        self._last_time, self._last_step = time.monotonic(), agent.num_timesteps

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
            old.unlink(missing_ok=True)


def saved_in(folder: str | Path) -> list[Path]:
    """The checkpoints in a folder, the latest first."""
    pattern = re.compile(rf"checkpoint-\d+\{SUFFIX}")
    found = [one for one in Path(folder).glob(f"checkpoint-*{SUFFIX}") if pattern.match(one.name)]
    return sorted(found, reverse=True)


class Evaluations(Callback):
    """Evaluates the policy now and then, by its own measure and by others.

    What it found is in `results`, a dictionary for each time, and in the agent's log.

    Arguments:
        every_steps: environment steps between two evaluations.
        episodes: of each evaluation.
        risks: measures beside the agent's own.
        seed: of the episodes; other than those of the final evaluation.
    """

    def __init__(
        self,
        every_steps: int,
        *,
        episodes: int = 1000,
        risks: Iterable[AbstractSpectralRisk | str] = (),
        seed: int = 20_000,
    ):
        self.every_steps, self.episodes, self.seed = every_steps, episodes, seed
        self.risks = [as_risk(risk) for risk in risks]
        self.results: list[dict[str, float]] = []
        self._last = 0

    def on_step(self, agent: "Agent") -> None:
        """Evaluates if it is time to."""
        if agent.num_timesteps - self._last < self.every_steps:
            return
        self._last = agent.num_timesteps
        returns = agent.simulate_returns(self.episodes, self.seed)
        found = {f"eval/{risk}": float(risk(returns)) for risk in (agent.risk, *self.risks)}
        agent.history[-1].update(found)
        self.results.append({"timesteps": agent.num_timesteps, **found})


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
        return [one for part in given for one in as_callbacks(part)]
    if callable(given):
        function: Any = given
        return [Called(function)]
    raise TypeError(
        f"`callback` must be a ds.Callback, a function of the agent, or a list of them, got "
        f"{given!r}."
    )
