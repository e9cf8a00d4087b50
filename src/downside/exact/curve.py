r"""The best shortfall for every target at once: one recursion, all levels of CVaR."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from downside.exact.lattice import Lattice
from downside.exact.recursion import Lines, backward
from downside.risk import AbstractSpectralRisk, Utility

_PARTS = 64
"""Levels at which a dense spectrum is bounded."""


class Curve(NamedTuple):
    r"""J(b) for every knot b on the lattice, for $h_b(z) = w (b + (z - b)^- / \alpha) + \ell z$.

    An episode that starts with -b instead of nothing ends with G - b, so one recursion for the knot
    0 has the answer for every b: $V(-b) = \max_\pi \mathbb{E}[\ell (G - b) + (w / \alpha)(G -
    b)^-]$. Without a linear part it serves every level α.
    """

    knots: Float[np.ndarray, " n"]
    """b, in increasing order."""
    shortfalls: Float[np.ndarray, " n"]
    """The largest E[ratio (G - b) + (G - b)^-] of the lattice for each knot."""
    ratio: float
    """The linear slope relative to the drop at the knot."""
    best_mean: float
    """The optimum of the mean."""

    def values(self, level: float, weight: float = 1.0) -> Float[np.ndarray, " n"]:
        """J(b) for `weight` of CVaR at this level, and the rest of the mean."""
        linear = 1.0 - weight if self.ratio else 0.0
        return (weight + linear) * self.knots + weight / level * self.shortfalls

    def outside(self, level: float, weight: float) -> float:
        """What J is at most for knots that are not tabulated: by Jensen's inequality it rises
        below the best mean and falls above it."""
        knots = np.clip(self.best_mean, self.knots[0], self.knots[-1]) * np.ones(2)
        knots[0], knots[1] = min(knots[0], self.knots[0]), max(knots[1], self.knots[-1])
        away = self.best_mean - knots
        values = knots + (1.0 - weight) * away + weight / level * np.minimum(away, 0.0)
        return float(values.max())

    def highest(self, level: float, low: float = -math.inf, high: float = math.inf) -> float:
        """The largest J(b) of one CVaR over knots in an interval, whether tabulated or not."""
        first, last = float(self.knots[0]), float(self.knots[-1])
        bounds = []
        if low < first:  # J(b) <= b
            bounds.append(min(high, first))
        if high > last:  # by Jensen's inequality, and falling from there on
            knot = max(low, last)
            bounds.append(knot + min(self.best_mean - knot, 0.0) / level)
        inside = (self.knots >= low) & (self.knots <= high)
        if inside.any():
            bounds.append(float(self.values(level)[inside].max()))
        return max(bounds, default=-math.inf)


def curve_of(lattice: Lattice, ratio: float = 0.0) -> Curve:
    """One recursion for all knots."""
    knots, worth = knot_values(lattice, Utility(np.zeros(1), np.ones(1), linear=ratio))
    return Curve(knots, worth, ratio, lattice.best_mean)


def knot_values(
    lattice: Lattice, utility: Utility
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    r"""Every b of the lattice at which $\max_\pi \mathbb{E}[h(G - b)]$ is tabulated, and its value.

    The first and the last lie outside of what is tabulated; there and beyond, by Jensen's
    inequality, the value is at most the line of h at the best mean.
    """
    windows, lines = lattice.windows(utility, everywhere=True), Lines(utility)
    result = backward(lattice, utility, windows)
    starts = np.flatnonzero(lattice.start)
    first, sizes = windows.first[0, starts], windows.sizes[0, starts]
    points = np.arange(int(first.min()) - 1, int((first + sizes).max()) + 1)
    total = np.zeros(points.size)
    for state, begin in zip(starts.tolist(), first.tolist(), strict=True):
        values = result.values[state]
        money = lattice.width * points + lattice.mean_left(0)[state]
        place = points - begin
        row = np.where(place < 0, lines.below(money), lines.above(money))
        inside = (place >= 0) & (place < values.size)
        row[inside] = values[place[inside]]
        total += lattice.start[state] * row
    return -lattice.width * points[::-1], total[::-1]


def spectral_upper(lattice: Lattice, curve: Curve, risk: AbstractSpectralRisk) -> float:
    r"""An upper bound of any spectral measure: the best of each of its CVaRs.

    $\rho = \int \mathrm{CVaR}_\alpha\, \mu(d\alpha)$, so
    $\max_\pi \rho \le \int \max_\pi \mathrm{CVaR}_\alpha\, \mu(d\alpha)$. On a part (a, b] of
    levels the best CVaR is at most that at b, and $\mu((a, b]) = a \phi(a) - b \phi(b) + \Phi(b) -
    \Phi(a)$ with the spectrum φ and its integral Φ.
    """
    if risk.is_finite_mixture:
        parts = [(level, weight) for level, weight in risk.atoms]
    else:
        levels = np.unique(
            np.concatenate([np.linspace(0, 1, _PARTS + 1), 2.0 ** -np.arange(1, 12)])
        )
        spectrum = np.asarray(risk.spectrum(levels), dtype=float)
        spectrum[-1] = 0.0  # what lies at 1 is the mean
        at_levels = levels * np.where(levels > 0, spectrum, 0.0)
        whole = np.asarray(risk.cumulative(levels), dtype=float)
        masses = at_levels[:-1] - at_levels[1:] + np.diff(whole)
        parts = list(zip(levels[1:], np.maximum(masses, 0.0), strict=True))
    allowed = lattice.allowance(np.array([level for level, _ in parts]))
    total = 0.0
    for (level, weight), extra in zip(parts, allowed, strict=True):
        best = curve.highest(level) + extra if level < 1.0 else lattice.best_mean
        total += weight * min(best, lattice.best_mean)
    return total
