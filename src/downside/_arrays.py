"""One implementation for NumPy and JAX: NumPy in gives NumPy out, JAX in gives JAX out."""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from downside._typing import Array, ArrayLike


def namespace(*arrays: Any) -> ModuleType:
    """`jax.numpy` if any argument is a JAX array or tracer, else `numpy`."""
    return jnp if any(isinstance(array, jax.Array) for array in arrays) else np


def is_concrete(array: Any) -> bool:
    """Whether the values can be looked at, i.e. `array` is not being traced by JAX."""
    return not isinstance(array, Tracer)


def as_floats(array: ArrayLike, name: str, xp: ModuleType = np) -> Array:
    """`array` as floating point numbers of the namespace `xp`, in NumPy always of 64 bits."""
    try:
        out = xp.asarray(array)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{name}` must be an array of real numbers, got {array!r}.") from error
    if xp.issubdtype(out.dtype, xp.floating):
        return out.astype(float) if xp is np else out
    if xp.issubdtype(out.dtype, xp.integer) or xp.issubdtype(out.dtype, xp.bool_):
        return out.astype(float)
    raise TypeError(f"`{name}` must be an array of real numbers, got dtype {out.dtype}.")


def check_finite(array: Array, name: str) -> None:
    """Raises if a concrete array has NaN or infinite entries; traced arrays pass through."""
    if is_concrete(array) and not np.all(np.isfinite(array)):
        bad = np.asarray(array)[~np.isfinite(np.asarray(array))]
        raise ValueError(
            f"`{name}` must be finite, got {bad.size} value(s) that are not, the first {bad[0]}. "
            "Remove them, or find out which episode produced them."
        )


def check_values(values: Array, name: str) -> None:
    """Raises unless `values` has a non-empty last axis of finite numbers."""
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(
            f"`{name}` must hold at least one value along its last axis, got shape {values.shape}."
        )
    check_finite(values, name)


def check_probabilities(weights: Array, name: str) -> None:
    """Raises unless concrete `weights` are non-negative and sum to 1 along the last axis."""
    check_values(weights, name)
    if not is_concrete(weights):
        return
    concrete = np.asarray(weights, dtype=float)
    if np.any(concrete < 0):
        raise ValueError(f"`{name}` must be non-negative, got {concrete[concrete < 0][0]}.")
    totals = concrete.sum(axis=-1)
    tolerance = 1e-6 if np.asarray(weights).dtype.itemsize >= 8 else 1e-4
    if np.any(np.abs(totals - 1) > tolerance):
        worst = np.ravel(totals)[np.argmax(np.abs(np.ravel(totals) - 1))]
        raise ValueError(
            f"`{name}` must sum to 1, got a sum of {worst:.8g}. "
            f"Divide by the sum if they are counts: {name} / {name}.sum()."
        )


def real(value: Any, name: str) -> float:
    """`value` as a Python float, or an error that names the argument."""
    if isinstance(value, bool | str | bytes) or not is_concrete(value):
        raise TypeError(f"`{name}` must be a real number, got {value!r}.")
    if isinstance(value, np.floating):
        return float(str(value))  # the 0.2 of 32 bits means 0.2, not 0.20000000298
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{name}` must be a real number, got {value!r}.") from error


def check_levels(levels: Array, name: str) -> None:
    """Raises unless concrete `levels` are shares between 0 and 1."""
    if is_concrete(levels) and not np.all((np.asarray(levels) >= 0) & (np.asarray(levels) <= 1)):
        raise ValueError(
            f"`{name}` must be in [0, 1], got values from {np.min(levels)} to {np.max(levels)}. "
            "It is a rank: 0 is the worst outcome, 1 the best."
        )


def rounding_error(dtype: Any) -> float:
    """How far two numbers of size one may differ and still be meant to be the same."""
    return 64.0 * float(np.finfo(dtype).eps)
