r"""An upper bound for a sum of CVaRs: branch and bound over boxes of knots."""

import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from downside.exact.curve import Curve
from downside.exact.lattice import Lattice
from downside.exact.recursion import backward, start_value
from downside.risk import AbstractSpectralRisk, Utility

Box = tuple[tuple[float, float], ...]
"""An interval for the knot of each level."""


class BoxBounds(NamedTuple):
    """What branch and bound came to."""

    upper: float
    """What no policy exceeds."""
    solves: int
    """How many recursions it took."""
    highest: Box | None
    """The box that the bound comes from, if it is still open."""


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


def box_bounds(
    lattice: Lattice,
    curve: Curve,
    risk: AbstractSpectralRisk,
    *,
    lower: float,
    tolerance: float,
    max_solves: int = 400,
    deadline: float = math.inf,
    report: Callable[[float], None] | None = None,
) -> BoxBounds:
    r"""Bounds $\max_\pi \rho$ for $\rho = \sum_k w_k\, \mathrm{CVaR}_{\alpha_k}$ from above.

    $\rho(G) = \mathbb{E}[h_b(G)]$ where $b_k$ is an $\alpha_k$-quantile of G. For all policies
    whose quantiles lie in a box, ρ is at most the best expectation of `box_utility`, one recursion,
    and at most the sum of the best single CVaRs with knots in its intervals, which is known. Boxes
    are halved where the bound is highest; the excess of a box falls with the square of its size.

    Arguments:
        lattice: the problem; all boxes are of one lattice.
        curve: its J(b) for single CVaRs.
        risk: the measure.
        lower: what a policy achieves; boxes below are dropped.
        tolerance: stop when no box is higher than `lower` by more.
        max_solves: stop after so many recursions.
        deadline: stop at this time of `time.perf_counter`.
        report: called with the bound after every recursion.
    """
    below = [(level, weight) for level, weight in risk.atoms if level < 1.0]
    mean = sum(weight for level, weight in risk.atoms if level >= 1.0)
    levels = np.array([level for level, _ in below])
    weights = np.array([weight for _, weight in below])
    extra = float(weights @ lattice.allowance(levels)) + lattice.rounding
    low, high = lattice.return_range
    low, high = low - lattice.width * (lattice.cut + 1), high + lattice.width * (lattice.cut + 1)
    number = itertools.count()
    heap: list[tuple[float, int, bool, Box]] = []
    closed = [-math.inf]

    def add(box: Box, most: float) -> None:
        if any(a[0] > b[1] for a, b in itertools.pairwise(box)):
            return  # a larger level has the larger quantile
        best = np.array(
            [curve.highest(level, *side) for level, side in zip(levels, box, strict=True)]
        )
        apart = float(weights @ np.minimum(best, lattice.best_mean)) + mean * lattice.best_mean
        bound = min(most, apart + extra)
        if bound <= lower + tolerance:
            closed.append(bound)
            return
        heapq.heappush(heap, (-bound, next(number), False, box))

    add(((low, high),) * len(below), math.inf)
    solves = 0
    while heap and solves < max_solves and time.perf_counter() < deadline:
        bound, _, solved, box = heapq.heappop(heap)
        if not solved:
            box = _contracted(box, curve, risk, lattice, lower - extra)
            utility = box_utility(risk, box)
            windows = lattice.windows(utility)
            value = start_value(lattice, utility, windows, backward(lattice, utility, windows))
            solves += 1
            better = min(-bound, value + extra)
            if better <= lower + tolerance:
                closed.append(better)
            else:
                heapq.heappush(heap, (-better, next(number), True, box))
            if report is not None:
                report(max(closed[-1], -heap[0][0] if heap else -math.inf))
            continue
        widths = [weight * (side[1] - side[0]) for weight, side in zip(weights, box, strict=True)]
        axis = int(np.argmax(widths))
        start, end = box[axis]
        if end - start <= lattice.width:  # no smaller box can say more
            closed.append(-bound)
            break
        middle = start + (end - start) / 2
        for side in ((start, middle), (middle, end)):
            add((*box[:axis], side, *box[axis + 1 :]), -bound)
    upper = max([*closed, *(-entry[0] for entry in heap)])
    highest = min(heap)[3] if heap else None
    return BoxBounds(min(upper, lattice.best_mean), solves, highest)


def _contracted(
    box: Box, curve: Curve, risk: AbstractSpectralRisk, lattice: Lattice, wanted: float
) -> Box:
    """The box without ends at which the best single CVaRs together stay below what is wanted."""
    most, parts = lattice.best_mean, [part for part in risk.atoms if part[0] < 1.0]
    mean = most * sum(weight for level, weight in risk.atoms if level >= 1.0)
    sides = list(box)
    for axis, (level, weight) in enumerate(parts):
        others = mean + sum(
            w * min(curve.highest(a, *side), most)
            for k, ((a, w), side) in enumerate(zip(parts, sides, strict=True))
            if k != axis
        )
        needed, (low, high) = (wanted - others) / weight, sides[axis]
        first, last = float(curve.knots[0]), float(curve.knots[-1])
        untabulated = (low < first and min(high, first) >= needed) or (
            high > last and curve.highest(level, max(low, last), high) >= needed
        )
        inside = (curve.knots >= low) & (curve.knots <= high)
        good = curve.knots[inside & (curve.values(level) >= needed)]
        if good.size and not untabulated:
            low, high = max(low, good[0] - lattice.width), min(high, good[-1] + lattice.width)
            sides[axis] = (float(low), float(high))
    return tuple(sides)
