"""The two loops behind one face, so that an agent need not know which one trains it."""

import math
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from downside._random import stream
from downside.agents import AbstractAlgorithm
from downside.agents.learner import Learner, make_learner
from downside.train import fused
from downside.train.averaging import Average
from downside.train.hosted import HostedLoop
from downside.train.hosted_run import HostedRun, blank, episode_seed
from downside.train.program import Program, Run
from downside.train.trials import Trials

AnyRun = Run | HostedRun


class Loop(Protocol):
    """From a fresh run to a trained one, in steps."""

    def begin(self, program: Program, algorithm: AbstractAlgorithm, key: Key[Array, ""]) -> AnyRun:
        """A run that has seen random play and learned nothing yet."""
        ...

    def advance(
        self, program: Program, algorithm: AbstractAlgorithm, run: Any
    ) -> tuple[AnyRun, dict[str, float]]:
        """From one outer step to the next, with what there is to say about it."""
        ...

    def settle(self, program: Program, algorithm: AbstractAlgorithm, run: Any) -> AnyRun:
        """One part of what follows when the policy is final."""
        ...

    def go_on(self, run: Any, timesteps: int) -> None:
        """Called before training goes on from a run that it had stopped at."""
        ...

    def start_over(self, program: Program, run: Any) -> Any:
        """The run with steps and schedules from 0 again; what was learned stays."""
        ...

    def skeleton(self, program: Program, algorithm: AbstractAlgorithm) -> Any:
        """A run with shapes in the place of arrays: what a checkpoint must contain."""
        ...


class FusedLoop:
    """Environments that are written in JAX."""

    def begin(self, program: Program, algorithm: AbstractAlgorithm, key: Key[Array, ""]) -> Run:
        """As `fused.begin`."""
        return fused.begin(program, algorithm, key)

    def advance(
        self, program: Program, algorithm: AbstractAlgorithm, run: Run
    ) -> tuple[Run, dict[str, float]]:
        """As `fused.advance`."""
        run, metrics = fused.advance(program, algorithm, run)
        return run, {name: float(value) for name, value in metrics._asdict().items()}

    def settle(self, program: Program, algorithm: AbstractAlgorithm, run: Run) -> Run:
        """As `fused.settle`."""
        return fused.settle(program, algorithm, run)[0]

    def go_on(self, run: Run, timesteps: int) -> None:
        """Nothing: the environments are part of the run."""

    def start_over(self, program: Program, run: Run) -> Run:
        """Another stream of randomness, and fresh optimisers."""
        return eqx.tree_at(
            lambda one: (one.learner, one.vector_steps, one.key),
            run,
            (_fresh(program, run.learner), jnp.zeros((), jnp.int32), stream(run.key, "again")),
        )

    def skeleton(self, program: Program, algorithm: AbstractAlgorithm) -> Any:
        """The shapes of `fused.begin`."""
        begin = fused.begin.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
        return eqx.filter_eval_shape(begin, program, algorithm, jax.random.key(0))


class GymnasiumLoop(HostedLoop):
    """Any other environment."""

    def settle(self, program: Program, algorithm: AbstractAlgorithm, run: HostedRun) -> HostedRun:
        """Nothing: the quantiles are learned together with the policy."""
        del program, algorithm
        return run

    def go_on(self, run: HostedRun, timesteps: int) -> None:
        """New episodes, whose seeds follow from the run and the number of steps."""
        self.restart(episode_seed(run.key, timesteps))

    def start_over(self, program: Program, run: HostedRun) -> HostedRun:
        """Another stream of randomness, and fresh optimisers."""
        fresh, zero = _fresh(program, run.learner), np.zeros((), np.int64)
        average = Average.begin(run.learner.networks, program.settings)
        return eqx.tree_at(
            lambda one: (one.learner, one.rounds, one.trials, one.average, one.key),
            run,
            (fresh, zero, Trials.none(), average, stream(run.key, "again")),
            is_leaf=lambda one: one is None,  # where there is no average
        )

    def skeleton(self, program: Program, algorithm: AbstractAlgorithm) -> Any:
        """A fresh run: parts of it are in the host's memory, and stay there."""
        return blank(program, algorithm, jax.random.key(0))


def _fresh(program: Program, learner: Learner) -> Learner:
    """The networks and their targets with new optimisers, and no update counted."""
    new = make_learner(learner.networks, program.optimiser)
    return eqx.tree_at(lambda one: one.targets, new, learner.targets)


def is_finite(record: dict[str, float]) -> bool:
    """Whether the losses of a step are numbers."""
    return math.isfinite(record["critic_loss"]) and math.isfinite(record["quantile_loss"])
