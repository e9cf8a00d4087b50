r"""Prices and deltas of options on a geometric Brownian motion, without interest.

`deviation` is $v = \sigma\sqrt{\tau}$, the standard deviation of the log price until maturity. It
may be 0: then a price is the payoff at today's price.
"""

import math
from typing import Literal

import jax.numpy as jnp
from jax.scipy.special import ndtr
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from downside.envs.core import real_array

Option = Literal["call", "put", "lookback"]

_TINY = 1e-6
_MONITORING = 0.5825971579390107
r"""$-\zeta(1/2)/\sqrt{2\pi}$ (Broadie, Glasserman and Kou 1999)."""


def price(
    option: Option,
    spot: Float[Array, "*n"],
    highest: Float[Array, "*n"],
    strike: float,
    deviation: Float[Array, "*n"],
    step_deviation: float = 0.0,
) -> Float[Array, "*n"]:
    r"""The Black-Scholes price.

    Call $S N(d_1) - K N(d_2)$ with $d_{1,2} = \ln(S/K)/v \pm v/2$; the put by put-call parity.
    The lookback pays $\max(M - K, 0)$ for the highest price $M$ at the times that are watched:
    $(M - K)^+ + S N(d_1) - L N(d_2) + S v\,(d_1 N(d_1) + n(d_1))$ with $L = \max(M, K)$ in the
    place of the strike if the price is watched all the time.

    Arguments:
        option: "call", "put" or "lookback".
        spot: $S$.
        highest: $M$, the highest price so far; of no use to calls and puts.
        strike: $K$.
        deviation: $v$.
        step_deviation: of the log price between two times at which a lookback is watched. The
            maximum at these times is lower by a factor $e^{-\beta \sigma \sqrt{\Delta t}}$ with
            $\beta = 0.5826$, up to terms of a higher order (Broadie, Glasserman and Kou 1999).
    """
    spot = real_array(spot)
    if option == "lookback":
        shift = math.exp(_MONITORING * step_deviation)
        level = jnp.maximum(real_array(highest), strike)
        d1, d2 = _d(spot, level * shift, deviation)
        above = spot * ndtr(d1) - level * shift * ndtr(d2)
        above = above + spot * deviation * (d1 * ndtr(d1) + norm.pdf(d1))
        return level - strike + jnp.maximum(above, 0.0) / shift
    d1, d2 = _d(spot, strike, deviation)
    call = spot * ndtr(d1) - strike * ndtr(d2)
    return call - spot + strike if option == "put" else call


def delta(
    option: Option,
    spot: Float[Array, "*n"],
    highest: Float[Array, "*n"],
    strike: float,
    deviation: Float[Array, "*n"],
    step_deviation: float = 0.0,
) -> Float[Array, "*n"]:
    r"""The derivative of `price` by the spot.

    $N(d_1)$ for a call, $N(d_1) - 1$ for a put, $2 N(d_1) + v\,(d_1 N(d_1) + n(d_1))$ for a
    lookback.
    """
    spot = real_array(spot)
    if option == "lookback":
        shift = math.exp(_MONITORING * step_deviation)
        level = jnp.maximum(real_array(highest), strike)
        d1, _ = _d(spot, level * shift, deviation)
        return (2.0 * ndtr(d1) + deviation * (d1 * ndtr(d1) + norm.pdf(d1))) / shift
    d1, _ = _d(spot, strike, deviation)
    return ndtr(d1) - 1.0 if option == "put" else ndtr(d1)


def _d(
    spot: Float[Array, "*n"], strike: float | Float[Array, "*n"], deviation: Float[Array, "*n"]
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    safe = jnp.maximum(real_array(deviation), _TINY)
    middle = jnp.log(spot / strike) / safe
    return middle + 0.5 * safe, middle - 0.5 * safe
