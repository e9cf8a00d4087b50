"""Distributions on finitely many values."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from downside._arrays import (
    as_floats,
    check_finite,
    check_levels,
    check_probabilities,
    check_values,
    is_concrete,
    namespace,
    rounding_error,
)
from downside._typing import Array, ArrayLike


class Distribution(eqx.Module):
    r"""Returns `values` with `probabilities`, sorted; leading axes are a batch of distributions.

    Where the cumulative distribution function $F$ is flat, every point of the flat piece is a
    quantile, and a convention must pick one:

    - `quantile_side="lower"` (section 3): $F^{-1}(u) = \inf\{z : F(z) \ge u\}$, for distributions
      that are what they are;
    - `quantile_side="upper"` (appendix G): $F^{-1}(u) = \theta_i$ for
      $\tau_{i-1} \le u < \tau_i$, for quantile representations.

    CVaR is the same under both; the risk level seen from a later state is not.
    """

    values: Float[Array, "*batch n"]
    """The returns, in increasing order."""
    probabilities: Float[Array, "*batch n"]
    """How likely each of them is."""
    quantile_side: str = eqx.field(static=True)
    """Which quantile to take where several qualify: "lower" or "upper"."""

    def __init__(
        self,
        values: ArrayLike,
        probabilities: ArrayLike | None = None,
        *,
        quantile_side: str = "lower",
    ):
        if quantile_side not in ("lower", "upper"):
            raise ValueError(f'`quantile_side` must be "lower" or "upper", got {quantile_side!r}.')
        xp = namespace(values, probabilities)
        values = as_floats(values, "values", xp)
        check_values(values, "values")
        size = values.shape[-1]
        if probabilities is None:
            self.values = xp.sort(values, axis=-1)
            self.probabilities = xp.full_like(values, 1.0 / size)
        else:
            probabilities = as_floats(probabilities, "probabilities", xp)
            check_probabilities(probabilities, "probabilities")
            if probabilities.shape[-1] != size:
                raise ValueError(
                    f"`probabilities` must match `values` along the last axis, got "
                    f"{probabilities.shape[-1]} probabilities for {size} values."
                )
            shape = np.broadcast_shapes(values.shape, probabilities.shape)
            everywhere = xp.broadcast_to(values, shape)
            order = xp.argsort(everywhere, axis=-1)
            self.values = xp.take_along_axis(everywhere, order, axis=-1)
            shares = xp.take_along_axis(xp.broadcast_to(probabilities, shape), order, axis=-1)
            self.probabilities = (shares / shares.sum(axis=-1, keepdims=True)).astype(values.dtype)
        self.quantile_side = quantile_side

    @classmethod
    def from_samples(cls, samples: ArrayLike) -> "Distribution":
        """The empirical distribution: every sample equally likely."""
        return cls(samples)

    @classmethod
    def from_quantiles(cls, quantiles: ArrayLike) -> "Distribution":
        r"""The quantile representation $\frac1N \sum_i \delta_{\theta_i}$; crossings are sorted."""
        return cls(quantiles, quantile_side="upper")

    @classmethod
    def mixture(cls, parts: "Sequence[Distribution]", weights: ArrayLike) -> "Distribution":
        """The distribution of a draw from `parts[i]`, where i is drawn with `weights`."""
        xp = namespace(weights, *(part.values for part in parts))
        weights = as_floats(weights, "weights", xp)
        check_probabilities(weights, "weights")
        if weights.shape != (len(parts),):
            raise ValueError(
                f"`weights` must have one entry for each of the {len(parts)} `parts`, "
                f"got shape {weights.shape}."
            )
        values = xp.concatenate([part.values for part in parts], axis=-1)
        scaled = [part.probabilities * weights[i] for i, part in enumerate(parts)]
        sides = {part.quantile_side for part in parts}
        side = sides.pop() if len(sides) == 1 else "lower"
        return cls(values, xp.concatenate(scaled, axis=-1), quantile_side=side)

    @property
    def cumulative(self) -> Float[Array, "*batch n"]:
        """F at each of the values, the last one exactly 1 (ties count up one by one)."""
        xp = namespace(self.values)
        sums = xp.cumsum(self.probabilities, axis=-1)
        return sums / sums[..., -1:]

    @property
    def mean(self) -> Float[Array, "*batch"]:
        """The expected value."""
        return (self.values * self.probabilities).sum(axis=-1)

    def affine(self, shift: ArrayLike, scale: ArrayLike) -> "Distribution":
        """The distribution of `shift + scale * Z`, with a positive `scale`."""
        xp = namespace(self.values, shift, scale)
        shift, scale = as_floats(shift, "shift", xp), as_floats(scale, "scale", xp)
        check_finite(shift, "shift")
        check_finite(scale, "scale")
        if is_concrete(scale) and np.any(np.asarray(scale) <= 0):
            raise ValueError(f"`scale` must be positive, got {np.min(np.asarray(scale))}.")
        values = shift[..., None] + scale[..., None] * self.values
        probabilities = xp.broadcast_to(xp.asarray(self.probabilities), values.shape)
        places = lambda d: (d.values, d.probabilities)  # noqa: E731
        return eqx.tree_at(places, self, (values, probabilities))

    def cdf(self, z: ArrayLike, *, slack: ArrayLike | None = None) -> Array:
        """P(Z <= z) at each entry of the last axis of `z`; equality is up to `slack`.

        By default that is a few units of rounding of the numbers compared.
        """
        return self._sum_where(z, slack, lambda gap, slack: gap <= slack)

    def pmf(self, z: ArrayLike, *, slack: ArrayLike | None = None) -> Array:
        """P(Z = z) at each entry of the last axis of `z`; equality as in `cdf`."""
        return self._sum_where(z, slack, lambda gap, slack: abs(gap) <= slack)

    @property
    def typical(self) -> Float[Array, "*batch"]:
        """The size of a typical value: the median of |values|, which no outlier moves."""
        xp = namespace(self.values)
        return xp.sort(xp.abs(self.values), axis=-1)[..., self.values.shape[-1] // 2]

    def _sum_where(self, z: ArrayLike, slack: ArrayLike | None, test: Any) -> Array:
        xp = namespace(self.values, z)
        points = xp.atleast_1d(as_floats(z, "z", xp))
        if slack is None:
            scale = xp.abs(points) + self.typical[..., None]
            slack = rounding_error(self.values.dtype) * scale
        hit = test(self.values[..., None, :] - points[..., None], xp.asarray(slack)[..., None])
        out = xp.where(hit, self.probabilities[..., None, :], 0.0).sum(axis=-1)
        return out[..., 0] if np.ndim(z) == 0 else out

    def quantile(self, u: ArrayLike) -> Array:
        """F^{-1} at each entry of the last axis of `u`, at jumps as `quantile_side` says."""
        xp = namespace(self.values, u)
        index = self.quantile_index(u)
        shape = (*index.shape[:-1], self.values.shape[-1])
        out = xp.take_along_axis(xp.broadcast_to(self.values, shape), index, axis=-1)
        return out[..., 0] if np.ndim(u) == 0 else out

    def quantile_index(self, u: ArrayLike) -> Array:
        """Which of the values `quantile` takes; `u` of no axis counts as one level."""
        xp = namespace(self.values, u)
        levels = xp.atleast_1d(as_floats(u, "u", xp))
        check_levels(levels, "u")
        levels, slack = levels[..., None], rounding_error(self.values.dtype)
        cumulative = self.cumulative[..., None, :]
        if self.quantile_side == "lower":
            below = cumulative < levels - slack
        else:
            below = cumulative <= levels + slack
        return xp.minimum(below.sum(axis=-1), self.values.shape[-1] - 1)

    def tail_mean(self, level: ArrayLike) -> Array:
        r"""CVaR at each entry of the last axis of `level`; the smallest value at level 0."""
        xp = namespace(self.values, level)
        levels = xp.atleast_1d(as_floats(level, "level", xp))
        check_levels(levels, "level")
        levels = xp.maximum(levels, 1e-30)[..., None]
        # Not the cumulative less the probabilities: what is left of rounding, over a tiny level, is
        # no longer small.
        before = self.cumulative[..., :-1]
        start = xp.concatenate([xp.zeros_like(self.cumulative[..., :1]), before], axis=-1)
        start = start[..., None, :]
        share = xp.clip(levels - start, 0.0, self.probabilities[..., None, :]) / levels
        out = (share * self.values[..., None, :]).sum(axis=-1)
        return out[..., 0] if np.ndim(level) == 0 else out

    def merged(self) -> "Distribution":
        """The same distribution with equal values joined; NumPy, one distribution at a time."""
        if np.ndim(self.values) != 1:
            raise ValueError(
                f"`merged` takes one distribution, got a batch of shape {self.values.shape[:-1]}."
            )
        values = np.asarray(self.values)
        slack = rounding_error(values.dtype) * (np.abs(values[1:]) + np.asarray(self.typical))
        first = np.concatenate([[True], np.diff(values) > slack])
        group = np.cumsum(first) - 1
        probabilities = np.bincount(group, weights=np.asarray(self.probabilities))
        return type(self)(values[first], probabilities, quantile_side=self.quantile_side)


def as_distribution(values: "Distribution | ArrayLike") -> Distribution:
    """`values` itself, or the quantile representation of an array."""
    return values if isinstance(values, Distribution) else Distribution.from_quantiles(values)


def point_masses(values: ArrayLike) -> Distribution:
    """A batch of distributions, each sure of one of `values`."""
    xp = namespace(values)
    return Distribution(xp.asarray(values)[..., None], xp.ones((*np.shape(values), 1)))
