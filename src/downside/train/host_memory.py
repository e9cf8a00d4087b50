"""What a hosted run remembers, in the host's memory: arrays that are written in place."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int


class Samples(NamedTuple):
    """Transitions as they were lived through: one, or many along leading axes."""

    observation: Float[np.ndarray, "*n d"]
    accumulated: Float[np.ndarray, "*n"]
    """s before the reward."""
    discount_so_far: Float[np.ndarray, "*n"]
    """c before the reward."""
    action: Int[np.ndarray, "*n"]
    reward: Float[np.ndarray, "*n"]
    after: Float[np.ndarray, "*n d"]
    after_mask: Bool[np.ndarray, "*n A"]
    terminated: Bool[np.ndarray, "*n"]
    discount: Float[np.ndarray, "*n"]
    """What a reward counts that comes next: γ, or its power where several steps are one."""


class HostReplay(eqx.Module):
    """The last so many transitions, in the host's memory; written in place."""

    storage: Samples
    successor: Int[np.ndarray, " n"]
    """Where the next transition of the same episode is; -1 if there is none (yet)."""
    added: Int[np.ndarray, ""]

    @classmethod
    def empty(cls, size: int, actions: int, capacity: int) -> "HostReplay":
        """For observations of this size."""
        storage = Samples(
            np.zeros((capacity, size), np.float32),
            np.zeros(capacity, np.float32),
            np.zeros(capacity, np.float32),
            np.zeros(capacity, np.int32),
            np.zeros(capacity, np.float32),
            np.zeros((capacity, size), np.float32),
            np.zeros((capacity, actions), bool),
            np.zeros(capacity, bool),
            np.zeros(capacity, np.float32),
        )
        return cls(storage, np.full(capacity, -1), np.zeros((), np.int64))

    @property
    def capacity(self) -> int:
        """How many it can hold."""
        return len(self.storage.action)

    def add(
        self, new: Samples, before: Int[np.ndarray, " n"] | None = None
    ) -> Int[np.ndarray, " n"]:
        """Overwrites the oldest transitions with a batch of new ones, and says where they are.

        `before` is where the transitions are that they follow; -1 at the start of an episode.
        """
        count, first = len(new.action), int(self.added) % self.capacity
        place = (first + np.arange(count)) % self.capacity
        # A slice is written several times as fast as rows by their numbers.
        rows = slice(first, first + count) if first + count <= self.capacity else place
        for old, fresh in zip(self.storage, new, strict=True):
            old[rows] = fresh
        self.successor[rows] = -1
        if before is not None:
            follows = before >= 0
            if self.capacity < 2 * len(place):  # those before may just have been overwritten
                follows &= ~np.isin(before, place)
            self.successor[before[follows]] = place[follows]
        self.added[...] += count
        return place

    def sample(self, draws: np.random.Generator, shape: tuple[int, ...], steps: int = 1) -> Samples:
        """So many transitions, each as likely as any other.

        With several `steps`, each together with those that followed it in its episode: the reward
        is what they earned, the rest is as after the last of them.
        """
        index = draws.integers(0, min(int(self.added), self.capacity), shape)
        first = Samples(*(array[index] for array in self.storage))
        if steps == 1:
            return first
        stored, last = self.storage, index
        reward, discount = first.reward, first.discount
        for _ in range(steps - 1):
            following = self.successor[last]
            goes_on = following >= 0
            last = np.where(goes_on, following, last)
            reward = reward + np.where(goes_on, discount * stored.reward[last], 0.0)
            discount = np.where(goes_on, discount * stored.discount[last], discount)
        return first._replace(
            reward=reward.astype(np.float32),
            after=stored.after[last],
            after_mask=stored.after_mask[last],
            terminated=stored.terminated[last],
            discount=discount.astype(np.float32),
        )


class Ring(eqx.Module):
    """The last so many rows; written in place."""

    rows: np.ndarray
    added: Int[np.ndarray, ""]

    @classmethod
    def empty(cls, count: int, shape: tuple[int, ...], kind: Any) -> "Ring":
        """Of rows with this shape."""
        return cls(np.zeros((count, *shape), kind), np.zeros((), np.int64))

    def add(self, new: np.ndarray) -> None:
        """Overwrites the oldest rows."""
        place = (int(self.added) + np.arange(len(new))) % len(self.rows)
        self.rows[place] = new
        self.added[...] += len(new)

    def filled(self) -> np.ndarray:
        """The rows that have been written."""
        return self.rows[: min(int(self.added), len(self.rows))]
