"""What an agent remembers of the rewards so far: the equations behind all augmentations.

A memory is a tuple of numbers that are updated with each reward and appended to the observation.
The same few lines serve NumPy (one environment or a vector of them) and JAX.
"""

import dataclasses
import math
import numbers
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class ReturnMemory:
    r"""(s, c): the discounted return so far and the discount of the next reward.

    $s' = s + c\, k r$, $c' = \gamma c$ from $(0, 1)$, with $\gamma$ = `gamma` and
    $k$ = `reward_scale` (section 4 of the paper, where $k = 1$).
    """

    gamma: float
    reward_scale: float = 1.0

    low = (-LARGEST, 0.0)
    high = (LARGEST, 1.0)

    def __post_init__(self):
        _check(self.gamma, self.reward_scale)

    @property
    def initial(self) -> tuple[float, float]:
        """Nothing earned, nothing discounted."""
        return 0.0, 1.0

    def update(self, memory: tuple[Any, ...], reward: Any) -> tuple[Any, Any]:
        """The memory after a reward."""
        accumulated, discount_so_far = memory
        accumulated = accumulated + discount_so_far * (self.reward_scale * reward)
        return accumulated, self.gamma * discount_so_far


@dataclasses.dataclass(frozen=True)
class TargetMemory:
    r"""b: the return that is still missing to the target, in the units of the next reward.

    $b' = (b - k r) / \gamma$ from `target`, with $\gamma$ = `gamma` and $k$ = `reward_scale`
    (the augmentation of QR-CVaR in the paper, where $k = 1$).
    """

    gamma: float
    target: Any
    reward_scale: float = 1.0

    low = (-LARGEST,)
    high = (LARGEST,)

    def __post_init__(self):
        _check(self.gamma, self.reward_scale)
        # An array may be traced: then there is no value to look at.
        is_number = isinstance(self.target, numbers.Real)
        if not (math.isfinite(self.target) if is_number else isinstance(self.target, jax.Array)):
            raise ValueError(
                f"`b` must be a finite number, got {self.target!r}. "
                "It is the return below which outcomes count as bad; 0 is a neutral start."
            )

    @property
    def initial(self) -> tuple[Any]:
        """The target itself."""
        return (self.target,)

    def update(self, memory: tuple[Any, ...], reward: Any) -> tuple[Any]:
        """The memory after a reward."""
        (target,) = memory
        return ((target - self.reward_scale * reward) / self.gamma,)


Memory = ReturnMemory | TargetMemory


@runtime_checkable
class Appended(Protocol):
    """What is appended to an observation, as its space sees it."""

    @property
    def low(self) -> tuple[float, ...]:
        """The least that each number can be."""
        ...

    @property
    def high(self) -> tuple[float, ...]:
        """The most."""
        ...


def _check(gamma: float, reward_scale: float) -> None:
    if not (isinstance(gamma, numbers.Real) and 0.0 < gamma <= 1.0):
        raise ValueError(
            f"`gamma` must be in (0, 1], got {gamma!r}. Pass 1.0 for undiscounted returns."
        )
    scale = reward_scale
    if not (isinstance(scale, numbers.Real) and 0.0 < scale < math.inf):
        raise ValueError(
            f"`reward_scale` must be a finite number in (0, inf), got {scale!r}. "
            "Pass 0.01 where returns are around 100."
        )
