r"""Unordered discrete actions: all of them are tried under common noise.

From a few times of each batch of episodes every action $a$ is simulated to the end, with the policy
going on after it. $U_a$ is the utility $h$ of the whole return. The outputs of the actor learn the
advantages $U_a - \frac1A \sum_{a'} U_{a'}$ by least squares, and the policy takes the action with
the highest output. The noise is the same for all actions, so that their differences are precise.

Differs from a policy gradient, $\sum_a \nabla\pi(a)\, U_a$, which was tried first: a softmax policy
that is sure of a choice in one part of a run hardly leaves it in another.

Half of the episodes explore. They take random actions now and then, and no action that ends the
episode while there is another. Otherwise nothing would be learned of late times before the policy
waits that long.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.actor import Actor
from downside.envs import Memory
from downside.envs.rollout import mirrored_noises, unroll
from downside.ops import greedy

if TYPE_CHECKING:
    from downside.agents.pgsrm import PathwiseLearner

_EXPLORATION = 0.25
"""Share of random actions in the episodes that explore."""
_TIMES = 32
"""At most so many times of an episode are branched in one update."""


class Episodes(eqx.Module):
    """What a batch of simulated episodes shows."""

    returns: Float[Array, " n"]
    input_mean: Float[Array, "T e"]
    """Of what the actor sees at each step, in episodes that are running."""
    input_spread: Float[Array, "T e"]
    saturation: Float[Array, ""]
    """How far the outputs of the actor are beyond what makes a difference, squared."""


def input_statistics(
    inputs: Float[Array, "T n e"], running: Bool[Array, "T n"]
) -> tuple[Float[Array, "T e"], Float[Array, "T e"]]:
    """Mean and standard deviation of the inputs at each step, over episodes that are running."""
    weights = running / jnp.maximum(running.sum(axis=1, keepdims=True), 1)
    mean = (weights[:, :, None] * inputs).sum(axis=1)
    variance = (weights[:, :, None] * (inputs - mean[:, None]) ** 2).sum(axis=1)
    return mean, jnp.sqrt(variance)


def simulate_choices(
    learner: "PathwiseLearner", actor: Actor, key: Key[Array, ""], positions: Any, count: int
) -> Episodes:
    """Episodes of the policy; those of several policies share their noise."""
    blocks = learner.algorithm.policies_measured
    return main_episodes(learner, actor, key, positions, count, explore=False, blocks=blocks)[0]


def branched_loss(
    learner: "PathwiseLearner",
    actor: Actor,
    key: Key[Array, ""],
    neutral: Bool[Array, ""],
    unit: Float[Array, ""],
    outer: Any,
) -> tuple[Float[Array, ""], Episodes]:
    """The squared error of the outputs as advantages, in `unit`s; with the episodes.

    h is that of the returns of the episodes that do not explore; a line where `neutral`.
    """
    frozen = jax.lax.stop_gradient(actor)
    horizon, groups = learner.horizon, min(learner.horizon, _TIMES)
    size = max(2, learner.settings.batch_size // groups)
    positions = learner.algorithm.positions(key, groups * size, outer)
    episodes, states, memory, running = main_episodes(
        learner, frozen, key, positions, groups * size, explore=True
    )
    # One time for each group of episodes, spread over the horizon.
    first = (jnp.arange(groups) + jax.random.uniform(stream(key, "times"))) * horizon / groups
    times = jnp.repeat(jnp.minimum(first.astype(jnp.int32), horizon - 1), size)
    rows = jnp.arange(groups * size)
    states, memory = jax.tree.map(lambda leaf: leaf[times, rows], (states, memory))
    share = running[times, rows] / jnp.maximum(running[times, rows].sum(), 1)

    returns = _branches(
        learner, frozen, states, memory, positions, running[times, rows], times, groups, key
    )
    utilities = learner.algorithm.utilities(returns, episodes.returns[::2], positions)
    utilities = jnp.where(neutral, returns, utilities) / unit
    masks = jax.vmap(learner.problem.action_mask)(states)
    outputs = _outputs(learner, actor, states, memory, positions, times, groups)
    error = advantages(outputs, masks) - advantages(utilities, masks)
    return (share * (error**2).sum(axis=-1)).sum(), episodes


def advantages(values: Float[Array, "n A"], masks: Bool[Array, "n A"]) -> Float[Array, "n A"]:
    """Of legal actions, their values less the mean; 0 elsewhere."""
    legal = jnp.where(masks, values, 0.0)
    mean = legal.sum(axis=1, keepdims=True) / jnp.maximum(masks.sum(axis=1, keepdims=True), 1)
    return jnp.where(masks, values - mean, 0.0)


def main_episodes(
    learner: "PathwiseLearner",
    actor: Actor,
    key: Key[Array, ""],
    positions: Any,
    count: int,
    *,
    explore: bool,
    blocks: int = 1,
) -> tuple[Episodes, Any, Memory, Bool[Array, "T n"]]:
    """Whole episodes, and the states, memories and running episodes at each time; every second one
    explores if `explore`. In `blocks` of equal size that share their noise."""
    env, each = learner.env, max(1, count // blocks)
    explores = jnp.arange(count) % 2 == 1
    starts = jax.vmap(env.initial_state)(jax.random.split(stream(key, "start"), each))
    block = jnp.arange(count) % each
    starts = jax.tree.map(lambda leaf: leaf[block], starts)

    def act(states: Any, memory: Memory, time: Int[Array, ""]) -> tuple[Array, Any]:
        inputs = _inputs(learner, states, memory, positions)
        outputs = jax.vmap(lambda row: actor.at_step(row, time))(inputs)
        actions = best_choice(learner, states, outputs)
        if not explore:
            return actions, (inputs, states, memory)
        waiting = _explore(learner, states, outputs, noise(time), stream(key, "explore", time))
        return jnp.where(explores, waiting, actions), (inputs, states, memory)

    def noise(time: Int[Array, ""]) -> Any:
        noises = mirrored_noises(env, stream(key, "time", time), each)
        return jax.tree.map(lambda leaf: leaf[block], noises)

    final, (inputs, states, memory), running = unroll(
        env,
        act,
        starts,
        noise,
        gamma=learner.settings.gamma,
        horizon=learner.horizon,
    )
    statistics = input_statistics(inputs, running)
    episodes = Episodes(final.accumulated, *statistics, saturation=jnp.zeros(()))
    return episodes, states, memory, running


def _branches(
    learner: "PathwiseLearner",
    actor: Actor,
    states: Any,
    memory: Memory,
    positions: Any,
    running: Bool[Array, " n"],
    times: Int[Array, " n"],
    groups: int,
    key: Key[Array, ""],
) -> Float[Array, "n A"]:
    """The return of the whole episode if each action is taken, under common noise."""
    env, actions = learner.env, learner.head.num_actions
    count = times.shape[0]
    repeat = lambda leaf: jnp.repeat(leaf, actions, axis=0)  # noqa: E731
    first = jnp.tile(jnp.arange(actions), count)
    repeated = jax.tree.map(repeat, positions)

    def act(now: Any, memory: Memory, later: Int[Array, ""]) -> tuple[Array, None]:
        outputs = _outputs(learner, actor, now, memory, repeated, repeat(times) + later, groups)
        return jnp.where(later == 0, first, best_choice(learner, now, outputs)), None

    final, _, _ = unroll(
        env,
        act,
        jax.tree.map(repeat, states),
        lambda later: jax.tree.map(
            repeat, mirrored_noises(env, stream(key, "branch", later), count)
        ),
        gamma=learner.settings.gamma,
        horizon=learner.horizon,
        memory=jax.tree.map(repeat, memory),
        running=repeat(running),
    )
    return final.accumulated.reshape(count, actions)


def _inputs(
    learner: "PathwiseLearner", states: Any, memory: Memory, positions: Any
) -> Float[Array, "n e"]:
    observations = jax.vmap(learner.env.observe)(states)
    return jax.vmap(learner.algorithm.network_input)(observations, memory, positions)


def _outputs(
    learner: "PathwiseLearner",
    actor: Actor,
    states: Any,
    memory: Memory,
    positions: Any,
    times: Int[Array, " n"],
    groups: int,
) -> Float[Array, "n A"]:
    """The outputs of the actor; the rows of each group share their time."""
    inputs = _inputs(learner, states, memory, positions)
    grouped = inputs.reshape(groups, -1, inputs.shape[-1])
    steps = times.reshape(groups, -1)[:, 0]
    outputs = jax.vmap(lambda rows, step: jax.vmap(lambda row: actor.at_step(row, step))(rows))(
        grouped, steps
    )
    return outputs.reshape(inputs.shape[0], -1)


def _explore(
    learner: "PathwiseLearner",
    states: Any,
    outputs: Float[Array, "n A"],
    noise: Any,
    key: Key[Array, ""],
) -> Int[Array, " n"]:
    """Actions of the policy or random ones, that do not end the episode if possible."""
    actions = jnp.arange(learner.head.num_actions)

    def ends(state: Any, noise: Any) -> Bool[Array, " A"]:
        return jax.vmap(lambda action: learner.env.transition(state, action, noise).terminated)(
            actions
        )

    masks = jax.vmap(learner.problem.action_mask)(states)
    waiting = masks & ~jax.vmap(ends)(states, noise)
    masks = jnp.where(waiting.any(axis=1, keepdims=True), waiting, masks)
    is_random = jax.random.bernoulli(stream(key, "random"), _EXPLORATION, masks.shape[:1])
    chance = jax.random.uniform(key, masks.shape)
    return jax.vmap(greedy)(jnp.where(is_random[:, None], chance, outputs), masks)


def best_choice(
    learner: "PathwiseLearner", states: Any, outputs: Float[Array, "n A"]
) -> Int[Array, " n"]:
    """The legal action with the highest output."""
    return jax.vmap(greedy)(outputs, jax.vmap(learner.problem.action_mask)(states))
