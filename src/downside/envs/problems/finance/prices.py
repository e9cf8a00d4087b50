"""Exact transitions of the price processes, as functions of a standard normal variable."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float


def geometric_brownian(
    price: Float[Array, "*shape"],
    noise: Float[Array, "*shape"],
    *,
    drift: float | Float[Array, "*shape"],
    sigma: float | Float[Array, "*shape"],
    dt: float,
) -> Float[Array, "*shape"]:
    r"""A geometric Brownian motion after a time `dt`, without discretisation error.

    $P' = P \exp((\zeta - \sigma^2/2)\,\Delta t + \sigma \sqrt{\Delta t}\, Z)$ solves
    $dP = \zeta P\,dt + \sigma P\,dW$ with $\zeta$ = `drift`, $\sigma$ = `sigma`,
    $\Delta t$ = `dt` and the standard normal $Z$ = `noise`.
    """
    return price * jnp.exp((drift - 0.5 * sigma**2) * dt + sigma * math.sqrt(dt) * noise)


def ornstein_uhlenbeck(
    price: Float[Array, "*shape"],
    noise: Float[Array, "*shape"],
    *,
    kappa: float,
    mean: float,
    sigma: float,
    dt: float,
) -> Float[Array, "*shape"]:
    r"""An Ornstein-Uhlenbeck process after a time `dt`, without discretisation error.

    $P' = \zeta + (P - \zeta)\, e^{-\kappa \Delta t}
    + \sigma \sqrt{(1 - e^{-2 \kappa \Delta t}) / 2\kappa}\, Z$ solves
    $dP = \kappa(\zeta - P)\,dt + \sigma\,dW$ with $\kappa$ = `kappa`, $\zeta$ = `mean`,
    $\sigma$ = `sigma`, $\Delta t$ = `dt` and the standard normal $Z$ = `noise`.
    """
    deviation = ornstein_uhlenbeck_deviation(kappa=kappa, sigma=sigma, dt=dt)
    return mean + (price - mean) * math.exp(-kappa * dt) + deviation * noise


def ornstein_uhlenbeck_deviation(*, kappa: float, sigma: float, dt: float) -> float:
    r"""Standard deviation of the price after `dt`; $\sigma\sqrt{\Delta t}$ where $\kappa$ is 0."""
    # expm1 keeps the small-kappa limit exact; only 0 / 0 itself needs a case.
    variance = -math.expm1(-2.0 * kappa * dt) / (2.0 * kappa) if kappa > 0.0 else dt
    return sigma * math.sqrt(variance)
