"""Array types shared by the whole package."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    Array = jax.Array  # the two have no common type; static checkers see the stricter one
else:
    Array = jax.Array | np.ndarray | np.generic
"""NumPy (arrays or scalars, computed on the host in 64 bits) or JAX (traceable)."""

ArrayLike = jax.Array | np.ndarray | np.generic | float | int | Sequence[Any]
"""What becomes an array of real numbers: arrays, numbers, lists of them."""
