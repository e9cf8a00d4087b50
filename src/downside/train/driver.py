"""One driver for all agents and environments: init, chunk, outer step, fit, in this order."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from downside.agents.algorithm import AbstractAlgorithm, OuterVariable
from downside.agents.learner import AbstractLearner
from downside.agents.networks import MakeTrunk
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv
from downside.train.backends.state import BestPolicy


class DivergenceError(RuntimeError):
    """The losses became infinite or NaN."""

    def __init__(self, message: str, agents: Sequence[Any] = ()):
        super().__init__(message)
        self.agents: tuple[Any, ...] = tuple(agents)
        """Of several agents that were trained together, those that are in order."""


@runtime_checkable
class Backend(Protocol):
    """Where transitions come from. The driver and the agent ask for nothing else."""

    env: Any
    """The environment, as `agent.env` shows it."""
    num_actions: int
    first_action: int
    """The number that the environment has for action 0."""
    mask_size: int
    """Entries of an action mask: of a MultiDiscrete space, the actions of all its choices."""
    default_episodes: int
    """How many episodes `evaluate` plays unless told: fewer where they are slow."""
    evaluated_steps: int
    """Environment steps so far of episodes that were played to judge policies; those simulated in
    compiled programs are not counted."""

    @property
    def jax_env(self) -> AbstractJaxEnv | None:
        """The environment, if it is written in JAX."""
        ...

    def new_spec(self, settings: Any, make_trunk: MakeTrunk, timesteps: int) -> Any:
        """What a run of about so many steps does not change."""
        ...

    def init(self, spec: Any, algorithm: AbstractAlgorithm, key: Key[Array, ""]) -> tuple[Any, int]:
        """A run that has learned nothing yet, and the steps that were simulated for it."""
        ...

    def chunk(
        self, spec: Any, algorithm: AbstractAlgorithm, state: Any
    ) -> tuple[Any, dict[str, float]]:
        """From one outer step to the next, with a record for the log."""
        ...

    def fit_return_distribution(
        self, spec: Any, algorithm: AbstractAlgorithm, state: Any
    ) -> tuple[Any, int]:
        """One part of learning the return distribution of the final policy."""
        ...

    def resume(self, spec: Any, state: Any, timesteps: int) -> None:
        """Called before training goes on from a run that had stopped."""
        ...

    def start_over(self, spec: Any, algorithm: AbstractAlgorithm, state: Any) -> Any:
        """The run with steps and schedules from 0 again; what was learned stays."""
        ...

    def move_here(self, before: Any, state: Any) -> Any:
        """A run that another backend of the same kind had."""
        ...

    def to_tree(self, state: Any) -> Any:
        """All that a checkpoint holds, as a pytree."""
        ...

    def skeleton(self, spec: Any, algorithm: AbstractAlgorithm) -> Any:
        """A tree like that of `to_tree`, with the right shapes."""
        ...

    def from_tree(self, tree: Any) -> Any:
        """The run that `to_tree` took apart; `skeleton` was called before."""
        ...

    @property
    def observation_space(self) -> Any:
        """Flat observations, without the memory of rewards."""
        ...

    @property
    def shown_size(self) -> int:
        """How many numbers the environment itself shows."""
        ...

    @property
    def aligned(self) -> bool:
        """Whether episode i of an evaluation is the same for every agent."""
        ...

    def flatten(self, observation: Any) -> tuple[Float[np.ndarray, "n d"], bool] | None:
        """Observations as the environment returns them, as rows; None if they are rows already."""
        ...

    def make_env(self, render_mode: str | None = None) -> Any:
        """A new Gymnasium environment of the same kind."""
        ...

    def wrap(self, env: Any) -> Any:
        """An environment with all that observations need but the memory of rewards."""
        ...

    def simulate_returns(
        self, learner: AbstractLearner, policy: BestPolicy, episodes: int, seed: int
    ) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of a policy in new episodes."""
        ...


class Driver:
    """Takes one run from its start to its end, a chunk at a time."""

    def __init__(
        self,
        backend: Backend,
        algorithm: AbstractAlgorithm,
        settings: Settings,
        make_trunk: MakeTrunk,
        seed: int,
    ):
        self.backend, self.algorithm, self.settings = backend, algorithm, settings
        self.make_trunk, self.seed = make_trunk, seed
        self.spec: Any | None = None
        self.state: Any = None
        self.history: list[dict[str, Any]] = []
        self.fitted = 0
        """How much of the return distribution of the final policy was learned."""
        self.uncounted = 0
        """Steps that were simulated, or played at random, before the first chunk is done."""

    def plan(self, timesteps: int) -> Any:
        """Plans the run from here to so many steps further on."""
        spec = self.new_spec(timesteps)
        self.spec = dataclasses.replace(spec, chunks=spec.chunks + len(self.history))
        self.fitted = 0
        return self.spec

    def new_spec(self, timesteps: int) -> Any:
        """What a run of about so many steps does not change."""
        return self.backend.new_spec(self.settings, self.make_trunk, timesteps)

    def start_over(self) -> None:
        """Steps and schedules from 0 again; what was learned stays."""
        assert self.spec is not None
        self.state = self.backend.start_over(self.spec, self.algorithm, self.state)
        self.history = []

    def move_to(self, backend: Backend) -> None:
        """Another environment of the same kind to learn in, with the same spaces."""
        before = self.backend
        spaces = (before.observation_space.shape, before.num_actions)
        if spaces != (backend.observation_space.shape, backend.num_actions):
            raise ValueError(
                f"`env` must have observations of shape {spaces[0]} and {spaces[1]} actions, got "
                f"{backend.observation_space.shape} and {backend.num_actions}."
            )
        self.backend = backend
        if self.spec is not None:  # so that `chunks` trains there
            self.spec = dataclasses.replace(self.spec, env=backend.jax_env)
        if self.state is not None:
            self.state = backend.move_here(before, self.state)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Trains to the planned end; yields the steps done and the steps there will be."""
        spec = self.planned()
        if self.state is None:
            key = jax.random.key(self.seed)
            self.state, simulated = self.backend.init(spec, self.algorithm, key)
            self.uncounted += simulated
        else:
            self.backend.resume(spec, self.state, self.num_timesteps)
        clock = Clock(self.history)
        while len(self.history) < spec.chunks:
            state, record = self.backend.chunk(spec, self.algorithm, self.state)
            if not is_finite(record):
                raise DivergenceError(
                    f"Training diverged after {int(record['timesteps']):,} steps: the loss or its "
                    "gradient is not finite. The networks and the outer variable are as they were "
                    "one outer step earlier. Try a lower `learning_rate`, or look for rewards that "
                    "are huge."
                )
            record["simulated_steps"] += self.uncounted
            self.state, self.uncounted = state, 0
            self.history.append(clock.completed(record, self.algorithm, state.outer))
            yield self.num_timesteps, spec.chunks * spec.timesteps_per_chunk

    def fit(self) -> Iterator[int]:
        """Learns the return distribution of the final policy, which stays as it is."""
        spec = self.planned()
        if self.state is None:
            raise untrained()
        while self.fitted < spec.fit_chunks:
            self.state, simulated = self.backend.fit_return_distribution(
                spec, self.algorithm, self.state
            )
            self.fitted += 1
            self.history[-1]["simulated_steps"] += simulated
            yield self.fitted

    def planned(self) -> Any:
        """What the run does not change, or an error if there is none."""
        if self.spec is None:
            raise untrained()
        return self.spec

    @property
    def total_timesteps(self) -> int:
        """Environment steps at the planned end."""
        spec = self.planned()
        return spec.chunks * spec.timesteps_per_chunk

    @property
    def num_timesteps(self) -> int:
        """Environment steps so far."""
        return int(self.history[-1]["timesteps"]) if self.history else 0


class Clock:
    """Adds to records what they say of the whole run: time, speed, simulated steps, episodes."""

    def __init__(self, history: list[dict[str, Any]]):
        last = history[-1] if history else {}
        self._seconds = last.get("seconds", 0.0)
        self._timesteps = last.get("timesteps", 0.0)
        self._simulated = last.get("simulated_steps", 0)
        self._episodes = last.get("episodes", 0.0)
        self._begin = time.perf_counter()

    def completed(
        self, record: dict[str, float], algorithm: AbstractAlgorithm, outer: OuterVariable
    ) -> dict[str, Any]:
        """The record of a chunk as it enters the history."""
        seconds = time.perf_counter() - self._begin
        self._simulated += int(record["simulated_steps"])
        logged = {name: float(value) for name, value in algorithm.logged(outer).items()}
        record = dict(record)
        if "ended" in record:  # some backends count by themselves
            self._episodes += record.pop("ended")
            record["episodes"] = self._episodes
        return {
            **record,
            "simulated_steps": self._simulated,
            "seconds": self._seconds + seconds,
            "fps": (record["timesteps"] - self._timesteps) / seconds,
            **logged,
        }


def untrained() -> RuntimeError:
    """The error for an agent that has not learned yet."""
    return RuntimeError("The agent has not learned anything yet: call `learn` first.")


def is_finite(record: dict[str, float]) -> bool:
    """Whether the losses of a chunk are numbers."""
    return all(math.isfinite(value) for name, value in record.items() if name.endswith("_loss"))
