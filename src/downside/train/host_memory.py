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


class HostReplay(eqx.Module):
    """The last so many transitions, in the host's memory; written in place."""

    storage: Samples
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
        )
        return cls(storage, np.zeros((), np.int64))

    @property
    def capacity(self) -> int:
        """How many it can hold."""
        return len(self.storage.action)

    def add(self, new: Samples) -> None:
        """Overwrites the oldest transitions with a batch of new ones."""
        place = (int(self.added) + np.arange(len(new.action))) % self.capacity
        for old, fresh in zip(self.storage, new, strict=True):
            old[place] = fresh
        self.added[...] += len(new.action)

    def sample(self, draws: np.random.Generator, shape: tuple[int, ...]) -> Samples:
        """So many transitions, each as likely as any other."""
        index = draws.integers(0, min(int(self.added), self.capacity), shape)
        return Samples(*(array[index] for array in self.storage))


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
