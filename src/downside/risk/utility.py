r"""The utility h: the concave function whose expectation is the risk measure."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from downside._arrays import (
    as_floats,
    check_finite,
    check_probabilities,
    check_values,
    is_concrete,
    namespace,
    rounding_error,
)
from downside._typing import Array, ArrayLike

_FEW_KNOTS = 16
"""Up to here a fused sum over the knots is the fastest on a CPU; above, a lookup (benchmarks/)."""

_CELLS = 1024


class Utility(eqx.Module):
    r"""A concave, non-decreasing, piecewise-linear function of the return.

    $h(z) = o + \ell z + \sum_i d_i \min(z - b_i, 0)$ with the bends $b_i$ (`knots`), the slope
    $d_i \ge 0$ lost at each of them (`drops`), the slope $\ell$ left above all of them (`linear`:
    the weight of the plain mean) and the constant $o$ (`offset`).

    It is a pytree of arrays with fixed shapes: build it anew with other knots inside a compiled
    loop, carry it through `lax.scan`, map over a batch of them. A point costs O(k) for few knots
    and O(log k) or better for many, never the double sum over knots and quantiles of Algorithm 2.
    """

    knots: Float[Array, " k"]
    """Where h bends, in increasing order."""
    drops: Float[Array, " k"]
    """How much slope h loses at each knot."""
    linear: Float[Array, ""]
    """The slope above the last knot: the weight of the plain mean."""
    offset: Float[Array, ""]
    """The constant that makes the conjugate term vanish."""
    _segments: "_Segments | None" = eqx.field(repr=False)

    def __init__(
        self,
        knots: ArrayLike,
        drops: ArrayLike,
        *,
        linear: ArrayLike = 0.0,
        offset: ArrayLike = 0.0,
    ):
        xp = namespace(knots, drops, linear, offset)
        knots = as_floats(knots, "knots", xp)
        drops = as_floats(drops, "drops", xp)
        if knots.ndim != 1 or knots.shape != drops.shape:
            raise ValueError(
                f"`knots` and `drops` must be vectors of one length, got shapes {knots.shape} and "
                f"{drops.shape}."
            )
        check_finite(knots, "knots")
        check_finite(drops, "drops")
        if is_concrete(drops) and np.any(np.asarray(drops) < 0):
            raise ValueError(
                f"`drops` must be non-negative, or h is not concave; got {np.min(drops)}."
            )
        if np.ndim(linear) != 0 or (is_concrete(linear) and not np.asarray(linear) >= 0):
            raise ValueError(
                f"`linear` must be one number of at least 0, or h is not increasing; got {linear}."
            )
        order = xp.argsort(knots)
        self.knots = knots[order]
        self.drops = xp.asarray(drops, dtype=knots.dtype)[order]
        self.linear = xp.asarray(linear, dtype=knots.dtype)
        self.offset = xp.asarray(offset, dtype=knots.dtype)
        many = xp is jnp and knots.shape[0] > _FEW_KNOTS
        self._segments = _Segments.build(self.knots, self.drops, self.linear) if many else None

    def __call__(self, z: ArrayLike) -> Array:
        """The value of h at every entry of `z`, of any shape."""
        xp = namespace(z, self.knots)
        z = as_floats(z, "z", xp)
        if xp is np:
            return self.offset + self._by_search(z)
        if self.knots.shape[0] > _FEW_KNOTS:
            segments = self._segments
            if segments is None:  # made with NumPy
                segments = _Segments.build(
                    jnp.asarray(self.knots), jnp.asarray(self.drops), jnp.asarray(self.linear)
                )
            return self.offset + segments(z)
        out = self.offset + self.linear * z
        for i in range(self.knots.shape[0]):  # unrolled: one fused pass over z, no k-fold copy
            out = out + self.drops[i] * jnp.minimum(z - self.knots[i], 0.0)
        return out

    def _by_search(self, z: Array) -> Array:
        knots, drops = np.asarray(self.knots), np.asarray(self.drops)
        slope = np.append(np.cumsum(drops[::-1])[::-1], 0.0)
        constant = np.append(np.cumsum((drops * knots)[::-1])[::-1], 0.0)
        index = np.searchsorted(knots, z)
        return (self.linear + slope[index]) * z - constant[index]

    def expectation(self, values: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """E[h(Z)] over the last axis of `values`; equally likely if `weights` are left out."""
        xp = namespace(values, self.knots)
        values = as_floats(values, "values", xp)
        check_values(values, "values")
        worth = self(values)
        if weights is not None:
            weights = as_floats(weights, "weights", xp)
            check_probabilities(weights, "weights")
            return (worth * weights).sum(axis=-1)
        # A matrix product and not a mean: XLA fuses a mean into the lookup, which it then repeats.
        count = values.shape[-1]
        share = xp.full((count, 1), 1.0 / count, dtype=worth.dtype)
        return (worth.reshape(-1, count) @ share).reshape(values.shape[:-1])

    def slope(self, z: ArrayLike) -> Array:
        """The derivative of h at every entry of `z`; at a knot, the one from below."""
        xp = namespace(z, self.knots)
        z = as_floats(z, "z", xp)
        left = xp.where(z[..., None] <= self.knots, self.drops, 0.0).sum(axis=-1)
        return left + self.linear

    def conjugate(self, slope: ArrayLike) -> Array:
        r"""The concave conjugate $\hat h(y) = \inf_z (y z - h(z))$ at slopes y.

        It is finite for the slopes that h has; elsewhere it is $-\infty$.
        """
        xp = namespace(slope, self.knots)
        y = as_floats(slope, "slope", xp)
        steepest = self.linear + self.drops.sum()
        slack = rounding_error(self.knots.dtype) * xp.maximum(steepest, 1.0)
        inside = (y >= self.linear - slack) & (y <= steepest + slack)
        if self.knots.shape[0] == 0:
            return xp.where(inside, -self.offset, -xp.inf)
        lowest = (y[..., None] * self.knots - self(self.knots)).min(axis=-1)
        return xp.where(inside, lowest, -xp.inf)

    def conjugate_integral(self, risk: Any) -> Array:
        r"""$\int_0^1 \hat h(\phi(u))\, du$, the second term of J (section 3), for a measure.

        It is 0 for an h made by the same measure, whatever distribution it was made from
        (appendix A). Exact: each knot $b_i$ is where the infimum is attained for the ranks u at
        which $\phi(u)$ lies between the slopes left and right of it; the ranks are found by
        bisection.
        """
        xp = namespace(self.knots)
        if self.knots.shape[0] == 0:
            return self.conjugate(xp.asarray(risk.spectrum_at_one))
        reach = self.linear + self.drops.sum()
        slack = 1e3 * rounding_error(self.knots.dtype)
        above = risk.spectrum_at_zero > reach + slack
        below = risk.spectrum_at_one < self.linear - slack
        right_slopes = self.linear + xp.append(xp.cumsum(self.drops[::-1])[::-1][1:], 0.0)
        low, high = xp.zeros_like(right_slopes), xp.ones_like(right_slopes)
        for _ in range(60):
            middle = (low + high) / 2
            steeper = risk.spectrum(middle) > right_slopes
            low, high = xp.where(steeper, middle, low), xp.where(steeper, high, middle)
        edges = xp.concatenate([xp.zeros(1, dtype=high.dtype), high[:-1], xp.ones(1, high.dtype)])
        gained = xp.diff(risk.cumulative(edges)) * self.knots - xp.diff(edges) * self(self.knots)
        return xp.where(above | below, -xp.inf, gained.sum())


class _Segments(eqx.Module):
    """A lookup of the line that holds at a point: uniform cells, then bisection inside a cell.

    Cells are counted from the first knot. A cell knows how many knots lie before it; how often to
    halve is what the fullest cell needs: once where knots are spread out, log2(k) times at worst.
    """

    origin: Float[Array, ""]
    cells_per_unit: Float[Array, ""]
    before: Int[Array, " cells"]
    """The number of knots left of each cell."""
    knots: Float[Array, " padded"]
    """Knots relative to the origin, then infinity, so that bisection may step past the end."""
    intercepts: Float[Array, " segments"]
    slopes: Float[Array, " segments"]
    halvings: Int[Array, ""]

    @classmethod
    def build(cls, knots: Array, drops: Array, linear: Array) -> "_Segments":
        count = knots.shape[0]
        origin = knots[0]
        local = knots - origin
        width = jnp.maximum(local[-1], jnp.finfo(knots.dtype).tiny * _CELLS) / _CELLS
        before = jnp.searchsorted(local, jnp.arange(_CELLS, dtype=knots.dtype) * width).astype(
            jnp.int32
        )
        after = jnp.append(before[1:], count)
        fullest = jnp.max(after - before)
        tail = jnp.zeros(1, dtype=knots.dtype)
        return cls(
            origin=origin,
            cells_per_unit=1.0 / width,
            before=before,
            knots=jnp.concatenate([local, jnp.full(count + 1, jnp.inf, dtype=knots.dtype)]),
            intercepts=linear * origin
            - jnp.concatenate([jnp.cumsum((drops * local)[::-1])[::-1], tail]),
            slopes=linear + jnp.concatenate([jnp.cumsum(drops[::-1])[::-1], tail]),
            halvings=jnp.sum(2 ** jnp.arange(31) <= fullest).astype(jnp.int32),
        )

    def __call__(self, z: Array) -> Array:
        local = z - self.origin
        place = jax.lax.stop_gradient(local)  # which segment holds does not vary smoothly
        cell = jnp.clip(place * self.cells_per_unit, 0, _CELLS - 1).astype(jnp.int32)
        segment = _at(self.before, cell)

        def halve(i: Array, segment: Array) -> Array:
            stride = jnp.left_shift(1, self.halvings - 1 - i)
            passed = place > jax.lax.stop_gradient(_at(self.knots, segment + stride - 1))
            return segment + jnp.where(passed, stride, 0)

        segment = jax.lax.fori_loop(0, self.halvings, halve, segment)
        return _at(self.intercepts, segment) + _at(self.slopes, segment) * local


def _at(table: Array, index: Array) -> Array:
    return jnp.asarray(table).at[index].get(mode="promise_in_bounds")
