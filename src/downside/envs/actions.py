"""Actions: boxes of continuous ones, bounds with useful derivatives, and the sentences for wrong
ones."""

from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array


def box(low: ArrayLike, high: ArrayLike, size: int) -> gym.spaces.Box:
    """A flat float32 box of `size` dimensions."""
    lows, highs = np.full(size, low, np.float32), np.full(size, high, np.float32)
    return gym.spaces.Box(lows, highs, dtype=np.float32)


def clip(value: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """`value` between `low` and `high`, with derivative 1 at the bounds themselves, where that of
    `jnp.clip` is 1/2."""
    return jnp.where(value < low, low, jnp.where(value > high, high, value))


def check_box(space: gym.spaces.Box, owner: str) -> None:
    """Raise unless `space` is a box that continuous actions of a JAX environment can have."""
    flat = len(space.shape) == 1 and space.shape[0] >= 1 and space.dtype == np.float32
    if not flat or not space.is_bounded() or not (space.low < space.high).all():
        raise ValueError(
            f"`action_space` of {owner} must be a flat float32 box with finite bounds, low below "
            f"high, got {space}. Bound each action, for example by the largest position."
        )


def check_action(space: gym.Space, action: Any) -> Any:
    """`action` as a number, or as a float32 vector; an error if it is not in `space`."""
    values = np.asarray(action)
    if isinstance(space, gym.spaces.Box):
        if values.shape == space.shape and _inside(space, values):
            return values.astype(np.float32)
        raise ValueError(
            f"`action` must be an array of shape {space.shape} with numbers between "
            f"{_list(space.low)} and {_list(space.high)}, got {action!r}. "
            "`action_space.sample()` gives one."
        )
    assert isinstance(space, gym.spaces.Discrete)
    if values.shape or values.dtype.kind not in "iu" or not 0 <= values < space.n:
        raise ValueError(
            f"`action` must be a whole number from 0 to {space.n - 1}, "
            f"got {action!r}. `action_space.sample()` gives one."
        )
    return int(values)


def check_actions(space: gym.Space, actions: Any, count: int) -> np.ndarray:
    """The `actions` of `count` copies as int32 numbers or float32 rows; an error if one of them is
    not in `space`, the space of a single action."""
    values = np.asarray(actions)
    if isinstance(space, gym.spaces.Box):
        if values.shape == (count, *space.shape) and _inside(space, values):
            return values.astype(np.float32)
        raise ValueError(
            f"`actions` must be an array of shape {(count, *space.shape)} with numbers between "
            f"{_list(space.low)} and {_list(space.high)}, got {actions!r}. "
            "`action_space.sample()` gives them."
        )
    assert isinstance(space, gym.spaces.Discrete)
    legal = values.shape == (count,) and values.dtype.kind in "iu"
    if not legal or values.min() < 0 or values.max() >= space.n:
        raise ValueError(
            f"`actions` must be {count} whole numbers from 0 to "
            f"{space.n - 1}, got {actions!r}. `action_space.sample()` gives them."
        )
    return values.astype(np.int32)


def _inside(space: gym.spaces.Box, values: np.ndarray) -> bool:
    if values.dtype.kind not in "iuf":
        return False
    # At the precision of the space: 0.1 is a bit less than its float32.
    numbers = values.astype(np.float32)
    return bool(((numbers >= space.low) & (numbers <= space.high)).all())


def _list(numbers: np.ndarray) -> list[float]:
    return [float(f"{number:.6g}") for number in numbers.ravel()]
