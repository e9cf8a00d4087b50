"""Several noises at once, spread out more evenly than independent ones."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from downside.envs._parameters import check_whole


def check_count(count: int) -> None:
    """Raise unless `count` is a number of noises."""
    check_whole("count", count, "It is the number of noises.", least=1)


def mirrored_uniforms(key: Key[Array, ""], count: int) -> Float[Array, " n"]:
    r"""`count` uniform variables in (0, 1) that lie evenly and come in pairs, u and 1 - u.

    With $m$ = ceil(`count` / 2), one in each of the $m$ cells of equal width of (0, 1/2), turned
    over to (1/2, 1) at random, in an order that is rotated at random: not only the whole but each
    of them alone is uniform. Then their mirror images (for an odd count, without the last one).
    What an average over them is wrong by cancels in pairs where f is monotone, as a value mostly is
    in a price; and within a cell, little is left of the rest.
    """
    check_count(count)
    half = (count + 1) // 2
    turn_key, uniform_key = jax.random.split(key)
    uniforms = jax.random.uniform(uniform_key, (half,))
    if half > 1:
        rotation_key, turn_key = jax.random.split(turn_key)
        cells = (jnp.arange(half) + jax.random.randint(rotation_key, (), 0, half)) % half
        uniforms = (cells + uniforms) / (2 * half)
        turned = jax.random.bernoulli(turn_key, 0.5, (half,))
        uniforms = jnp.where(turned, 1.0 - uniforms, uniforms)
    uniforms = jnp.concatenate([uniforms, 1.0 - uniforms])[:count]
    # The largest number below 1 and its mirror image: rounding may have gone to 0 or 1.
    margin = jnp.finfo(uniforms.dtype).epsneg
    return jnp.clip(uniforms, margin, 1.0 - margin)


def mirrored_normals(key: Key[Array, ""], count: int) -> Float[Array, " n"]:
    r"""`count` standard normal variables, $\Phi^{-1}(u_k)$ of `mirrored_uniforms`; all finite."""
    return jax.scipy.special.ndtri(mirrored_uniforms(key, count))
