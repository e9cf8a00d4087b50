r"""What an agent remembers of its rewards, $(s, c)$, and what of it is shown beside an observation.

The JAX and Gymnasium wrappers, rollouts, replay buffers and predictions all use these few lines,
for one environment and for many, in NumPy and in JAX.
"""

import abc
import math
import numbers
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

LARGEST = float(np.finfo(np.float32).max)
_SMALLEST_DISCOUNT = float(np.finfo(np.float32).tiny)


class Memory(NamedTuple):
    r"""$(s, c)$: the discounted return so far and the discount of the next reward (section 4).

    Each is a number, or an array with an entry for each environment.
    """

    accumulated: Any
    """s."""
    discount_so_far: Any
    """c."""

    @classmethod
    def initial(cls, *shape: int) -> "Memory":
        """Nothing earned, nothing discounted: a pair of NumPy arrays of this shape."""
        return cls(np.zeros(shape), np.ones(shape))

    def update(self, reward: Any, discount: Any) -> "Memory":
        r"""$s' = s + c\,r$, $c' = \gamma c$.

        $\gamma$ is `discount`. An n-step return counts as one `reward` with `discount` $\gamma^n$.
        """
        accumulated = self.accumulated + self.discount_so_far * reward
        return Memory(accumulated, discount * self.discount_so_far)

    def relabel(self, amount: Any) -> "Memory":
        """The memory if `amount` more had been earned; the environment does not see it."""
        return Memory(self.accumulated + amount, self.discount_so_far)

    def reset_where(self, over: Any) -> "Memory":
        """The initial memory where an episode is `over`. For NumPy."""
        return Memory(
            np.where(over, 0.0, self.accumulated), np.where(over, 1.0, self.discount_so_far)
        )


class AbstractMemoryInput(eqx.Module):
    """What of the memory is appended to an observation."""

    @property
    @abc.abstractmethod
    def low(self) -> tuple[float, ...]:
        """The lower bound of each number that is appended."""

    @property
    @abc.abstractmethod
    def high(self) -> tuple[float, ...]:
        """The upper bound of each."""

    @abc.abstractmethod
    def show(self, memory: Memory) -> tuple[Any, ...]:
        """The numbers to append."""

    @abc.abstractmethod
    def recover(self, shown: Any) -> Memory:
        """A memory that is shown as these numbers, which are along the last axis."""

    @property
    def size(self) -> int:
        """How many numbers are appended."""
        return len(self.low)


class NoMemoryInput(AbstractMemoryInput):
    """Nothing is appended."""

    @property
    def low(self) -> tuple[float, ...]:
        """Nothing."""
        return ()

    @property
    def high(self) -> tuple[float, ...]:
        """Nothing."""
        return ()

    def show(self, memory: Memory) -> tuple[Any, ...]:
        """Nothing."""
        del memory
        return ()

    def recover(self, shown: Any) -> Memory:
        """That of an episode that has just begun."""
        shape = jnp.shape(shown)[:-1]
        return Memory(jnp.zeros(shape), jnp.ones(shape))


class ReturnInput(AbstractMemoryInput):
    """(s, c) is appended, as QR-SRM needs it."""

    @property
    def low(self) -> tuple[float, ...]:
        """Returns have no bound, discounts are not negative."""
        return -LARGEST, 0.0

    @property
    def high(self) -> tuple[float, ...]:
        """Returns have no bound, discounts are at most 1."""
        return LARGEST, 1.0

    def show(self, memory: Memory) -> tuple[Any, ...]:
        """(s, c)."""
        return memory.accumulated, memory.discount_so_far

    def recover(self, shown: Any) -> Memory:
        """(s, c)."""
        return Memory(shown[..., 0], shown[..., 1])


def _target(value: Any) -> Any:
    is_number = isinstance(value, numbers.Real) or (
        isinstance(value, np.ndarray) and not value.ndim
    )
    return float(value) if is_number else value


class TargetInput(AbstractMemoryInput):
    r"""b is appended, as QR-CVaR needs it: the return that is still missing to a target.

    $b = (b_0 - s)/c$ with $b_0$ = `target`, which is the same as $b' = (b - r)/\gamma$ from $b_0$.
    """

    target: Any = eqx.field(converter=_target)
    """The target at the start of an episode, or one for each environment. A JAX array may be
    traced: then there is no value to check."""

    def __check_init__(self):
        is_array = isinstance(self.target, jax.Array | np.ndarray)
        if not (is_array or (isinstance(self.target, float) and math.isfinite(self.target))):
            raise ValueError(
                f"`b` must be a finite number, got {self.target!r}. "
                "It is the return below which outcomes count as bad; 0 is a neutral start."
            )

    @property
    def low(self) -> tuple[float, ...]:
        """No bound."""
        return (-LARGEST,)

    @property
    def high(self) -> tuple[float, ...]:
        """No bound."""
        return (LARGEST,)

    def show(self, memory: Memory) -> tuple[Any, ...]:
        """(b,)."""
        library = jnp if isinstance(memory.discount_so_far, jax.Array) else np
        discount = library.maximum(memory.discount_so_far, _SMALLEST_DISCOUNT)
        return ((self.target - memory.accumulated) / discount,)

    def recover(self, shown: Any) -> Memory:
        """The memory of an episode that begins with what is missing now."""
        return Memory(self.target - shown[..., 0], jnp.ones_like(shown[..., 0]))


def append_memory(observation: Any, memory: Memory, inputs: AbstractMemoryInput) -> Any:
    """The observation with what is shown of the memory, along the last axis, in float32."""
    return append(observation, inputs.show(memory))


def append(observation: Any, shown: tuple[Any, ...]) -> Any:
    """The observation with these numbers, along the last axis, in float32."""
    if not shown:
        return observation
    library = jnp if isinstance(observation, jax.Array) else np
    values = library.clip(library.stack(shown, axis=-1), -LARGEST, LARGEST)
    return library.concatenate([observation, values.astype(np.float32)], axis=-1)


def check_memory(gamma: float, reward_scale: float) -> None:
    """Raises unless rewards can be discounted and scaled by these numbers."""
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
