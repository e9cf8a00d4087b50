"""Training an actor on whole simulated episodes: everything between two outer steps is one compiled
program.

The same interface as `jax_program.py`: `init` and `chunk`, on a `PathwiseSpec`.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.agents.actor import ActionHead, Actor, Clock
from downside.agents.algorithm import AbstractActorAlgorithm, AbstractAlgorithm, OuterVariable
from downside.agents.networks import MakeTrunk
from downside.agents.pgsrm import ActorState, PathwiseLearner
from downside.agents.settings import PathwiseSettings
from downside.envs import AbstractJaxEnv
from downside.envs.rollout import random_episodes
from downside.train.jax_program import compiled, scan, strong
from downside.train.state import BestPolicy, CommonState, measuring_horizon, where


class PathwiseSpec(eqx.Module):
    """What does not change in a run of PG-SRM."""

    env: AbstractJaxEnv
    settings: PathwiseSettings = eqx.field(static=True)
    make_trunk: MakeTrunk = eqx.field(static=True)
    clock: Clock | None
    chunks: int = eqx.field(static=True)
    """How many chunks, each with an outer step at its end, make a run."""
    fit_chunks: int = eqx.field(static=True, default=0)
    """The return distribution of the final policy is simulated, not learned."""

    @classmethod
    def make(
        cls,
        env: AbstractJaxEnv,
        settings: PathwiseSettings,
        make_trunk: MakeTrunk,
        clock: Clock | None,
        total_timesteps: int,
    ) -> "PathwiseSpec":
        """Of a run of about so many simulated steps: a whole number of chunks."""
        spec = cls(env, settings, make_trunk, clock, 1)
        chunks = max(1, round(total_timesteps / spec.timesteps_per_chunk))
        return dataclasses.replace(spec, chunks=chunks)

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return measuring_horizon(self.env, self.settings.gamma)

    @property
    def timesteps_per_chunk(self) -> int:
        """Simulated steps between two outer steps, without those of the outer step."""
        return self.settings.outer_interval * self.settings.batch_size * self.horizon

    def learner(self, algorithm: AbstractAlgorithm) -> PathwiseLearner:
        """The learner, with schedules of the length of the run."""
        assert isinstance(algorithm, AbstractActorAlgorithm)
        head, simulated = ActionHead.of(self.env)
        return PathwiseLearner(
            algorithm,
            self.settings,
            self.make_trunk,
            simulated,
            self.env,
            head,
            self.clock,
            self.horizon,
            self.chunks * self.settings.outer_interval,
        )


class PathwiseState(CommonState):
    """What changes in a run of PG-SRM."""

    learner: ActorState


class PathwiseMetrics(NamedTuple):
    """What is logged of one chunk."""

    updates: Int[Array, ""]
    actor_loss: Float[Array, ""]
    value: Float[Array, ""]
    """J: the risk measure's value of the present policy, measured in episodes."""
    best: Float[Array, ""]
    mean: Float[Array, ""]
    spread: Float[Array, ""]


@compiled
def init(
    spec: PathwiseSpec, algorithm: AbstractActorAlgorithm, key: Key[Array, ""]
) -> tuple[PathwiseState, Int[Array, ""]]:
    """A run that has learned nothing yet, and the steps that were simulated for it."""
    learner = spec.learner(algorithm)
    random_play = random_episodes(
        spec.env,
        stream(key, "random play"),
        gamma=spec.settings.gamma,
        horizon=spec.horizon,
        episodes=spec.settings.outer_episodes,
    )
    returns = random_play.memory.accumulated
    outer = algorithm.initial_outer(returns)
    size = input_size(spec, algorithm)
    state = learner.init(stream(key, "networks"), size, outer=outer)
    run = PathwiseState(
        learner=state,
        outer=outer,
        has_outer=jnp.zeros((), bool),
        spread=jnp.maximum(returns.std(), 1e-6),
        best=BestPolicy(state.networks, outer, jnp.asarray(-jnp.inf)),
        key=key,
    )
    simulated = spec.settings.batch_size * spec.horizon + random_play.steps
    return jax.tree.map(strong, run), simulated


def input_size(spec: PathwiseSpec, algorithm: AbstractActorAlgorithm) -> int:
    """How many numbers the actor sees."""
    return spec.env.observation_space.shape[0] + algorithm.inputs_appended


@compiled
def chunk(
    spec: PathwiseSpec, algorithm: AbstractActorAlgorithm, state: PathwiseState
) -> tuple[PathwiseState, PathwiseMetrics]:
    """From one outer step to the next."""
    settings, learner = spec.settings, spec.learner(algorithm)

    def step(actor: ActorState, _: None) -> tuple[ActorState, Array]:
        key = stream(state.key, "update", actor.updates)
        return learner.update(actor, key, state.outer, state.spread)

    trained, losses = scan(step, state.learner, None, settings.outer_interval)
    returns = _measure(spec, learner, trained.average, state.outer, state.key)
    value, outer = algorithm.measured(state.outer, returns)
    candidate = BestPolicy(trained.average, outer, value)
    best = candidate
    if settings.keep_best:
        best = where(value > state.best.value, candidate, state.best)
    progress = trained.updates / learner.updates
    state = PathwiseState(
        learner=trained,
        outer=outer,
        has_outer=progress > settings.risk_neutral_fraction,
        spread=jnp.maximum(returns.std(), 1e-6),
        best=best,
        key=state.key,
    )
    metrics = PathwiseMetrics(
        updates=trained.updates,
        actor_loss=losses.mean(),
        value=value,
        best=best.value,
        mean=returns.mean(),
        spread=returns.std(),
    )
    return state, metrics


def record(spec: PathwiseSpec, metrics: PathwiseMetrics) -> dict[str, float]:
    """What `chunk` logs, as plain numbers; with the steps of the episodes that were learned from,
    and those that were simulated beside them for the outer step."""
    settings, logged = spec.settings, {k: v.item() for k, v in metrics._asdict().items()}
    return {
        "timesteps": float(logged["updates"] * settings.batch_size * spec.horizon),
        "simulated_steps": settings.outer_episodes * spec.horizon,
        **logged,
    }


def _measure(
    spec: PathwiseSpec,
    learner: PathwiseLearner,
    actor: Actor,
    outer: OuterVariable,
    key: Key[Array, ""],
) -> Float[Array, " n"]:
    """The returns of the policy in episodes that nothing is learned from: the same at every outer
    step, so that policies are compared under equal noise."""
    count = spec.settings.outer_episodes
    rounded = jnp.ones((), bool)
    positions = learner.algorithm.measuring_positions(outer, count)
    return learner.simulate(actor, stream(key, "measure"), rounded, positions, count).returns
