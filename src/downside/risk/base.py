r"""What every spectral risk measure can do.

Conventions, true everywhere in the package: values are **returns**, larger is better, and a risk
measure is a risk-adjusted return, also larger is better. `alpha` is a share of the **worst**
outcomes: CVaR at `alpha=0.05` is the mean of the worst 5%.
"""

import abc
import dataclasses
import math
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from downside._arrays import (
    as_floats,
    check_levels,
    check_probabilities,
    check_values,
    is_concrete,
    namespace,
    real,
)
from downside._typing import Array, ArrayLike
from downside.risk.distribution import Distribution, as_distribution
from downside.risk.utility import Utility

if TYPE_CHECKING:
    from downside.risk.combination import WeightedSum


class Mixture(NamedTuple):
    r"""A spectral risk measure as CVaRs: $\sum_i$ `weights[i]` $\mathrm{CVaR}$(`levels[i]`)."""

    levels: Float[Array, " k"]
    weights: Float[Array, " k"]


class AbstractSpectralRisk(eqx.Module):
    r"""A spectral risk measure $\rho(Z) = \int_0^1 F_Z^{-1}(u)\, \phi(u)\, du$ (section 3).

    A subclass gives the spectrum $\phi$ (`_spectrum`), its integral $\Phi$ (`_cumulative`), the
    `atoms` of its mixture form and its `support`; everything else follows from these four.
    """

    # --- what a subclass says -------------------------------------------------------------------

    @abc.abstractmethod
    def _spectrum(self, u: Array, xp: Any) -> Array:
        r"""$\phi(u)$, left-continuous, for an array `u` of the namespace `xp`."""

    @abc.abstractmethod
    def _cumulative(self, u: Array, xp: Any) -> Array:
        r"""$\Phi(u) = \int_0^u \phi$, for an array `u` of the namespace `xp`."""

    @property
    @abc.abstractmethod
    def atoms(self) -> tuple[tuple[float, float], ...]:
        r"""The point masses (level, weight) of $\mu$, by level; the mean's share sits at 1.0.

        What is missing to a total of 1 is spread continuously over the levels.
        """

    @property
    @abc.abstractmethod
    def support(self) -> float:
        r"""The worst share of outcomes that matters at all: the largest u with $\phi > 0$ below."""

    # --- the spectrum ---------------------------------------------------------------------------

    def spectrum(self, u: ArrayLike) -> Array:
        r"""$\phi(u)$: how much the outcome at rank `u` counts (0 the worst, 1 the best)."""
        u, xp = _ranks(u)
        return self._spectrum(u, xp)

    def cumulative(self, u: ArrayLike) -> Array:
        r"""$\Phi(u) = \int_0^u \phi$: how much the worst share `u` of outcomes counts."""
        u, xp = _ranks(u)
        return self._cumulative(u, xp)

    @property
    def spectrum_at_zero(self) -> float:
        r"""$\phi(0)$: the weight of the very worst outcome, and the Lipschitz constant of h."""
        return float(self.spectrum(0.0))

    @property
    def spectrum_at_one(self) -> float:
        r"""$\phi(1)$: the weight of the plain mean in the mixture form."""
        return float(self.spectrum(1.0))

    @property
    def is_finite_mixture(self) -> bool:
        """Whether the measure is a sum of finitely many CVaRs."""
        return math.isclose(sum(weight for _, weight in self.atoms), 1.0, abs_tol=1e-12)

    @property
    def strictly_monotone(self) -> bool:
        r"""Whether a better outcome always has a higher value: $\phi > 0$ on (0, 1) (appendix F).

        Differs: the appendix tests the atom at level 1, which is sufficient but not necessary (the
        dual power measure has none); this is the condition itself.
        """
        return self.support == 1.0

    # --- the value of a distribution ------------------------------------------------------------

    def __call__(
        self, values: "Distribution | ArrayLike", weights: ArrayLike | None = None
    ) -> Array:
        r"""The exact value of a discrete distribution, over the last axis of `values`.

        $\sum_i z_{(i)} \left(\Phi(F_i) - \Phi(F_{i-1})\right)$ with $z_{(i)}$ the sorted `values`
        and $F_i$ their cumulative `weights`, so an outcome that straddles a level is split.

        Arguments:
            values: returns, of shape (..., n); leading axes are a batch. They must be finite:
                concrete arrays are checked, traced ones give NaN. Or a `Distribution`.
            weights: their probabilities, of shape (..., n) or (n,); equally likely if left out.
        """
        if isinstance(values, Distribution):
            values, weights = values.values, values.probabilities
        xp = namespace(values, weights)
        values = as_floats(values, "values", xp)
        check_values(values, "values")
        if weights is None:
            share = xp.asarray(self.quantile_weights(values.shape[-1]), dtype=values.dtype)
            return (xp.sort(values, axis=-1) * share).sum(axis=-1)
        weights = as_floats(weights, "weights", xp)
        check_probabilities(weights, "weights")
        if weights.shape[-1] != values.shape[-1]:
            raise ValueError(
                f"`weights` must match `values` along the last axis, got {weights.shape[-1]} "
                f"weights for {values.shape[-1]} values."
            )
        distribution = Distribution(values, weights)
        share = xp.diff(self._cumulative(_edges(distribution, xp), xp), axis=-1)
        return (distribution.values * share).sum(axis=-1)

    def quantile_weights(self, count: int) -> Float[np.ndarray, " N"]:
        r"""The weights $\Phi(i/N) - \Phi((i-1)/N)$ of N equally likely, sorted quantiles."""
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"`count` must be a whole number of at least 1, got {count!r}.")
        return np.diff(self.cumulative(np.arange(count + 1) / count))

    # --- the mixture form and the utility h -----------------------------------------------------

    def mixture(self, edges: ArrayLike | None = None) -> Mixture:
        r"""The measure as CVaRs: $\rho = \int \mathrm{CVaR}_\alpha\, \mu(d\alpha)$.

        The atoms of $\mu$ come first, as they are. The continuous part is cut at `edges`
        $0 = e_0 < \dots < e_n = 1$ into n CVaRs of weight $\mu_i = \int_{e_{i-1}}^{e_i} \mu$ at
        level $\mu_i / \nu_i$ with $\nu_i = \int_{e_{i-1}}^{e_i} \mu(d\alpha) / \alpha$. For a
        distribution whose cumulative probabilities lie on `edges` that is exact, because there
        $\alpha\, \mathrm{CVaR}_\alpha$ is linear in $\alpha$ between two edges.
        """
        levels = as_floats([level for level, _ in self.atoms], "levels")
        weights = as_floats([weight for _, weight in self.atoms], "weights")
        if edges is None and self.is_finite_mixture:
            return Mixture(levels, weights)
        if edges is None:
            raise ValueError(
                f"`edges` is needed to write {self} as CVaRs, because its levels form a continuum. "
                "Pass the cumulative probabilities of your distribution, or "
                "np.linspace(0, 1, 101) for a close approximation."
            )
        edges, xp = _checked_edges(edges)
        if self.is_finite_mixture:
            return Mixture(*(xp.asarray(part, dtype=edges.dtype) for part in (levels, weights)))
        mass, drop = self._continuous_part(edges, xp)
        middle = (edges[1:] + edges[:-1]) / 2
        level = xp.where(drop > 0, mass / xp.where(drop > 0, drop, 1.0), middle)
        level = xp.clip(level, edges[:-1], edges[1:])
        return Mixture(
            xp.concatenate([xp.asarray(levels, dtype=edges.dtype), level]),
            xp.concatenate([xp.asarray(weights, dtype=edges.dtype), mass]),
        )

    def _continuous_part(self, edges: Array, xp: Any) -> tuple[Array, Array]:
        r"""$\mu$ and $\mu(d\alpha)/\alpha$ of each cell of `edges`, without the atoms."""
        phi, total = self._spectrum(edges, xp), self._cumulative(edges, xp)
        for level, weight in self.atoms:
            phi = phi - xp.where(edges <= level, weight / level, 0.0)
            total = total - weight * xp.minimum(edges / level, 1.0)
        # d(α φ) = φ dα - μ(dα), hence μ((a, b]) = [Φ - α φ] from a to b.
        mass = xp.diff(total - edges * phi, axis=-1)
        return xp.maximum(mass, 0.0), xp.maximum(-xp.diff(phi, axis=-1), 0.0)

    def utility(self, start: "Distribution | ArrayLike") -> Utility:
        r"""The concave function h with $\rho(Z) = \mathbb{E}[h(Z)]$ (equation `functionh`).

        $h(z) = \int F_Z^{-1}(\alpha) + \frac1\alpha (z - F_Z^{-1}(\alpha))^-\, \mu(d\alpha)$, with
        $Z$ the distribution `start` (an array is read as equally likely quantiles). A sum of k
        CVaRs has a knot for each level below 1; any other spectrum one for each value of `start`.

        Differs: the part of $\mu$ at level 1 is the line $\phi(1)\, z$, without a bend at the
        largest value. The expectation under `start` is the same, and what lies above every return
        seen so far keeps its worth.
        """
        start = as_distribution(start)
        xp = namespace(start.values)
        if start.values.ndim != 1:
            raise ValueError(
                f"`start` must be one distribution, got a batch of {start.values.shape[:-1]}. "
                "Use jax.vmap for a batch of utilities."
            )
        if self.is_finite_mixture:
            levels = [level for level, _ in self.atoms if level < 1.0]
            return self.utility_at(start.quantile(xp.asarray(levels, dtype=start.values.dtype)))
        edges = _edges(start, xp)
        mass, drop = self._continuous_part(edges, xp)
        for level, weight in self.atoms:
            if level < 1.0:
                here = xp.arange(mass.shape[-1]) == start.quantile_index(level)
                mass = mass + xp.where(here, weight, 0.0)
                drop = drop + xp.where(here, weight / level, 0.0)
        offset = (mass * start.values).sum()
        return Utility(start.values, drop, linear=self._mean_weight, offset=offset)

    def utility_at(self, knots: ArrayLike) -> Utility:
        r"""The h of a finite mixture with its bends put at `knots`, one for each level below 1.

        $h(z) = \sum_i w_i \left(b_i + (z - b_i)^- / \alpha_i\right) + \phi(1)\, z$ with $b_i$ the
        `knots`. For every choice $\mathbb{E}[h(Z)] \le \rho(Z)$, with equality where $b_i$ is an
        $\alpha_i$-quantile of Z: this is what a search over h searches over.
        """
        if not self.is_finite_mixture:
            raise ValueError(f"{self} is not a finite sum of CVaRs: use `utility(distribution)`.")
        xp = namespace(knots)
        knots = as_floats(knots, "knots", xp)
        below = [(level, weight) for level, weight in self.atoms if level < 1.0]
        if knots.shape != (len(below),):
            raise ValueError(
                f"`knots` must have one entry for each level of {self} below 1, i.e. shape "
                f"({len(below)},), got shape {knots.shape}."
            )
        weights = xp.asarray([weight for _, weight in below], dtype=knots.dtype)
        drops = xp.asarray([weight / level for level, weight in below], dtype=knots.dtype)
        offset = (weights * knots).sum()
        return Utility(knots, drops, linear=self._mean_weight, offset=offset)

    @property
    def _mean_weight(self) -> float:
        return math.fsum(weight for level, weight in self.atoms if level == 1.0)

    # --- algebra --------------------------------------------------------------------------------

    @property
    def terms(self) -> "tuple[tuple[float, AbstractSpectralRisk], ...]":
        """The weighted measures that this one is the sum of: itself, unless it is a sum."""
        return ((1.0, self),)

    def __mul__(self, weight: float | int) -> "WeightedSum":
        weight = real(weight, "weight")
        return _weighted_sum(tuple((weight * own, term) for own, term in self.terms))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | int) -> "WeightedSum":
        divisor = real(divisor, "divisor")
        if not divisor > 0:
            raise ValueError(f"`divisor` must be above 0, got {divisor:g}.")
        return self * (1.0 / divisor)

    def __add__(self, other: "AbstractSpectralRisk") -> "WeightedSum":
        if not isinstance(other, AbstractSpectralRisk):
            return NotImplemented
        return _weighted_sum(self.terms + other.terms)

    def __radd__(self, other: Any) -> "AbstractSpectralRisk":
        return (
            self if other == 0 and not isinstance(other, AbstractSpectralRisk) else NotImplemented
        )

    def _key(self) -> Hashable:
        """Equal for equal measures, however they are written."""
        parts: list[tuple[Hashable, float]] = []
        for weight, term in self.terms:
            if term.is_finite_mixture:
                parts += [(f"{level:.12g}", weight * share) for level, share in term.atoms]
            else:
                fields = (field for field in dataclasses.fields(term) if field.name != "_name")
                identity = (type(term), *(getattr(term, field.name) for field in fields))
                parts.append((identity, weight))
        joined = join(parts).items()
        return frozenset((part, round(weight, 9)) for part, weight in joined if weight > 1e-9)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AbstractSpectralRisk):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def join(parts: Iterable[tuple[Any, float]]) -> dict[Any, float]:
    """The total weight of each distinct part."""
    total: dict[Any, float] = {}
    for part, weight in parts:
        total[part] = total.get(part, 0.0) + weight
    return total


def _weighted_sum(terms: tuple[tuple[float, AbstractSpectralRisk], ...]) -> "WeightedSum":
    from downside.risk.combination import WeightedSum  # a sum is itself a measure

    return WeightedSum(terms)


def _ranks(u: ArrayLike) -> tuple[Array, Any]:
    xp = namespace(u)
    u = as_floats(u, "u", xp)
    check_levels(u, "u")
    return u, xp


def _checked_edges(edges: ArrayLike) -> tuple[Array, Any]:
    xp = namespace(edges)
    edges = as_floats(edges, "edges", xp)
    if edges.ndim != 1 or edges.shape[0] < 2:
        raise ValueError(
            f"`edges` must be a vector of cumulative probabilities, got shape {edges.shape}."
        )
    if is_concrete(edges):
        concrete = np.asarray(edges, dtype=float)
        tidy = np.all(np.diff(concrete) >= 0) and np.allclose(concrete[[0, -1]], [0, 1], atol=1e-6)
        if not tidy:
            raise ValueError(
                f"`edges` must increase from 0 to 1, got {concrete[0]:g}, ..., {concrete[-1]:g}. "
                "Pass 0 followed by the cumulative probabilities."
            )
    return edges, xp


def _edges(distribution: Distribution, xp: Any) -> Array:
    """0 and the cumulative probabilities."""
    cumulative = distribution.cumulative
    return xp.concatenate([xp.zeros_like(cumulative[..., :1]), cumulative], axis=-1)
