"""What quantiles are fitted with."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from downside._typing import Array

_TOGETHER = 8
"""Targets that are compared with the quantiles in one pass (measured, `benchmarks/update.py`)."""


def huber(error: Float[Array, "*shape"], kappa: Float[Array, ""] | float) -> Float[Array, "*shape"]:
    r"""The Huber loss $L_\kappa(u)/\kappa$ of every entry u of `error` (appendix D).

    $u^2 / 2\kappa$ for $|u| \le \kappa$ (`kappa`), $|u| - \kappa/2$ beyond.

    Differs: divided by κ, so that the slope beyond κ is 1 whatever κ is, and κ = 0 is $|u|$.
    """
    return _huber(error, kappa)[0]


def _huber(error: Array, kappa: Array | float) -> tuple[Array, Array]:
    """The loss and its derivative."""
    # One formula for both parts and for κ = 0: where the quotient overflows it is clipped, so the
    # gradient is finite in 32 bits for any κ.
    slope = jnp.clip(error / jnp.maximum(kappa, jnp.finfo(error.dtype).tiny), -1.0, 1.0)
    return slope * (error - 0.5 * kappa * slope), slope


def quantile_huber_loss(
    quantiles: Float[Array, " N"],
    targets: Float[Array, " M"],
    *,
    kappa: Float[Array, ""] | float,
    weights: Float[Array, " M"] | None = None,
) -> Float[Array, ""]:
    r"""Quantile Huber loss of one transition (Algorithm 2 and appendix D).

    $\sum_i \sum_j w_j\, |\hat\tau_i - 1\{\delta_{ij} < 0\}|\, L_\kappa(\delta_{ij}) / \kappa$ with
    $\delta_{ij} = y_j - \theta_i$ (`targets`, `quantiles`) and $\hat\tau_i = (2i - 1)/2N$. The
    probabilities $w_j$ of the targets (`weights`) sum to 1; they are $1/M$ if left out.

    `kappa` must be small against the spread of the targets: above it, the minimisers are closer to
    expectiles than to quantiles, and the tails vanish. Below it, the minimiser for the level τ is
    still off by about $\kappa (1 - 2\tau) / 2$, towards the middle. Where targets are made from
    quantiles that were learned like this, a step later, that adds up to
    $\kappa (1 - 2\tau) / 2(1 - \gamma)$: in long episodes κ must be small against $1 - \gamma$ of
    the spread. 0 is the pinball loss itself. The gradient is that of `quantiles` alone: everything
    else is a constant.

    Differs: divided by κ, so that the loss keeps its slope as κ shrinks towards the pinball loss.
    """
    if weights is None:
        weights = jnp.full(targets.shape, 1.0 / targets.shape[0], targets.dtype)
    return _loss(quantiles, targets, jnp.asarray(kappa, quantiles.dtype), weights)


# Left to itself, JAX would keep N M intermediate values of each step for the way back, and take
# fifteen times as long. The derivative is known: it is one sum, found together with the loss.
@jax.custom_vjp
def _loss(quantiles: Array, targets: Array, kappa: Array, weights: Array) -> Array:
    return _loss_and_slopes(quantiles, targets, kappa, weights)[0]


def _loss_and_slopes(
    quantiles: Array, targets: Array, kappa: Array, weights: Array
) -> tuple[Array, Array]:
    count = quantiles.shape[0]
    levels = (jnp.arange(count, dtype=quantiles.dtype) + 0.5) / count

    # A few targets at a time, added up as they come: the N M terms are never kept, and a batch of
    # transitions is what a processor's vectors run over.
    def add(sums: tuple[Array, Array], group: Array) -> tuple[tuple[Array, Array], None]:
        values, slopes = sums
        for i in range(_TOGETHER):
            target, weight = group[i, 0], group[i, 1]
            error = target - quantiles
            value, slope = _huber(error, kappa)
            side = weight * jnp.where(error < 0, 1 - levels, levels)
            values, slopes = values + side * value, slopes - side * slope
        return (values, slopes), None

    pairs = jnp.stack([targets, weights], axis=-1)
    groups = jnp.pad(pairs, ((0, -targets.shape[0] % _TOGETHER), (0, 0)))
    zeros = jnp.zeros_like(quantiles)
    (values, slopes), _ = jax.lax.scan(add, (zeros, zeros), groups.reshape(-1, _TOGETHER, 2))
    return values.sum(), slopes


def _forward(quantiles: Array, targets: Array, kappa: Array, weights: Array):
    value, slopes = _loss_and_slopes(quantiles, targets, kappa, weights)
    return value, (slopes, targets, kappa, weights)


def _backward(kept: tuple[Array, ...], upstream: Array):
    slopes, *constants = kept
    return (upstream * slopes, *(jnp.zeros_like(constant) for constant in constants))


_loss.defvjp(_forward, _backward)
