"""Spectra that a user draws: a function, or steps."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import numpy as np

from downside._arrays import real
from downside._typing import Array
from downside.risk.base import AbstractSpectralRisk
from downside.risk.measures import WeightedCVaR

_TOLERANCE = 1e-12
_MOST_CELLS = 20_000

SpectrumFunction = Callable[[Any], Any]


class CustomSpectrum(AbstractSpectralRisk):
    r"""Any spectrum that is bounded, non-negative and does not increase; it is normalised.

    Arguments:
        phi: the spectrum, one of

            - a function of the rank u in [0, 1] (0 is the worst outcome), of an array or of one
              number: `CustomSpectrum(lambda u: 1 - u)`;
            - steps `{level: height}`, the height of each step up to its level:
              `CustomSpectrum({0.2: 3.0, 1.0: 0.5})` counts the worst fifth six times as much as
              the rest. The last level must be 1.

    A function is tabulated once, in pieces of degree two that are halved until they agree with it
    to 1e-12 of the total weight, so that it works under `jit` even if the function does not.
    """

    _steps: tuple[tuple[float, float], ...] = eqx.field(static=True)
    _table: "_Table | None" = eqx.field(static=True)
    _name: str = eqx.field(static=True)

    def __init__(
        self, phi: SpectrumFunction | Mapping[float, float] | Iterable[tuple[float, float]]
    ):
        if callable(phi):
            self._steps = ()
            self._table = _Table.tabulate(phi)
            self._name = getattr(phi, "__qualname__", type(phi).__qualname__)
        else:
            self._steps = _normalised_steps(phi)
            self._table = None
            self._name = ""

    @property
    def _as_cvars(self) -> WeightedCVaR:
        """A step function as CVaRs: a step down by d at level a is CVaR(a) with weight a d."""
        levels = [level for level, _ in self._steps]
        heights = [height for _, height in self._steps]
        drops = -np.diff([*heights, 0.0])
        weights = np.array(levels) * drops
        return WeightedCVaR(levels, weights / weights.sum())

    def _spectrum(self, u: Array, xp: Any) -> Array:
        if self._table is None:
            return self._as_cvars._spectrum(u, xp)
        return self._table.spectrum(u, xp)

    def _cumulative(self, u: Array, xp: Any) -> Array:
        if self._table is None:
            return self._as_cvars._cumulative(u, xp)
        return self._table.cumulative(u, xp)

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        """One for each step down; of a function, the mean's share."""
        if self._table is None:
            return self._as_cvars.atoms
        return self._table.atoms

    @property
    def support(self) -> float:
        """Where the spectrum reaches 0."""
        if self._table is None:
            return self._as_cvars.support
        return self._table.support

    def __repr__(self) -> str:
        if self._table is None:
            return f"CustomSpectrum({dict(self._steps)!r})"
        return f"CustomSpectrum({self._name})"

    def __str__(self) -> str:
        return str(self._as_cvars) if self._table is None else f"custom({self._name})"


class _Table:
    """A spectrum as a continuous part and jumps; hashable.

    The continuous part consists of cells, each a parabola through its two ends and its middle. A
    jump by d at level l is a step d 1{u <= l}, so that it is one CVaR and one knot of h.
    """

    def __init__(self, edges: np.ndarray, ends: np.ndarray, middles: np.ndarray):
        jumps = _jumps(edges, ends)
        levels = np.round(edges[jumps], 12)
        falls = ends[jumps] - ends[jumps + 1]
        middles = middles.copy()
        middles[jumps] = ends[jumps]  # inside the cell of a jump the continuous part stands still
        ends = ends - (falls * (np.arange(len(ends))[:, None] <= jumps)).sum(axis=1)
        middles = middles - (falls * (np.arange(len(middles))[:, None] <= jumps)).sum(axis=1)

        widths = np.diff(edges)
        areas = widths * (ends[:-1] + 4 * middles + ends[1:]) / 6
        total = areas.sum() + (levels * falls).sum()
        if not total > 0:
            raise ValueError("`phi` must be positive somewhere in (0, 1), got 0 everywhere.")
        self.edges, self.ends, self.middles = edges, ends / total, middles / total
        self.levels, self.falls = levels, falls / total
        self.below = np.concatenate([[0.0], np.cumsum(areas / total)])
        parts = (self.edges, self.ends, self.middles, self.levels, self.falls)
        self._bytes = b"".join(part.tobytes() for part in parts)

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        steps = zip(self.levels.tolist(), (self.levels * self.falls).tolist(), strict=True)
        at_one = float(self.ends[-1])
        return (*steps, (1.0, at_one)) if at_one > 1e-12 else tuple(steps)

    @property
    def support(self) -> float:
        last = float(self.levels[-1]) if self.levels.size else 0.0
        positive = np.flatnonzero(self.middles > 1e-12)
        return max(last, float(self.edges[positive[-1] + 1]) if positive.size else 0.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Table) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    @classmethod
    def tabulate(cls, phi: SpectrumFunction) -> "_Table":
        evaluate = _vectorised(phi)
        edges = np.linspace(0.0, 1.0, 129)
        ends = evaluate(edges)
        _check_spectrum(edges, ends)
        for _ in range(60):
            widths = np.diff(edges)
            middles = evaluate((edges[:-1] + edges[1:]) / 2)
            left, right = ends[:-1], ends[1:]
            quarter = evaluate(edges[:-1] + widths / 4)
            off = np.abs(quarter - (3 * left + 6 * middles - right) / 8) * widths
            split = (off > _TOLERANCE * ends[0]) & (widths > 1e-13)
            if not split.any() or len(widths) > _MOST_CELLS:
                break
            at = np.flatnonzero(split)
            edges = np.insert(edges, at + 1, edges[at] + widths[at] / 2)
            ends = np.insert(ends, at + 1, middles[at])
        jumps = _jumps(edges, ends)  # where exactly they are
        low, high = edges[jumps], edges[jumps + 1]
        for _ in range(50):
            between = (low + high) / 2
            before = evaluate(between) > (ends[jumps] + ends[jumps + 1]) / 2
            low, high = np.where(before, between, low), np.where(before, high, between)
        edges[jumps], edges[jumps + 1] = low, high
        middles = evaluate((edges[:-1] + edges[1:]) / 2)
        points = np.stack([edges[:-1], (edges[:-1] + edges[1:]) / 2], axis=1).ravel()
        _check_spectrum(
            np.append(points, 1.0),
            np.append(np.stack([ends[:-1], middles], axis=1).ravel(), ends[-1]),
        )
        return cls(edges, ends, middles)

    def _locate(self, u: Array, xp: Any) -> tuple[Array, Array]:
        edges = xp.asarray(self.edges, dtype=u.dtype)
        cell = xp.clip(xp.searchsorted(edges, u, side="left") - 1, 0, len(self.middles) - 1)
        width = edges[cell + 1] - edges[cell]
        place = (u - edges[cell]) / xp.where(width > 0, width, 1.0)
        return cell, xp.clip(place, 0.0, 1.0)

    def _parabola(self, cell: Array, dtype: Any, xp: Any) -> tuple[Array, Array, Array]:
        """Coefficients of a + b t + c t² with t in [0, 1] across the cell."""
        left, middle, right = (
            xp.asarray(part, dtype=dtype)[cell]
            for part in (self.ends[:-1], self.middles, self.ends[1:])
        )
        return left, 4 * middle - 3 * left - right, 2 * left + 2 * right - 4 * middle

    def spectrum(self, u: Array, xp: Any) -> Array:
        cell, t = self._locate(u, xp)
        a, b, c = self._parabola(cell, u.dtype, xp)
        height = xp.maximum(a + t * (b + t * c), 0.0)
        for level, fall in zip(self.levels.tolist(), self.falls.tolist(), strict=True):
            height = height + xp.where(u <= level, fall, 0.0)
        return height

    def cumulative(self, u: Array, xp: Any) -> Array:
        cell, t = self._locate(u, xp)
        a, b, c = self._parabola(cell, u.dtype, xp)
        width = xp.asarray(np.diff(self.edges), dtype=u.dtype)[cell]
        area = xp.asarray(self.below, dtype=u.dtype)[cell]
        area = area + width * t * (a + t * (b / 2 + t * c / 3))
        for level, fall in zip(self.levels.tolist(), self.falls.tolist(), strict=True):
            area = area + fall * xp.minimum(u, level)
        return area


def _jumps(edges: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The cells across which the spectrum falls although they have next to no width."""
    return np.flatnonzero((np.diff(edges) < 1e-9) & (-np.diff(ends) > 1e-9 * ends[0]))


def _normalised_steps(
    phi: Mapping[float, float] | Iterable[tuple[float, float]],
) -> tuple[tuple[float, float], ...]:
    try:
        pairs = list(phi.items()) if isinstance(phi, Mapping) else [(u, h) for u, h in phi]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`phi` must be a function of the rank or steps {{level: height}}, got {phi!r}."
        ) from error
    steps = sorted((real(level, "level"), real(height, "height")) for level, height in pairs)
    levels = np.array([level for level, _ in steps])
    heights = np.array([height for _, height in steps])
    if not steps or levels[-1] != 1.0 or not np.all(levels > 0) or np.any(np.diff(levels) == 0):
        raise ValueError(
            f"The levels of `phi` must be distinct, in (0, 1], and end at 1, got {levels.tolist()}."
        )
    _check_spectrum(levels, heights)
    total = float(np.sum(np.diff(levels, prepend=0.0) * heights))
    if not total > 0:
        raise ValueError("`phi` must be positive somewhere in (0, 1), got 0 everywhere.")
    return tuple((float(level), float(height / total)) for level, height in steps)


def _check_spectrum(ranks: np.ndarray, heights: np.ndarray) -> None:
    """Raises unless the heights at increasing ranks are finite, non-negative, non-increasing."""
    bad = ~np.isfinite(heights)
    if bad.any():
        at = ranks[bad][0]
        raise ValueError(
            f"`phi` must be bounded, got {heights[bad][0]} at u = {at:g}. Cap it, for example with "
            "np.minimum, at the largest weight the worst outcome may have."
        )
    if np.any(heights < 0):
        at = np.flatnonzero(heights < 0)[0]
        raise ValueError(f"`phi` must be non-negative, got {heights[at]:g} at u = {ranks[at]:g}.")
    rises = np.diff(heights) > 1e-12 * max(float(heights[0]), 1e-300)
    if rises.any():
        at = np.flatnonzero(rises)[0]
        raise ValueError(
            f"`phi` must not increase, or better outcomes would count more than worse ones; got "
            f"{heights[at]:g} at u = {ranks[at]:g} and {heights[at + 1]:g} at u = "
            f"{ranks[at + 1]:g}."
        )


def _vectorised(phi: SpectrumFunction) -> Callable[[np.ndarray], np.ndarray]:
    """`phi` on arrays, whether it takes arrays or single numbers."""

    def one_by_one(u: np.ndarray) -> np.ndarray:
        out = np.empty(u.shape)
        for i, rank in enumerate(u):
            try:
                out[i] = float(phi(float(rank)))
            except ZeroDivisionError:
                out[i] = np.inf
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"`phi` must give a number for each rank u in [0, 1]; at u = {rank:g} it "
                    f"failed: {error}"
                ) from error
        return out

    def evaluate(u: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            try:
                out = np.asarray(phi(u), dtype=float)
            except (TypeError, ValueError):
                return one_by_one(u)
        return out if out.shape == u.shape else one_by_one(u)

    return evaluate
