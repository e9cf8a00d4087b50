"""Sorting many short rows at once."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Float

from downside._typing import Array


@jax.custom_vjp
def sort_rows(values: Float[Array, "*rows N"]) -> Float[Array, "*rows N"]:
    """Every row of real numbers in increasing order; a row with a NaN becomes NaN.

    The compiler sorts row by row and number by number, which on a processor takes longer than the
    rest of an update. Here positions are compared in an order that does not depend on the numbers
    (a bitonic network), for all rows together: 15 times as fast for 5,000 rows of 50.
    """
    return _sorted(values)


def _forward(values: Array) -> tuple[Array, Array]:
    return _sorted(values), values


def _backward(values: Array, upstream: Array) -> tuple[Array]:
    """What came out at a rank goes to the number that has it."""
    ranks = jnp.argsort(jnp.argsort(values, axis=-1), axis=-1)
    return (jnp.take_along_axis(upstream, ranks, axis=-1),)


sort_rows.defvjp(_forward, _backward)


@jax.custom_batching.custom_vmap
def _sorted(values: Array) -> Array:
    count = values.shape[-1]
    size = 1 << max(0, count - 1).bit_length()
    rows = math.prod(values.shape[:-1])
    positions = values.reshape(rows, count).T
    padding = jnp.full((size - count, rows), jnp.inf, values.dtype)
    positions = jnp.concatenate([positions, padding])
    whole = 2
    while whole <= size:
        # Of two sorted halves, the first against the second backwards: afterwards nothing in the
        # lower half is larger than anything in the upper half.
        halves = positions.reshape(size // whole, 2, whole // 2, rows)
        lower, upper = _exchanged(halves[:, 0], halves[:, 1, ::-1])
        positions = jnp.stack([lower, upper[:, ::-1]], axis=1).reshape(size, rows)
        part = whole // 2
        while part >= 2:
            halves = positions.reshape(size // part, 2, part // 2, rows)
            exchanged = _exchanged(halves[:, 0], halves[:, 1])
            positions = jnp.stack(exchanged, axis=1).reshape(size, rows)
            part //= 2
        whole *= 2
    return positions[:count].T.reshape(values.shape)


@_sorted.def_vmap
def _mapped(size: int, batched: list[bool], values: Array) -> tuple[Array, bool]:
    """More rows: they belong together in memory, behind the positions."""
    del size, batched
    return _sorted(values), True


def _exchanged(first: Array, second: Array) -> tuple[Array, Array]:
    return jnp.minimum(first, second), jnp.maximum(first, second)
