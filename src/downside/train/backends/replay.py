"""Replay buffers: one that is part of a compiled program, one in the host's memory.

Both hold the same transitions; a state is that of a JAX environment, or what a Gymnasium
environment shows of it (`Observed`).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from downside._random import stream
from downside.agents.algorithm import BranchedTransition, OuterVariable
from downside.agents.quantile_learner import QuantileLearner
from downside.agents.settings import SimulatorSettings
from downside.envs import AbstractJaxEnv, Memory
from downside.ops import masked

_RANDOM_WEIGHT = 0.2
"""Loss weight of an action drawn at random, beside one with a high score."""


class Transition(NamedTuple):
    """One step: a single one, or many along leading axes."""

    state: Any
    """Where the action was taken."""
    memory: Memory
    """(s, c) before the reward."""
    action: Int[Any, "*n"]
    reward: Float[Any, "*n"]
    next_state: Any
    terminated: Bool[Any, "*n"]
    discount: Float[Any, "*n"]
    """Discount of the value that follows: γ, or its power for n-step returns."""


class Observed(NamedTuple):
    """What is known of a state that cannot be simulated."""

    observation: Shaped[Any, "*n d"]
    """In float32, or bytes."""
    mask: Bool[Any, "*n A"]
    """Which actions are legal."""


class ReplayBuffer(eqx.Module):
    """The last transitions of a run in a JAX environment; the oldest are overwritten."""

    storage: Transition
    added: Int[Array, ""]

    @classmethod
    def empty(cls, example: Transition, capacity: int) -> "ReplayBuffer":
        """A buffer for transitions like `example`."""
        storage = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example)
        return cls(storage, jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        """How many transitions it can hold."""
        return self.storage.action.shape[0]

    def add(self, new: Transition) -> "ReplayBuffer":
        """With a batch of transitions; the capacity is a multiple of their number."""
        place = self.added % self.capacity
        storage = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, place, 0),
            self.storage,
            new,
        )
        return ReplayBuffer(storage, self.added + new.action.shape[0])

    def latest(self, count: int) -> Transition:
        """The last `count` transitions."""
        index = (self.added - count + jnp.arange(count)) % self.capacity
        return jax.tree.map(lambda leaf: leaf[index], self.storage)

    def sample(self, key: Key[Array, ""], count: int) -> Transition:
        """`count` transitions, uniformly with replacement."""
        index = jax.random.randint(key, (count,), 0, jnp.minimum(self.added, self.capacity))
        return jax.tree.map(lambda leaf: leaf[index], self.storage)


class NumpyReplayBuffer:
    """The last transitions of a run in a Gymnasium environment, in NumPy arrays that are written
    in place. Knows which transition follows which, for n-step returns."""

    def __init__(
        self, observation_size: int, num_actions: int, capacity: int, dtype: Any = np.float32
    ):
        def observed() -> Observed:
            return Observed(
                np.zeros((capacity, observation_size), dtype),
                np.zeros((capacity, num_actions), bool),
            )

        def numbers() -> np.ndarray:
            return np.zeros(capacity, np.float32)

        self.storage = Transition(
            observed()._replace(mask=np.zeros((capacity, 0), bool)),  # nobody asks for it
            Memory(numbers(), numbers()),
            np.zeros(capacity, np.int32),
            numbers(),
            observed(),
            np.zeros(capacity, bool),
            numbers(),
        )
        self.successor = np.full(capacity, -1)
        """Where the next transition of the same episode is; -1 if there is none (yet)."""
        self.added = np.zeros((), np.int64)

    @property
    def capacity(self) -> int:
        """How many transitions it can hold."""
        return len(self.successor)

    def add(
        self, new: Transition, before: Int[np.ndarray, " n"] | None = None
    ) -> Int[np.ndarray, " n"]:
        """Overwrites the oldest transitions with new ones, and returns their places.

        `before` has the places of the transitions that they follow; -1 at the start of an episode.
        """
        count, first = len(new.action), int(self.added) % self.capacity
        place = (first + np.arange(count)) % self.capacity
        # A slice is written several times as fast as rows by their numbers.
        rows = slice(first, first + count) if first + count <= self.capacity else place
        for stored, fresh in zip(_arrays(self.storage), _arrays(new), strict=True):
            stored[rows] = fresh
        self.successor[rows] = -1
        if before is not None:
            follows = before >= 0
            if self.capacity < 2 * len(place):  # those before may just have been overwritten
                follows &= ~np.isin(before, place)
            self.successor[before[follows]] = place[follows]
        self.added[...] += count
        return place

    def filled(self) -> Transition:
        """All transitions, as views."""
        count = min(int(self.added), self.capacity)
        return jax.tree.map(lambda array: array[:count], self.storage)

    def latest(self, count: int) -> Transition:
        """The last transitions, at most so many."""
        index = _latest(int(self.added), self.capacity, count)
        return jax.tree.map(lambda array: array[index], self.storage)

    def sample(
        self, generator: np.random.Generator, shape: tuple[int, ...], n_steps: int = 1
    ) -> Transition:
        """Transitions, uniformly with replacement; with `n_steps`, as n-step returns."""
        index = generator.integers(0, min(int(self.added), self.capacity), shape)
        stored, last = self.storage, index
        reward, discount = stored.reward[index], stored.discount[index]
        for _ in range(n_steps - 1):
            following = self.successor[last]
            goes_on = following >= 0
            last = np.where(goes_on, following, last)
            reward = reward + np.where(goes_on, discount * stored.reward[last], 0.0)
            discount = np.where(goes_on, discount * stored.discount[last], discount)
        return Transition(
            Observed(stored.state.observation[index], stored.state.mask[index]),
            Memory(stored.memory.accumulated[index], stored.memory.discount_so_far[index]),
            stored.action[index],
            reward.astype(np.float32),
            Observed(stored.next_state.observation[last], stored.next_state.mask[last]),
            stored.terminated[last],
            discount.astype(np.float32),
        )


def _arrays(transition: Transition) -> list[np.ndarray]:
    """The arrays of a transition; much faster than `jax.tree.leaves`."""
    state, memory, action, reward, after, terminated, discount = transition
    return [*state, *memory, action, reward, *after, terminated, discount]


def _latest(added: int, capacity: int, count: int) -> Any:
    """Where the last of `added` rows are; if all that are stored are asked for, in no order."""
    stored = min(added, capacity)
    if count >= stored:
        return slice(0, stored)
    return (added - count + np.arange(count)) % capacity


class Ring:
    """The last rows of something, written in place."""

    def __init__(self, count: int, shape: tuple[int, ...], dtype: Any):
        self.rows = np.zeros((count, *shape), dtype)
        self.added = np.zeros((), np.int64)

    def add(self, rows: np.ndarray) -> None:
        """Overwrites the oldest rows."""
        place = (int(self.added) + np.arange(len(rows))) % len(self.rows)
        self.rows[place] = rows
        self.added[...] += len(rows)

    def filled(self) -> np.ndarray:
        """The rows that were written."""
        return self.rows[: min(int(self.added), len(self.rows))]

    def latest(self, count: int) -> np.ndarray:
        """The last rows, at most so many."""
        return self.rows[_latest(int(self.added), len(self.rows), count)]


# --- what learners get --------------------------------------------------------------------------


def as_branch(env: AbstractJaxEnv, transition: Transition) -> BranchedTransition:
    """A transition of the buffer, as one action with one outcome."""
    after = transition.next_state
    return branch_of(
        env.observe(transition.state),
        transition,
        env.observe(after),
        env.action_mask(after),
    )


def branch_of(
    observation: Float[Array, " d"],
    transition: Transition,
    next_observation: Float[Array, " d"],
    next_mask: Bool[Array, " A"],
) -> BranchedTransition:
    """One action with one outcome."""
    after = transition.memory.update(transition.reward, transition.discount)
    return BranchedTransition(
        observation,
        transition.memory,
        transition.action[None],
        jnp.ones(1),
        transition.reward[None, None],
        next_observation[None, None],
        jax.tree.map(lambda leaf: leaf[None, None], after),
        next_mask[None, None],
        transition.terminated[None, None],
        transition.discount[None, None],
    )


def simulate_branches(
    learner: QuantileLearner,
    settings: SimulatorSettings,
    env: AbstractJaxEnv,
    networks: Any,
    outer: OuterVariable,
    state: Any,
    memory: Memory,
    amount: Float[Array, ""],
    key: Key[Array, ""],
) -> BranchedTransition:
    """What the actions with the highest scores and a few random ones lead to from a state, each
    under the same fresh noises, as if `amount` more had been earned before."""
    observation, mask = env.observe(state), env.action_mask(state)
    scores = masked(learner.scores(networks, observation, memory.relabel(amount), outer), mask)
    top_count = min(settings.top_actions, env.num_actions)
    random_count = min(settings.random_actions, env.num_actions - top_count)
    _, best = jax.lax.top_k(scores, top_count)
    legal = jnp.where(mask, 0.0, -jnp.inf)
    others = jax.random.categorical(stream(key, "actions"), legal, shape=(random_count,))
    # Where fewer are legal, the best one again, with weight 0: after an illegal action there may
    # be no legal one, and nothing times an infinite score is NaN.
    actions = jnp.concatenate([jnp.where(mask[best], best, best[0]), others.astype(best.dtype)])
    weights = jnp.concatenate(
        [jnp.where(mask[best], 1.0, 0.0), jnp.full(random_count, _RANDOM_WEIGHT)]
    )
    noises = env.sample_noises(stream(key, "noises"), settings.samples_per_action)
    after = jax.vmap(
        lambda action: jax.vmap(lambda noise: env.step_with_noise(state, action, noise))(noises)
    )(actions)
    discounts = jnp.full_like(after.reward, settings.gamma)
    return BranchedTransition(
        observation,
        memory,
        actions,
        weights,
        after.reward,
        after.observation,
        memory.update(after.reward, discounts),
        jax.vmap(jax.vmap(env.action_mask))(after.state),
        after.terminated,
        discounts,
    ).relabel(amount)
