"""Training an actor on whole simulated episodes: everything between two outer steps is one compiled
program.

The same interface as `backends/jax/program.py`: `init` and `chunk`, on a `PathwiseSpec`.
"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.agents.actor import ActionHead, Actor, Clock
from downside.agents.algorithm import AbstractActorAlgorithm, AbstractAlgorithm, OuterVariable
from downside.agents.networks import MakeTrunk
from downside.agents.pgsrm import ActorSRM, ActorState, PathwiseLearner
from downside.agents.settings import PathwiseSettings
from downside.envs import AbstractJaxEnv
from downside.envs.rollout import random_episodes
from downside.train.backends.jax.program import compiled, scan, strong
from downside.train.backends.state import BestPolicy, CommonState, measuring_horizon, where

_LEAST_EPISODES = 1024
"""Episodes in which a policy is measured at least, unless `outer_episodes` is less."""


def simulated_for(env: AbstractJaxEnv, settings: PathwiseSettings, done: int, updates: int) -> int:
    """Environment steps that the first `done` of so many updates learn from."""
    horizon = measuring_horizon(env, settings.gamma)
    is_box = ActionHead.of(env)[0].low is not None
    if is_box and settings.in_segments(horizon):
        return done * settings.batch_size * settings.segment_steps
    return settings.batches(done, updates) * settings.batch_size * horizon


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
        interval = settings.outer_interval
        # Of a long run, whose batches grow.
        each = simulated_for(env, settings, 1000 * interval, 1000 * interval) / 1000
        chunks = max(1, round(total_timesteps / each))
        return dataclasses.replace(spec, chunks=chunks)

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return measuring_horizon(self.env, self.settings.gamma)

    @property
    def in_segments(self) -> bool:
        """Whether episodes are too long to be differentiated as a whole."""
        is_box = ActionHead.of(self.env)[0].low is not None
        return is_box and self.settings.in_segments(self.horizon)

    @property
    def updates(self) -> int:
        """Updates of the run."""
        return self.chunks * self.settings.outer_interval

    @property
    def timesteps_per_chunk(self) -> int:
        """Simulated steps between two outer steps, without those of the outer step: on average over
        the run."""
        return self.timesteps(self.updates) // self.chunks

    def timesteps(self, done: int) -> int:
        """Simulated steps of the first `done` updates."""
        return simulated_for(self.env, self.settings, done, self.updates)

    @property
    def measured_episodes(self) -> int:
        """Episodes in which the policy is measured: of long ones no more than take the time of the
        updates before."""
        most = self.settings.outer_episodes
        if not self.in_segments:
            return most
        return min(most, max(_LEAST_EPISODES, self.timesteps_per_chunk // self.horizon))

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
            self.updates,
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
        episodes=spec.measured_episodes,
    )
    returns = random_play.memory.accumulated
    outer = algorithm.initial_outer(returns)
    size = input_size(spec, algorithm)
    state = learner.init(stream(key, "networks"), size, outer=outer)
    steps = random_play.steps
    first = jnp.asarray(-jnp.inf)
    if isinstance(algorithm, ActorSRM):
        # The middle of the box, often doing nothing: what is kept at the end is no worse.
        measured = _measure(spec, learner, state.networks, outer, key)
        first = algorithm.measured(outer, measured)[0]
        steps += spec.measured_episodes * spec.horizon
    run = PathwiseState(
        learner=state,
        outer=outer,
        has_outer=jnp.zeros((), bool),
        spread=jnp.maximum(returns.std(), 1e-6),
        best=BestPolicy(state.networks, outer, first),
        key=key,
    )
    batches = 2 if learner.in_segments else 1  # to normalise inputs, and to begin segments
    simulated = batches * spec.settings.batch_size * spec.horizon + steps
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
    progress = trained.updates / learner.updates
    if settings.keep_best:
        margin = _margin(spec, algorithm, state.learner.updates, trained.updates, outer, returns)
        best = where(value >= state.best.value - margin, candidate, state.best)
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


def _margin(
    spec: PathwiseSpec,
    algorithm: AbstractActorAlgorithm,
    before: Int[Array, ""],
    now: Int[Array, ""],
    outer: OuterVariable,
    returns: Float[Array, " n"],
) -> Float[Array, ""]:
    """By how much a policy may look worse than the best before it and replace it: two standard
    errors when averaging begins, and nothing otherwise.

    Policies of the last part of a run are alike, and so are their errors in the same episodes. One
    from before may be of another kind: doing nothing is worth 0 without an error.
    """
    if not spec.settings.averaging or not isinstance(algorithm, ActorSRM):
        return jnp.zeros(())
    begins = (1.0 - spec.settings.averaging) * spec.updates
    utilities = algorithm.utility(outer)(returns)
    error = utilities.std() / math.sqrt(returns.shape[0])  # the value is their mean
    return jnp.where((before < begins) & (now >= begins), 2.0 * error, 0.0)


def record(spec: PathwiseSpec, metrics: PathwiseMetrics) -> dict[str, float]:
    """What `chunk` logs, as plain numbers; with the steps of the episodes that were learned from,
    and those that were simulated beside them for the outer step."""
    logged = {k: v.item() for k, v in metrics._asdict().items()}
    return {
        "timesteps": float(spec.timesteps(int(logged["updates"]))),
        "simulated_steps": spec.measured_episodes * spec.horizon,
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
    rounded = jnp.ones((), bool)
    count = spec.measured_episodes
    positions = learner.algorithm.measuring_positions(outer, count)
    return learner.simulate(actor, stream(key, "measure"), rounded, positions, count).returns
