"""The outer step of a run: measure candidates, keep the best policy, move the outer variable."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import (
    AbstractAlgorithm,
    CandidateReturns,
    OuterVariable,
    start_distribution,
)
from downside.agents.learner import next_spread
from downside.agents.networks import input_spread, members
from downside.agents.quantile_learner import QuantileLearner
from downside.envs import Memory
from downside.envs.memory_env import initial_memory
from downside.envs.rollout import Rollout, play
from downside.ops import masked
from downside.train.backends.replay import Observed
from downside.train.backends.state import (
    BestPolicy,
    CommonState,
    TrainSpec,
    TrainState,
    measuring_horizon,
    where,
)

State = TypeVar("State", bound=CommonState)

START_STATES = 32
"""Start states that the learned outer step and the predicted value look at."""
RESCALE_UNTIL = 0.4
"""Until this share of the run the spread of the inputs is measured anew at each outer step: a
cautious policy moves within a smaller range than random play."""

_SPREAD_FALL = 0.9
"""The spread falls to this share of itself at most in an outer step. It says how far the search for
the location of h looks, and how far scores are learned around it: were it that of the present
policy alone, a policy that does next to nothing would be all that is ever seen again."""


class Measured(NamedTuple):
    """What an outer step measured."""

    value: Float[Array, ""]
    """The risk measure's value of the present policy."""
    predicted: Float[Array, ""]
    """What the networks expect it to be."""
    returns: Float[Array, " n"]
    """The returns of the present policy."""
    steps: Int[Array, ""]
    """Environment steps of all episodes."""


def outer_step(
    spec: TrainSpec, algorithm: AbstractAlgorithm, state: TrainState, progress: Float[Array, ""]
) -> tuple[TrainState, Measured]:
    """Measures the candidates, keeps the best policy, and moves the outer variable.

    Without `keep_best`, as in the paper, what is measured goes into the log and decides nothing.
    """
    settings, learner = spec.simulator, spec.learner(algorithm)
    networks = state.learner.networks
    candidates = algorithm.candidates(state.outer, state.spread, settings)
    episodes = jax.vmap(
        lambda outer: policy_episodes(
            spec, learner, networks, outer, settings.outer_episodes, stream(state.key, "measure")
        )
    )(candidates)
    returns = jnp.sort(episodes.memory.accumulated, axis=-1)
    values = jax.vmap(algorithm.objective.value)(returns)
    middle, highest = values.shape[0] // 2, jnp.argmax(values)

    due = progress >= settings.risk_neutral_fraction
    starts = start_states(spec, state.key)
    expected = start_value(learner, networks, starts)
    if settings.outer == "simulated":
        measured = CandidateReturns(candidates, values, returns)
        moved = algorithm.outer_step(state.outer, measured, settings.outer_rate, ~state.has_outer)
    else:
        moved = learned_outer(
            learner, networks, state.outer, state.has_outer, starts, settings.outer_rate
        )
    if settings.keep_best:
        chosen = jax.tree.map(lambda leaf: leaf[highest], candidates)
        candidate = BestPolicy(networks, chosen, values[highest])
        # Of equals the latest, whose distributions are learned best.
        best = where(values[highest] >= state.best.value, candidate, state.best)
    else:
        best = BestPolicy(networks, state.outer, values[middle])
    predicted = expected(state.outer)
    if settings.normalise:
        state = _rescaled(spec, algorithm, state, due & (progress <= RESCALE_UNTIL))
    state = eqx.tree_at(
        lambda s: (s.outer, s.has_outer, s.best, s.spread),
        state,
        (
            where(due, moved, state.outer),
            state.has_outer | due,
            best,
            jnp.maximum(next_spread(state.spread, returns[middle]), _SPREAD_FALL * state.spread),
        ),
    )
    return state, Measured(values[middle], predicted, returns[middle], episodes.steps.sum())


def _rescaled(
    spec: TrainSpec, algorithm: AbstractAlgorithm, state: TrainState, due: Bool[Array, ""]
) -> TrainState:
    """The inputs scaled by their spread since the last outer step, half of the way."""
    env = spec.jax_env
    latest = state.replay.latest(min(spec.timesteps_per_chunk, state.replay.capacity))
    inputs = jax.vmap(
        lambda x, memory: algorithm.network_input(env.observe(x), memory, state.outer)
    )(latest.state, latest.memory)
    return rescaled(state, input_spread(inputs), due)


def rescaled(state: State, measured: Float[Array, " e"], due: Bool[Array, ""]) -> State:
    """The inputs of the networks scaled by a spread that was measured anew, half of the way."""

    def spreads(state: State) -> list[Any]:
        parts = (state.learner.networks, state.learner.targets)
        networks = [n for part in parts for n in (part.critic, part.quantiles) if n is not None]
        return [member.scale.input_spread for network in networks for member in members(network)]

    old = spreads(state)[0]
    new = jnp.where(due & (measured > 1e-6), jnp.sqrt(old * measured), old)
    return eqx.tree_at(spreads, state, [new for _ in spreads(state)])


def policy_episodes(
    spec: TrainSpec,
    learner: QuantileLearner,
    networks: Any,
    outer: OuterVariable,
    episodes: int,
    key: Key[Array, ""],
) -> Rollout:
    """Episodes of the greedy policy."""
    env = spec.jax_env

    def act(states: Any, memory: Memory, time: Int[Array, ""]) -> Array:
        del time
        return jax.vmap(
            lambda x, memory: learner.act(
                networks, env.observe(x), memory, env.action_mask(x), outer
            )
        )(states, memory)

    horizon = measuring_horizon(env, spec.settings.gamma)
    return play(env, act, gamma=spec.settings.gamma, horizon=horizon, episodes=episodes, key=key)


# --- what the networks expect at the start ------------------------------------------------------


def start_states(spec: TrainSpec, key: Key[Array, ""]) -> Observed:
    """Some start states of a JAX environment."""
    env = spec.jax_env
    states = jax.vmap(env.initial_state)(start_keys(key))
    return Observed(jax.vmap(env.observe)(states), jax.vmap(env.action_mask)(states))


def start_keys(key: Key[Array, ""]) -> Key[Array, " m"]:
    """A key for each start state."""
    return jax.random.split(stream(key, "start states"), START_STATES)


def start_value(
    learner: QuantileLearner, networks: Any, starts: Observed
) -> Callable[[OuterVariable], Float[Array, ""]]:
    """What the networks expect at the start, on average over start states, of an outer variable."""

    def value(outer: OuterVariable) -> Float[Array, ""]:
        def of_one(observation: Array, mask: Array) -> Array:
            return masked(
                learner.scores(networks, observation, initial_memory(), outer), mask
            ).max()

        score = jax.vmap(of_one)(*starts).mean()
        return learner.algorithm.predicted_value(score, outer)

    return value


def learned_outer(
    learner: QuantileLearner,
    networks: Any,
    outer: OuterVariable,
    has_outer: Bool[Array, ""],
    starts: Observed,
    rate: float,
) -> OuterVariable:
    """The next outer variable from the learned return at the start."""
    quantiles = jax.vmap(
        lambda observation: learner.return_quantiles(networks, observation, initial_memory(), outer)
    )(starts.observation)
    start = start_distribution(learner.algorithm.objective, quantiles, starts.mask)
    expected = start_value(learner, networks, starts)
    rate_now = jnp.where(has_outer, rate, 1.0)
    return learner.algorithm.learned_outer_step(outer, start, expected, rate_now)
