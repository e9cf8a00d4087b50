r"""Heston's model: prices with a variance that is random itself.

$dS = \sqrt{V} S\,dB$ and $dV = a(b - V)\,dt + \sigma\sqrt{V}\,dW$ with correlation $\rho$ between
$B$ and $W$: $a$ = `reversion`, $b$ = `long_variance`, $\sigma$ = `vol_of_vol`, $\rho$ =
`correlation`. There is no interest.
"""

import dataclasses
import math

import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

_SWITCH = 1.5
"""Below this ratio of variance to squared mean a squared normal has both moments (Andersen: any
number between 1 and 2)."""


@dataclasses.dataclass(frozen=True)
class Heston:
    r"""One step of the model, of length `dt`: the scheme QE-M of Andersen (2008).

    The next variance is a squared normal or a mixture of 0 and an exponential, with the exact
    conditional mean and variance; the drift of the log price is such that $E[S'] = S$ exactly.

    Differs: the integral of $V$ over a step is $h (V + V') + b (\Delta t - 2h)$ with
    $h = \tanh(a \Delta t / 2) / a$ instead of the trapezoid's $\Delta t / 2$, and so has the exact
    conditional mean too: the variance swap is a martingale, not only nearly.
    """

    reversion: float
    long_variance: float
    vol_of_vol: float
    correlation: float
    dt: float

    @property
    def _half(self) -> float:
        return math.tanh(0.5 * self.reversion * self.dt) / self.reversion

    def moments(
        self, variance: Float[Array, "*n"]
    ) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        """Conditional mean and variance of the next variance."""
        a, b, vol = self.reversion, self.long_variance, self.vol_of_vol
        decay, gone = math.exp(-a * self.dt), -math.expm1(-a * self.dt)
        mean = variance * decay + b * gone
        spread = variance * vol**2 * decay * gone / a + b * (vol * gone) ** 2 / (2 * a)
        return mean, spread

    def next_variance(
        self, variance: Float[Array, "*n"], noise: Float[Array, "*n"]
    ) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        r"""The next variance, and the log of $E[e^{A V'}]$ given today's, for `next_price`.

        `noise` is standard normal; the mixture uses it as the uniform $\Phi(Z)$.
        """
        mean, spread = self.moments(variance)
        ratio = spread / mean**2
        tilt = self._tilt

        # A squared normal: V' = scale (root + Z)².
        inverse = 2.0 / jnp.minimum(ratio, _SWITCH)
        squared_root = inverse - 1.0 + jnp.sqrt(inverse * (inverse - 1.0))
        scale = mean / (1.0 + squared_root)
        normal = scale * (jnp.sqrt(squared_root) + noise) ** 2
        shrink = 1.0 - 2.0 * tilt * scale  # at least 1, because the tilt is not positive
        log_normal = tilt * squared_root * scale / shrink - 0.5 * jnp.log(shrink)

        # 0 with probability p, else exponential.
        wide = jnp.maximum(ratio, _SWITCH)
        atom = (wide - 1.0) / (wide + 1.0)
        rate = (1.0 - atom) / mean
        beyond = ndtr(-noise)  # 1 - u, with all its digits
        exponential = jnp.log(jnp.maximum((1.0 - atom) / beyond, 1.0)) / rate
        log_exponential = jnp.log(atom + (1.0 - atom) * rate / (rate - tilt))

        is_normal = ratio <= _SWITCH
        return (
            jnp.where(is_normal, normal, exponential),
            jnp.where(is_normal, log_normal, log_exponential),
        )

    @property
    def _slope(self) -> float:
        """How the log price moves with the integral of the variance, its noise aside."""
        return self.reversion * self.correlation / self.vol_of_vol - 0.5

    @property
    def _tilt(self) -> float:
        """A = K2 + K4/2 in Andersen's notation: not positive if the correlation is not."""
        loading = self._half * self._slope + self.correlation / self.vol_of_vol
        return loading + 0.5 * self._half * (1.0 - self.correlation**2)

    def next_price(
        self,
        price: Float[Array, "*n"],
        variance: Float[Array, "*n"],
        after: Float[Array, "*n"],
        log_expectation: Float[Array, "*n"],
        noise: Float[Array, "*n"],
    ) -> Float[Array, "*n"]:
        """The next price, given both variances and what `next_variance` gave with the second."""
        half, share = self._half, 1.0 - self.correlation**2
        before = half * self._slope - self.correlation / self.vol_of_vol
        behind = half * self._slope + self.correlation / self.vol_of_vol
        drift = -log_expectation - (before + 0.5 * half * share) * variance
        diffusion = jnp.sqrt(half * share * (variance + after))
        return price * jnp.exp(drift + before * variance + behind * after + diffusion * noise)

    def accrued(
        self, variance: Float[Array, "*n"], after: Float[Array, "*n"]
    ) -> Float[Array, "*n"]:
        """The integral of the variance over a step."""
        return self._half * (variance + after) + self.long_variance * (self.dt - 2 * self._half)

    def swap(
        self,
        accrued: Float[Array, "*n"],
        variance: Float[Array, "*n"],
        time_left: Float[Array, ""],
    ) -> Float[Array, "*n"]:
        r"""The value of a swap that pays the integral of $V$ until maturity.

        $\int_0^t V\,du + (V_t - b)/a\,(1 - e^{-a(T-t)}) + b\,(T - t)$, its expectation at time $t$.
        """
        a, b = self.reversion, self.long_variance
        return accrued - (variance - b) / a * jnp.expm1(-a * time_left) + b * time_left
