"""Episodes of a policy in an environment that is not ours, without learning."""

import itertools
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from downside.train.host import EnvironmentFaultError, Host

_LONGEST_EPISODE = 100_000
"""Steps after which an episode is taken to never end."""

Choose = Callable[
    [
        Float[np.ndarray, "n d"],
        Float[np.ndarray, " n"],
        Float[np.ndarray, " n"],
        Bool[np.ndarray, "n A"],
    ],
    Int[np.ndarray, " n"],
]
"""(observations, accumulated rewards, discounts so far, masks) -> actions, in all environments."""


class Player:
    """Plays on from where it is, as many episodes as it is asked for."""

    def __init__(self, host: Host, choose: Choose, gamma: float, seed: int):
        self.host, self.choose, self.gamma = host, choose, gamma
        count = host.num_envs
        self._observations, self._masks = host.reset(seed)
        self._accumulated = np.zeros(count)
        self._discount, self._lengths = np.ones(count), np.zeros(count)
        self._ended: list[list[float]] = [[] for _ in range(count)]
        self.steps = 0
        """Environment steps so far."""

    def returns(self, episodes: int) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of the first so many episodes; an error if one does not end."""
        returns = self.returns_within(episodes, math.inf)
        if returns is None:
            raise EnvironmentFaultError(
                f"An episode of {self.host.name} did not end in {_LONGEST_EPISODE:,} steps. Wrap "
                "the environment in `gymnasium.wrappers.TimeLimit`."
            )
        return returns

    def returns_within(self, episodes: int, steps: float) -> Float[np.ndarray, " episodes"] | None:
        """As `returns`; None if that takes more than so many steps from the beginning, or if an
        episode does not end.

        There are as many from each environment: the first to end would mostly be short ones.
        """
        count = self.host.num_envs
        wanted = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
        while any(len(own) < n for own, n in zip(self._ended, wanted, strict=True)):
            if self.steps > steps or self._lengths.max() > _LONGEST_EPISODE:
                return None
            self._step()
        first = [own[:n] for own, n in zip(self._ended, wanted, strict=True)]
        # In turns, so that the first of many episodes come from all environments.
        turns = itertools.zip_longest(*first)
        return np.array([one for turn in turns for one in turn if one is not None])

    def _step(self) -> None:
        actions = self.choose(self._observations, self._accumulated, self._discount, self._masks)
        seen = self.host.step(actions)
        self._accumulated += np.where(seen.lived, self._discount * seen.rewards, 0.0)
        self._discount = np.where(seen.lived, self.gamma * self._discount, self._discount)
        self._lengths += seen.lived
        self.steps += int(seen.lived.sum())
        for i in np.flatnonzero(seen.over):
            self._ended[i].append(float(self._accumulated[i]))
            self._accumulated[i], self._discount[i], self._lengths[i] = 0.0, 1.0, 0
        self._observations, self._masks = seen.observations, seen.masks
