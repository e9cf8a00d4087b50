"""The return distribution of a policy with an actor, from episodes that it plays in the end.

In some of these episodes one action is drawn at random, so that the network also knows what follows
actions that the policy does not take. What came before such an action is left out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.agents.actor_critic_learner import ActorCriticLearner
from downside.agents.algorithm import OuterVariable
from downside.agents.networks import Network
from downside.agents.policy_head import PolicyHead
from downside.envs import Memory
from downside.envs.gymnasium.rollout import VectorRollout

_MOST_STEPS = 200_000
"""Steps that are played at most."""
_LONGER = 20
"""How many times more steps there may be until episodes have ended."""
_DEVIATING = 0.5
"""Share of the episodes with an action at random, about."""
_NEARBY = 0.3
"""Standard deviation of half of these actions from that of the policy, in half-widths; the others
are anywhere in the box."""
_LEAST_DISCOUNT = 1e-6
"""Where rewards count less than this, nothing is learned."""
_ROWS = 32_768
"""Transitions that are learned from: always as many, so that little is compiled."""
_UPDATES, _BATCH = 2_000, 256


class PlayedReturns(NamedTuple):
    """Steps of the final policy, and what was earned after each."""

    observations: Float[np.ndarray, "n d"]
    memory: Memory
    raw: Float[np.ndarray, "n r"]
    returns: Float[np.ndarray, " n"]
    """The discounted return from there on."""
    positions: Any
    """Of the episodes that the steps belong to, if they have positions."""
    steps: int
    """Environment steps that it took."""


def play(
    rollout: VectorRollout,
    act: Callable[[VectorRollout], tuple[Any, Any]],
    head: PolicyHead,
    generator: np.random.Generator,
    steps: int,
    length: float,
) -> PlayedReturns:
    """Plays about so many steps, in episodes of about this `length`."""
    count = rollout.env.num_envs
    rounds = max(1, min(steps, _MOST_STEPS) // count)
    rows: list[tuple[Any, ...]] = []
    number = np.zeros(count, int)  # of the episode in each environment
    deviated = np.zeros(count, bool)
    first = np.zeros((rounds * _LONGER + 1, count), int)
    """The first step of each episode that counts."""
    totals = np.full(first.shape, np.nan)
    columns = np.arange(count)
    for time in range(rounds * _LONGER):
        if time >= rounds and np.isfinite(totals).any():
            break
        actions, positions = act(rollout)
        raw = _raw(head, actions)
        deviate = ~deviated & (generator.random(count) < _DEVIATING / max(length, 1.0))
        raw = np.where(deviate[:, None], _random(head, raw, rollout.masks, generator), raw)
        first[number[deviate], columns[deviate]] = time
        deviated |= deviate
        before = rollout.observations, rollout.memory
        step, ended = rollout.step(np.asarray(head.action_of_rows(raw)))
        rows.append((*before, raw, number.copy(), step.is_step, positions))
        over = np.flatnonzero(step.over)
        totals[number[over], over] = ended[:, 0]
        number[over] += 1
        deviated[over] = False
    observations, memories, raws, numbers, are_steps, placed = zip(*rows, strict=True)
    episode = np.stack(numbers)
    total, begin = totals[episode, columns], first[episode, columns]
    accumulated = np.stack([memory.accumulated for memory in memories])
    discount = np.stack([memory.discount_so_far for memory in memories])
    times = np.arange(len(rows))[:, None]
    known = np.isfinite(total) & (times >= begin) & np.stack(are_steps)
    known &= discount > _LEAST_DISCOUNT
    memory = Memory(accumulated[known], discount[known])
    returns = (total[known] - memory.accumulated) / memory.discount_so_far
    positions = jax.tree.map(lambda *parts: np.stack(parts)[known], *placed)
    shown = (np.stack(observations)[known], memory, np.stack(raws)[known], returns, positions)
    return PlayedReturns(*shown, steps=len(rows) * count)


def fit(
    learner: ActorCriticLearner,
    returns: Network,
    outer: OuterVariable,
    played: PlayedReturns,
    generator: np.random.Generator,
    key: Key[Array, ""],
) -> Network:
    """The network, trained on what was played."""
    index = generator.choice(len(played.returns), _ROWS, replace=len(played.returns) < _ROWS)
    parts = (played.observations, played.memory, played.raw, played.positions, played.returns)
    chosen = jax.tree.map(lambda rows: jnp.asarray(rows[index], jnp.float32), parts)
    return _fit(learner, returns, outer, chosen, key)


@eqx.filter_jit
def _fit(
    learner: ActorCriticLearner,
    returns: Network,
    outer: OuterVariable,
    chosen: tuple[Any, ...],
    key: Key[Array, ""],
) -> Network:
    algorithm = learner.algorithm

    def see(observation: Array, memory: Memory, raw: Array, position: Any) -> Array:
        placed = algorithm.placed(outer, position)
        inputs = algorithm.network_input(observation, memory, placed)
        return jnp.concatenate([inputs, learner.head.encode(raw)])

    *seen, targets = chosen
    inputs = jax.vmap(see)(*seen)
    orders: Int[Array, "u b"] = jax.random.randint(
        stream(key, "fit"), (_UPDATES, _BATCH), 0, targets.shape[0]
    )
    network, _ = learner.fit_returns(returns, inputs, targets, orders)
    return network


def _raw(head: PolicyHead, actions: Any) -> Float[np.ndarray, "n r"]:
    """Raw actions of a batch of actions as the environments take them."""
    flat = np.asarray(actions).reshape(len(actions), -1)
    if head.choices:
        return (flat - np.ravel(head.start)).astype(np.float32)
    return (flat - head.middle) / head.half_width


def _random(
    head: PolicyHead, raw: np.ndarray, masks: np.ndarray, generator: np.random.Generator
) -> Float[np.ndarray, "n r"]:
    """Legal raw actions at random; of a box, half of them near those of the policy."""
    if head.choices:
        return head.anywhere(generator, masks)
    near = raw + _NEARBY * generator.standard_normal(raw.shape)
    anywhere = head.anywhere(generator, masks)
    chosen = np.where(generator.random((len(raw), 1)) < 0.5, near, anywhere)
    return np.clip(chosen, -1.0, 1.0).astype(np.float32)
