"""Calls of NumPy code from inside of compiled programs."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from downside.envs.faults import through_compiled_code

try:
    # Hands over the memory of the program itself: a tenth of the time of jax.pure_callback, which
    # makes JAX arrays of its arguments and, with one thread, may wait for itself in doing so.
    from jax.experimental.buffer_callback import buffer_callback
except ImportError:  # pragma: no cover
    buffer_callback = None


def call(
    function: Callable[..., list[np.ndarray]],
    results: Sequence[jax.ShapeDtypeStruct],
    *arrays: Any,
) -> list[jax.Array]:
    """What `function` gives for `arrays`, also inside of a compiled program.

    `results` are the shapes for one copy; under `jax.vmap`, `function` gets arrays with further
    leading axes, some of length 1, and gives what they are together.
    """
    arrays = tuple(jax.lax.stop_gradient(array) for array in arrays)
    if buffer_callback is not None and jax.default_backend() == "cpu":
        fill = functools.partial(_fill, function)
        return buffer_callback(fill, list(results), vmap_method="expand_dims")(*arrays)
    give = functools.partial(_give, function, tuple(result.dtype for result in results))
    return jax.pure_callback(give, list(results), *arrays, vmap_method="expand_dims")


def _fill(function: Callable, context: Any, outputs: list[Any], *arrays: Any) -> None:
    del context
    for output, value in zip(outputs, _guarded(function, arrays), strict=True):
        np.asarray(output)[...] = value


def _give(function: Callable, dtypes: tuple, *arrays: Any) -> list[np.ndarray]:
    values = _guarded(function, arrays)
    return [np.asarray(value, dtype) for value, dtype in zip(values, dtypes, strict=True)]


def _guarded(function: Callable, arrays: Sequence[Any]) -> list[np.ndarray]:
    try:
        return function(*map(np.asarray, arrays))
    except Exception as error:
        raise through_compiled_code(error) from error
