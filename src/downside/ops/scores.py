"""Scores of all actions of a state, and the choice among them.

The best action has the largest score. Masks apply to scores, never to quantiles: a quantile of
minus infinity would turn into NaN in the next sum.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from downside._typing import Array
from downside.ops.sorting import sort_rows
from downside.risk import Utility


def mean_score(quantiles: Float[Array, "A N"]) -> Float[Array, " A"]:
    r"""The mean return of every action, $\frac1N \sum_j \theta_j$ (`quantiles`).

    The `spectral_score` of the mean, without the sorting that it does not need.
    """
    return quantiles.mean(axis=-1)


def spectral_score(
    quantiles: Float[Array, "A N"], quantile_weights: Float[Array, " N"] | Float[np.ndarray, " N"]
) -> Float[Array, " A"]:
    r"""The spectral risk measure of every action's return, $\sum_j w_j\, \theta_{(j)}$.

    The `quantiles` $\theta$ are sorted, since those of a network may cross; the weights $w$ are
    `risk.quantile_weights(N)`.
    """
    weights = jnp.asarray(quantile_weights, dtype=quantiles.dtype)
    # Full precision, because accelerators round the factors of a product otherwise.
    return jnp.matmul(sort_rows(quantiles), weights, precision=jax.lax.Precision.HIGHEST)


def shortfall_score(
    quantiles: Float[Array, "A N"], target: Float[Array, ""] | float
) -> Float[Array, " A"]:
    r"""Minus the expected shortfall of every action's return below b: $-\mathbb{E}[(b - G)^+]$.

    b (`target`) is what is still missing. It is a mean over `quantiles`, so their order is free.
    """
    return -jnp.maximum(target - quantiles, 0.0).mean(axis=-1)


def utility_score(
    quantiles: Float[Array, "A N"],
    utility: Utility,
    accumulated: Float[Array, ""] | float,
    discount_so_far: Float[Array, ""] | float,
) -> Float[Array, " A"]:
    r"""The expected utility of every action (Algorithm 2): $\frac1N \sum_j h(s + c\,\theta_j)$.

    s is `accumulated`, c `discount_so_far`, θ the `quantiles`, in any order.

    Differs: h (`utility`) is evaluated as the piecewise-linear function it is, not as a sum over
    its N knots for each of the N quantiles; it keeps the constant that the paper omits, and the
    share of the mean in it is a line, $\phi(1)(s + c\,\bar\theta)$, not a knot at the largest
    quantile.
    """
    return utility.expectation(accumulated + discount_so_far * quantiles)


def masked(scores: Float[Array, " A"], mask: Bool[Array, " A"]) -> Float[Array, " A"]:
    """The `scores` of the legal actions, where `mask` is true, and minus infinity elsewhere."""
    return jnp.where(mask, scores, -jnp.inf)


def greedy(scores: Float[Array, " A"], mask: Bool[Array, " A"]) -> Int[Array, ""]:
    """The first of the legal actions with the largest score.

    If no action is legal, the result has no meaning.
    """
    # A legal action comes before an illegal one even where its own score is minus infinity.
    bounded = jnp.maximum(scores, jnp.finfo(scores.dtype).min)
    return jnp.argmax(masked(bounded, mask))
