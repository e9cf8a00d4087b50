"""What a run of the fused loop is: what stays the same (`Program`) and what changes (`Run`)."""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from downside.agents.algorithm import Goal
from downside.agents.learner import Learner, Networks
from downside.agents.networks import MakeTrunk
from downside.agents.optimisers import make_optimiser
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv
from downside.train.experience import Replay

DISTRIBUTION_CHUNK = 250
"""Updates in one call of `settle`."""


class Kept(eqx.Module):
    """The best policy so far."""

    networks: Networks
    goal: Goal
    value: Float[Array, ""]
    """The risk measure's value of it, in the episodes that all iterates are measured in; in a
    hosted run, in its trial, or without trials of the best so far, which it may fall short of by
    what the episodes cannot tell, and which is that of no average (`averaging`)."""


class Run(eqx.Module):
    """Everything that changes in a run."""

    learner: Learner
    goal: Goal
    has_goal: Bool[Array, ""]
    """Whether an outer step has been made; before, the mean is maximised."""
    spread: Float[Array, ""]
    """Standard deviation of the returns, of the present policy where it is known."""
    env_states: Any
    replay: Replay
    vector_steps: Int[Array, ""]
    """Steps of all environments together, without the warm-up."""
    kept: Kept
    key: Key[Array, ""]
    """The root of all randomness; it never changes."""


class Metrics(NamedTuple):
    """What there is to say about one chunk."""

    timesteps: Float[Array, ""]
    updates: Float[Array, ""]
    critic_loss: Float[Array, ""]
    quantile_loss: Float[Array, ""]
    value: Float[Array, ""]
    """J of the present iterate: the risk measure's value of its policy, measured in episodes."""
    predicted: Float[Array, ""]
    """What the networks expect it to be."""
    best: Float[Array, ""]
    """The best value so far. A JAX environment's policy that is kept has it."""
    mean: Float[Array, ""]
    """Mean return of the present iterate's policy."""
    spread: Float[Array, ""]
    """Standard deviation of its returns."""
    exploration: Float[Array, ""]
    """Share of random actions."""


class Program(eqx.Module):
    """What does not change in a run: the environment, the settings, its length."""

    env: AbstractJaxEnv
    settings: Settings = eqx.field(static=True)
    make_trunk: MakeTrunk = eqx.field(static=True)
    chunks: int = eqx.field(static=True)
    """How many calls of `advance` make a run."""

    @property
    def steps_per_chunk(self) -> int:
        """Rounds (steps of all environments and the updates after them) between outer steps."""
        return self.settings.outer_interval // self.settings.updates_per_step

    @property
    def timesteps_per_round(self) -> int:
        """Environment steps between two rounds of updates."""
        return self.settings.num_envs * self.settings.update_interval

    @property
    def updates(self) -> int:
        """Updates of a run."""
        return self.chunks * self.settings.outer_interval

    @property
    def distribution_chunks(self) -> int:
        """How many calls of `settle` follow: none where the quantiles are the policy."""
        if self.settings.critic == "quantiles":
            return 0
        return math.ceil(self.settings.distribution_fraction * self.updates / DISTRIBUTION_CHUNK)

    @property
    def quantiles_beside(self) -> bool:
        """Whether the quantiles are learned beside a critic, because the outer step needs them.
        Otherwise they wait for the policy to be final (`settle`)."""
        return self.settings.critic == "utility" and self.settings.outer == "learned"

    def unit(self, run: Run) -> Float[Array, ""]:
        """What κ and the relabelling are measured in."""
        return run.spread if self.settings.normalise else jnp.ones(())

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Of the networks that actions are scored by."""
        return make_optimiser(self.settings, self.updates)

    @property
    def quantile_optimiser(self) -> optax.GradientTransformation:
        """Of the quantiles."""
        settings = self.settings
        if settings.critic == "quantiles":
            return self.optimiser
        beside = self.quantiles_beside * self.updates // settings.updates_per_step
        return make_optimiser(settings, beside + self.distribution_chunks * DISTRIBUTION_CHUNK)


def measuring_horizon(env: AbstractJaxEnv, gamma: float) -> int:
    """After how many steps an episode that is measured is cut: when nothing counts any more."""
    if env.horizon is not None:
        return env.horizon
    return 1000 if gamma == 1.0 else min(1000, math.ceil(math.log(1e-3) / math.log(gamma)))


def make_program(
    env: AbstractJaxEnv, settings: Settings, make_trunk: MakeTrunk, total_timesteps: int
) -> Program:
    """The program of a run of about so many environment steps: a whole number of chunks."""
    program = Program(env, settings, make_trunk, 1)
    per_chunk = program.steps_per_chunk * program.timesteps_per_round
    return dataclasses.replace(program, chunks=max(1, round(total_timesteps / per_chunk)))


def exploration_share(settings: Settings, progress: Any) -> Any:
    """The share of random actions when so much of the run is over."""
    declined = progress / max(settings.exploration_fraction, 1e-9)
    declined = min(declined, 1.0) if isinstance(declined, float) else jnp.clip(declined, 0.0, 1.0)
    first, last = settings.exploration_initial, settings.exploration_final
    return first + declined * (last - first)
