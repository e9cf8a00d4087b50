"""Several noises at once, spread out more evenly than independent ones."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from downside.envs._parameters import check_whole


def check_count(count: int) -> None:
    """Raise unless `count` is a number of noises."""
    check_whole("count", count, "It is the number of noises.", least=1)


def systematic_uniforms(key: Key[Array, ""], count: int) -> Float[Array, " n"]:
    r"""`count` uniform variables in (0, 1), one in each of `count` cells of equal width.

    $u_k = (U + k/n) \bmod 1$ for $k = 0, \dots, n-1$ with one $U \sim \text{Uniform}(0, 1)$ and
    $n$ = `count`: systematic sampling, rotated, so that not only the whole but each $u_k$ alone is
    uniform. An average of $f(u_k)$ is unbiased; if f is of bounded variation, the variance of the
    average falls with $n^{-2}$ instead of $n^{-1}$.
    """
    check_count(count)
    shift = jax.random.uniform(key)
    uniforms = (shift + jnp.arange(count, dtype=shift.dtype) / count) % 1.0
    # The largest number below 1 and its mirror image: rounding may have gone to 0 or 1.
    margin = jnp.finfo(shift.dtype).epsneg
    return jnp.clip(uniforms, margin, 1.0 - margin)


def systematic_normals(key: Key[Array, ""], count: int) -> Float[Array, " n"]:
    r"""`count` standard normal variables, $\Phi^{-1}(u_k)$ of `systematic_uniforms`; all finite."""
    return jax.scipy.special.ndtri(systematic_uniforms(key, count))
