"""The outputs of a linear head for one action of each observation of a batch, and no others.

A head has the quantiles of all actions, but a transition teaches about one. To compute them all and
pick is one large product; to fetch the weights of each transition's action is as slow, since they
are many numbers. Between the two: transitions of the same action stand together in blocks of a few
rows, and the weights are fetched once for each block.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

_ROWS = 8
"""Rows of a block: fewer fetch the weights too often, more are too often empty (measured)."""
MANY_ACTIONS = 8
"""Actions from which on this is faster than to compute all outputs (measured)."""


@jax.custom_vjp
def chosen_outputs(
    weight: Float[Array, "f A N"],
    bias: Float[Array, "A N"],
    features: Float[Array, "B f"],
    actions: Int[Array, " B"],
) -> Float[Array, "B N"]:
    """Row i is `features[i] @ weight[:, actions[i]] + bias[actions[i]]`."""
    return _forward(weight, bias, features, actions)[0]


def _blocks(
    actions: Int[Array, " B"], count: int
) -> tuple[Int[Array, " B"], Int[Array, " slots"], Int[Array, " blocks"]]:
    """(the slot of each row, the row in each slot, the action of each block).

    There are always blocks enough, whatever the actions: each action leaves at most one unfilled.
    In an empty slot is row B, one behind the last.
    """
    rows = actions.shape[0]
    most = rows // _ROWS + min(count, rows)
    chosen = jax.nn.one_hot(actions, count, dtype=jnp.int32)
    rank = ((jnp.cumsum(chosen, axis=0) - 1) * chosen).sum(axis=1)  # among those of its action
    ends = jnp.cumsum(-(-chosen.sum(axis=0) // _ROWS))
    starts = jnp.concatenate([jnp.zeros(1, ends.dtype), ends[:-1]])
    slot = starts[actions] * _ROWS + rank
    row = jnp.full(most * _ROWS, rows).at[slot].set(jnp.arange(rows))
    action = (jnp.arange(most)[:, None] >= ends).sum(axis=1)
    return slot, row, jnp.minimum(action, count - 1)


def _forward(
    weight: Array, bias: Array, features: Array, actions: Array
) -> tuple[Array, tuple[Array, ...]]:
    slot, row, action = _blocks(actions, weight.shape[1])
    inputs = _in_slots(features, row)
    weights = jnp.moveaxis(weight, 1, 0)[action]
    outputs = jnp.einsum("mkf,mfn->mkn", inputs, weights)
    outputs = outputs.reshape(-1, weight.shape[2])[slot] + bias[actions]
    return outputs, (inputs, weights, bias, actions, slot, row, action)


def _backward(
    kept: tuple[Array, ...], upstream: Float[Array, "B N"]
) -> tuple[Array, Array, Array, np.ndarray]:
    inputs, weights, bias, actions, slot, row, action = kept
    errors = _in_slots(upstream, row)
    features = jnp.einsum("mkn,mfn->mkf", errors, weights).reshape(-1, inputs.shape[2])[slot]
    by_block = jnp.einsum("mkf,mkn->mfn", inputs, errors)
    # Sums by products: those by an index are slow scatters.
    weight = jnp.einsum("ma,mfn->fan", _hot(action, bias, upstream), by_block)
    return weight, _hot(actions, bias, upstream).T @ upstream, features, _no_gradient(actions)


def _in_slots(rows: Float[Array, "B d"], row: Int[Array, " slots"]) -> Float[Array, "m k d"]:
    """The rows in their slots, and zeros in the empty ones."""
    padded = jnp.concatenate([rows, jnp.zeros((1, rows.shape[1]), rows.dtype)])
    return padded[row].reshape(-1, _ROWS, rows.shape[1])


def _hot(actions: Int[Array, " n"], bias: Array, like: Array) -> Float[Array, "n A"]:
    return jax.nn.one_hot(actions, bias.shape[0], dtype=like.dtype)


def _no_gradient(of: Array) -> np.ndarray:
    """What JAX wants to hear of whole numbers."""
    return np.zeros(of.shape, jax.dtypes.float0)


chosen_outputs.defvjp(_forward, _backward)
