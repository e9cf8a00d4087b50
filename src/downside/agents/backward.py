r"""Unordered discrete actions under a utility that does not move: backward induction.

With u held, the expected utility of an action has neither reward nor discount: it is the mean over
what follows of the highest one there,
$Q_t(x, s, c, a) = \mathbb{E}[\max_{a'} Q_{t+1}(x', s + c r, \gamma c, a')]$, and $u(s)$ where the
episode is over. The outputs of the actor learn Q at all times of a batch of episodes at once. Where
each step has a network of its own, what is wrong at the end of the episodes is right first, and
nothing goes round in circles: no slow copy for targets is needed.

Every state is branched into all actions under common noise, and the policy goes on for a few more
steps before Q is asked: errors of the networks are met once in so many steps. Differs from
simulating each branch to its end (`branching.py`), which is unbiased but noisy in long episodes.

Errors of the advantages count more than those that all actions share, and all errors are in units
of the scale of utilities where the dial stands: those of bold measures would drown the others.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.actor import Actor
from downside.agents.branching import Episodes, advantages, best_choice, main_episodes
from downside.agents.choice_dial import ChoiceDial, ChoicePosition, ChoiceVariable
from downside.envs import Memory
from downside.envs.rollout import mirrored_noises, unroll_segment

if TYPE_CHECKING:
    from downside.agents.pgsrm import PathwiseLearner

_STEPS = 4
"""Simulated steps of a branch before the networks are asked."""
_NOISES = 2
"""Noises of a branch."""
_ADVANTAGE_WEIGHT = 50.0
"""How much more errors of the advantages count than those that all actions share."""
_RELABELLED = 0.5
"""Share of the states that get a position of their own: the environment does not see it."""


def backward_loss(
    learner: "PathwiseLearner", actor: Actor, key: Key[Array, ""], outer: ChoiceVariable
) -> tuple[Float[Array, ""], Episodes]:
    """The squared error of the learned utilities in a batch of states; with the episodes that they
    are from."""
    frozen = jax.lax.stop_gradient(actor)
    horizon, algorithm = learner.horizon, learner.algorithm
    assert isinstance(algorithm, ChoiceDial)
    count = max(2, learner.settings.batch_size // horizon)
    played = algorithm.positions(key, count, outer)
    episodes, states, memory, running = main_episodes(
        learner, frozen, key, played, count, explore=True
    )
    positions = _relabelled(algorithm, key, played, (horizon, count), outer)
    flat = lambda tree: jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)  # noqa: E731
    targets = branch_values(
        learner, frozen, flat(states), flat(memory), flat(positions), running.ravel(), key
    ).reshape(horizon, count, -1)
    values = jax.vmap(lambda *row: utilities_at(learner, actor, *row))(
        states, memory, positions, jnp.arange(horizon)
    )
    masks = jax.vmap(jax.vmap(learner.problem.action_mask))(states)
    error = values - jax.lax.stop_gradient(targets)
    error = jnp.where(masks, error / positions.scale[..., None], 0.0)
    legal = jnp.maximum(masks.sum(axis=-1), 1)
    shared = error.sum(axis=-1) / legal
    own = (jax.vmap(advantages)(error, masks) ** 2).sum(axis=-1) / legal
    squared = shared**2 + _ADVANTAGE_WEIGHT * own
    return (running * squared).sum() / jnp.maximum(running.sum(), 1), episodes


def utilities_at(
    learner: "PathwiseLearner",
    actor: Actor,
    states: Any,
    memory: Memory,
    positions: ChoicePosition,
    time: Int[Array, ""],
) -> Float[Array, "n A"]:
    """The learned expected utility of every action, in states of one time."""
    algorithm = learner.algorithm
    assert isinstance(algorithm, ChoiceDial)
    step = jnp.zeros((), jnp.int32) if actor.count == 1 else time  # one network: one product

    def of_row(state: Any, memory: Memory, position: ChoicePosition) -> Float[Array, " A"]:
        observation = learner.env.observe(state)
        outputs = actor.at_step(algorithm.network_input(observation, memory, position), step)
        return algorithm.expected_utilities(outputs, memory, position)

    return jax.vmap(of_row)(states, memory, positions)


def branch_values(
    learner: "PathwiseLearner",
    actor: Actor,
    states: Any,
    memory: Memory,
    positions: ChoicePosition,
    running: Bool[Array, " n"],
    key: Key[Array, ""],
) -> Float[Array, "n A"]:
    """What each action is worth by a few simulated steps and the networks after them.

    The rows are those of all times of a batch of episodes, the first time first.
    """
    env, actions, horizon = learner.env, learner.head.num_actions, learner.horizon
    rows = running.shape[0]
    branches = rows * _NOISES * actions
    repeat = lambda tree: jax.tree.map(  # noqa: E731
        lambda leaf: jnp.repeat(leaf, _NOISES * actions, axis=0), tree
    )
    spread = lambda noise: jax.tree.map(  # noqa: E731
        lambda leaf: jnp.repeat(leaf, actions, axis=0), noise
    )
    first = jnp.tile(jnp.arange(actions), rows * _NOISES)
    positions = repeat(positions)

    def values(states: Any, memory: Memory, later: Int[Array, ""] | int) -> Float[Array, "m A"]:
        rows = jax.tree.map(
            lambda leaf: leaf.reshape(horizon, -1, *leaf.shape[1:]), (states, memory, positions)
        )
        times = jnp.arange(horizon) + later
        each = jax.vmap(lambda *row: utilities_at(learner, actor, *row))(*rows, times)
        return each.reshape(branches, actions)

    def act(now: Any, memory: Memory, later: Int[Array, ""]) -> tuple[Array, None]:
        chosen = jax.lax.cond(
            later == 0, lambda: first, lambda: best_choice(learner, now, values(now, memory, later))
        )
        return chosen, None

    def noise(later: Int[Array, ""]) -> Any:
        keys = jax.random.split(stream(key, "first noise"), rows)
        stratified = jax.vmap(lambda key: env.sample_noises(key, _NOISES))(keys)
        stratified = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), stratified)
        others = mirrored_noises(env, stream(key, "branch", later), rows * _NOISES)
        return spread(jax.tree.map(lambda a, b: jnp.where(later == 0, a, b), stratified, others))

    end = unroll_segment(
        env,
        act,
        repeat(states),
        noise,
        gamma=learner.settings.gamma,
        steps=min(_STEPS, horizon),
        memory=repeat(memory),
        running=repeat(running),
    )
    masks = jax.vmap(learner.problem.action_mask)(end.states)
    best = jnp.where(masks, values(end.states, end.memory, _STEPS), -jnp.inf).max(axis=1)
    # Beyond the last step of an episode that nothing else ends, nothing more counts.
    beyond = jnp.repeat(jnp.arange(horizon), branches // horizon) + _STEPS >= horizon
    goes_on = end.running & ~beyond
    found = jnp.where(goes_on, best, positions.utility(end.memory.accumulated))
    return found.reshape(rows, _NOISES, actions).mean(axis=1)


def _relabelled(
    algorithm: ChoiceDial,
    key: Key[Array, ""],
    played: ChoicePosition,
    shape: tuple[int, int],
    outer: ChoiceVariable,
) -> ChoicePosition:
    """The position of each episode at all times, or one of its own."""
    fresh = algorithm.positions(stream(key, "fresh"), shape[0] * shape[1], outer)
    order = jax.random.permutation(stream(key, "order"), shape[0] * shape[1])
    changed = jax.random.bernoulli(stream(key, "relabelled"), _RELABELLED, shape)
    return jax.tree.map(
        lambda new, old: jnp.where(changed, new[order].reshape(shape), old), fresh, played
    )
