"""Randomness in named streams from one root, so that a new stream never shifts an old one."""

import zlib

import jax
from jaxtyping import Array, Int, Key


def stream(root: Key[Array, ""], name: str, index: int | Int[Array, ""] = 0) -> Key[Array, ""]:
    """A key that depends on the root, on its name and on a number: no other stream shifts it."""
    return jax.random.fold_in(jax.random.fold_in(root, zlib.crc32(name.encode())), index)
