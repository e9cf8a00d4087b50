r"""Branch and bound over boxes of knots: the optimum of a sum of CVaRs from above.

$\rho(G) = \mathbb{E}[h_b(G)]$ where each $b_k$ is an $\alpha_k$-quantile of G. For all policies
whose quantiles lie in a box, ρ is at most the best expectation of `box_utility`, one recursion. Of
these bounds the highest is that of all policies; its box is halved. The excess of a box falls with
the square of its size.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from downside.exact.curve import knot_values
from downside.exact.lattice import Lattice
from downside.risk import AbstractSpectralRisk, Utility

Box = tuple[tuple[float, float], ...]
"""An interval for the knot of each level."""


def box_utility(risk: AbstractSpectralRisk, box: Box) -> Utility:
    r"""The smallest function above $h_b$ for all knots b in a box.

    For one level it is $w (\mathrm{low} + (z - \mathrm{low}) / \alpha)$ below the interval, w z
    inside, and w high above: concave again, with the two ends as knots.
    """
    knots, drops, offset, linear = [], [], 0.0, 0.0
    intervals = iter(box)
    for level, weight in risk.atoms:
        if level >= 1.0:
            linear += weight
            continue
        low, high = next(intervals)
        knots += [low, high]
        drops += [weight * (1.0 / level - 1.0), weight]
        offset += weight * high
    return Utility(np.array(knots), np.array(drops), linear=linear, offset=offset)


def _in_order(box: Box) -> bool:
    """Whether some knots of the box rise with the level, as quantiles do."""
    highest = -math.inf
    for low, high in box:
        highest = max(highest, low)
        if highest > high:
            return False
    return True


def _steepness(risk: AbstractSpectralRisk) -> Float[np.ndarray, " k"]:
    """How much the interval of each level matters."""
    return np.array([weight / level for level, weight in risk.atoms if level < 1.0])


class ListedBoxes:
    """Boxes of attainable returns; for problems whose nodes are all listed.

    The best knots are attainable returns, so the intervals are ranges of their numbers, and a box
    of single knots is exact.

    Arguments:
        risk: a finite sum of CVaRs.
        attainable: every return that some policy can end with, in increasing order.
        bound: the best expectation of a utility.
    """

    def __init__(
        self,
        risk: AbstractSpectralRisk,
        attainable: Float[np.ndarray, " n"],
        bound: Callable[[Utility], float],
    ):
        self._risk, self._returns, self._bound = risk, attainable, bound
        self._steepness, self._number = _steepness(risk), itertools.count()
        self._open: list[tuple[float, int, tuple[tuple[int, int], ...]]] = []
        self._closed = -math.inf
        self._add(((0, attainable.size - 1),) * self._steepness.size, math.inf)

    @property
    def upper(self) -> float:
        """What no policy exceeds."""
        return max(self._closed, -self._open[0][0] if self._open else -math.inf)

    @property
    def done(self) -> bool:
        """Whether nothing is left to halve."""
        return not self._open

    def halve(self) -> None:
        """Halve the box with the highest bound."""
        bound, _, box = heapq.heappop(self._open)
        ends = self._returns[np.array(box)]
        axis = int(np.argmax(self._steepness * (ends[:, 1] - ends[:, 0])))
        first, last = box[axis]
        if first == last:  # all knots are known
            self._closed = max(self._closed, -bound)
            return
        middle = int(np.searchsorted(self._returns, ends[axis].mean()))
        middle = min(max(middle, first + 1), last)
        for side in ((first, middle - 1), (middle, last)):
            self._add((*box[:axis], side, *box[axis + 1 :]), -bound)

    def _add(self, box: tuple[tuple[int, int], ...], most: float) -> None:
        ends = tuple((float(self._returns[a]), float(self._returns[b])) for a, b in box)
        if _in_order(ends):
            bound = min(most, self._bound(box_utility(self._risk, ends)))
            heapq.heappush(self._open, (-bound, next(self._number), box))


class Distances(NamedTuple):
    """A box of distances between the first knot and the others, with its bound."""

    bound: float
    """What no policy with knots at these distances exceeds."""
    box: Box
    """An interval for the distance of each knot but the first."""
    level: int
    """The number of the lattice that the bound is from."""
    knots: tuple[float, ...]
    """Knots in the box, the first where the bound is highest."""


class DistanceBoxes:
    r"""Boxes of distances between knots, on a lattice.

    An episode that starts with -b instead of nothing ends with G - b. So one recursion for a first
    knot of 0 has the answer for every first knot (`curve.py`), and only the distances of the others
    from it are halved: for two levels, one interval.

    Arguments:
        risk: a finite sum of at least two CVaRs.
        lattices: the problem, from coarse to fine. A box moves on to the next where rounding is
            most of what is missing.
    """

    def __init__(self, risk: AbstractSpectralRisk, lattices: list[Lattice]):
        self._risk, self._lattices = risk, lattices
        self._below = [(level, weight) for level, weight in risk.atoms if level < 1.0]
        self._steepness, self._number = _steepness(risk)[1:], itertools.count()
        self._extra: dict[int, float] = {}
        self._open: list[tuple[float, int, Distances]] = []
        self._closed = -math.inf
        low, high = lattices[0].return_range
        widest = high - low + 2 * lattices[0].width * (lattices[0].cut + 1)
        self._add(((0.0, widest),) * self._steepness.size, 0, math.inf)

    @property
    def highest(self) -> Distances | None:
        """The box with the highest bound that can still be halved."""
        return self._open[0][2] if self._open else None

    @property
    def upper(self) -> float:
        """What no policy exceeds."""
        return max(self._closed, self._open[0][2].bound if self._open else -math.inf)

    def next_level(self, lower: float) -> int:
        """The number of the lattice that `refine` needs next."""
        node = self._open[0][2]
        finer = self._allowance(node.level) > 0.5 * (node.bound - lower)
        return min(node.level + int(finer), len(self._lattices) - 1)

    def refine(self, lower: float) -> None:
        """Halve the highest box, or look at it on a finer lattice; `lower` is what is achieved."""
        level = self.next_level(lower)
        _, _, node = heapq.heappop(self._open)
        if level > node.level:
            self._add(node.box, level, node.bound)
            return
        sizes = np.array([high - low for low, high in node.box])
        axis = int(np.argmax(self._steepness * sizes))
        low, high = node.box[axis]
        if high - low <= self._lattices[level].width:  # no smaller box can say more
            self._closed = max(self._closed, node.bound)
            return
        middle = low + (high - low) / 2
        for side in ((low, middle), (middle, high)):
            self._add((*node.box[:axis], side, *node.box[axis + 1 :]), level, node.bound)

    def _allowance(self, level: int) -> float:
        if level not in self._extra:
            lattice = self._lattices[level]
            levels, weights = (np.array(column) for column in zip(*self._below, strict=True))
            self._extra[level] = float(weights @ lattice.allowance(levels)) + lattice.rounding
        return self._extra[level]

    def _add(self, box: Box, level: int, most: float) -> None:
        whole = ((0.0, 0.0), *box)
        if not _in_order(whole):
            return
        knots, worth = knot_values(self._lattices[level], box_utility(self._risk, whole))
        values = knots + worth
        best = int(np.argmax(values))
        bound = min(most, float(values[best]) + self._allowance(level))
        middle = np.maximum.accumulate([0.0, *((low + high) / 2 for low, high in box)])
        at = tuple((float(knots[best]) + middle).tolist())
        node = Distances(bound, box, level, at)
        heapq.heappush(self._open, (-bound, next(self._number), node))
