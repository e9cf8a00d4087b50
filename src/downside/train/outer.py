"""The outer step of a run: measure candidates, keep the best policy, move the goal."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm, Goal, Measured, start_distribution
from downside.agents.learner import Networks, action_scores
from downside.agents.networks import input_spread, members
from downside.ops import masked
from downside.train.program import Kept, Program, Run, measuring_horizon
from downside.train.rollout import greedy_returns

_START_STATES = 32
"""Start states that the learned outer step and the predicted value look at."""


def outer_step(
    program: Program, algorithm: AbstractAlgorithm, run: Run, progress: Float[Array, ""]
) -> tuple[Run, Array, Array, Array]:
    """Measures the candidates, keeps the best policy seen, and moves the goal."""
    settings = program.settings
    networks = run.learner.networks
    start_score = _start_score(program, algorithm, networks, run.key)
    goals = algorithm.candidates(run.goal, run.spread, settings, start_score)
    returns = jax.vmap(
        lambda goal: policy_returns(
            program, algorithm, networks, goal, settings.outer_episodes, stream(run.key, "measure")
        )
    )(goals)
    returns = jnp.sort(returns, axis=-1)
    values = jax.vmap(algorithm.objective.value)(returns)
    measured = Measured(goals, values, returns)
    middle, best = values.shape[0] // 2, jnp.argmax(values)

    better = values[best] > run.kept.value
    candidate = Kept(networks, jax.tree.map(lambda leaf: leaf[best], goals), values[best])
    kept = where(better, candidate, run.kept)

    due = progress >= settings.neutral_fraction
    if settings.outer == "simulated":
        moved = algorithm.outer_step(run.goal, measured, settings.outer_rate, ~run.has_goal)
        predicted = algorithm.predicted_value(start_score(run.goal), run.goal)
    else:
        moved, predicted = learned_goal(
            program, algorithm, networks, run.goal, run.has_goal, run.key
        )
    if settings.normalise and settings.rescale_until > 0:
        run = _rescaled(program, algorithm, run, due & (progress <= settings.rescale_until))
    run = eqx.tree_at(
        lambda one: (one.goal, one.has_goal, one.kept, one.spread),
        run,
        (
            where(due, moved, run.goal),
            run.has_goal | due,
            kept,
            jnp.maximum(returns[middle].std(), 1e-6),
        ),
    )
    return run, values[middle], predicted, returns[middle]


def _rescaled(
    program: Program, algorithm: AbstractAlgorithm, run: Run, due: Bool[Array, ""]
) -> Run:
    """The inputs scaled by their spread since the last outer step, half of the way."""
    env = algorithm.wrap(program.env, run.goal)
    count = min(program.steps_per_chunk * program.timesteps_per_round, run.replay.capacity)
    seen = jax.vmap(env.observe)(run.replay.latest(count).state)
    measured = input_spread(seen)

    def spreads(run: Run) -> list[Any]:
        learner = run.learner
        parts = (learner.networks, learner.targets)
        networks = [n for part in parts for n in (part.critic, part.quantiles) if n is not None]
        return [one.scale.input_spread for network in networks for one in members(network)]

    old = spreads(run)[0]
    new = jnp.where(due & (measured > 1e-6), jnp.sqrt(old * measured), old)
    return eqx.tree_at(spreads, run, [new for _ in spreads(run)])


def policy_returns(
    program: Program,
    algorithm: AbstractAlgorithm,
    networks: Networks,
    goal: Goal,
    episodes: int,
    key: Key[Array, ""],
) -> Float[Array, " n"]:
    """Returns of the greedy policy."""

    def act(observation: Array, mask: Array, key: Key[Array, ""]) -> Array:
        del key
        return jnp.argmax(masked(action_scores(algorithm, networks, observation, goal), mask))

    return greedy_returns(
        algorithm.wrap(program.env, goal),
        act,
        gamma=program.settings.gamma,
        horizon=measuring_horizon(program.env, program.settings.gamma),
        episodes=episodes,
        key=key,
    )


def _start_keys(key: Key[Array, ""]) -> Key[Array, " m"]:
    return jax.random.split(stream(key, "start states"), _START_STATES)


def _start_score(
    program: Program, algorithm: AbstractAlgorithm, networks: Networks, key: Key[Array, ""]
) -> Any:
    """What the networks expect at the start, on average over start states, for a goal."""
    keys = _start_keys(key)

    def score(goal: Goal) -> Float[Array, ""]:
        env = algorithm.wrap(program.env, goal)

        def of_one(key: Key[Array, ""]) -> Array:
            state = env.initial_state(key)
            scores = action_scores(algorithm, networks, env.observe(state), goal)
            return masked(scores, env.action_mask(state)).max()

        return jax.vmap(of_one)(keys).mean()

    return score


def learned_goal(
    program: Program,
    algorithm: AbstractAlgorithm,
    networks: Networks,
    goal: Goal,
    has_goal: Bool[Array, ""],
    key: Key[Array, ""],
) -> tuple[Goal, Float[Array, ""]]:
    """The next goal from the learned return at the start, and what is expected of the present."""
    env = algorithm.wrap(program.env, goal)
    states = jax.vmap(env.initial_state)(_start_keys(key))
    seen = jax.vmap(lambda one: algorithm.view(env.observe(one), goal))(states)
    quantiles = jax.vmap(networks.quantiles)(seen)
    masks = jax.vmap(env.action_mask)(states)
    start = start_distribution(algorithm.objective, quantiles, masks)
    start_score = _start_score(program, algorithm, networks, key)
    rate = jnp.where(has_goal, program.settings.outer_rate, 1.0)
    moved = algorithm.learned_outer_step(goal, start, start_score, rate)
    return moved, algorithm.predicted_value(start_score(goal), goal)


def where(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
    """One pytree or the other."""

    def choose(new: Any, old: Any) -> Any:
        return jnp.where(condition, new, old) if eqx.is_array(old) else old

    return jax.tree.map(choose, new, old)
