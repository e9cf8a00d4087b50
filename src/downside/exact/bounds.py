r"""The optimum of a measure with one knot, from below and from above."""

import heapq
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from downside._arrays import real
from downside.exact.problem import AbstractProblem
from downside.risk import AbstractSpectralRisk, as_risk


class Evaluation(NamedTuple):
    """One solve of the inner problem, and the bounds that were known after it."""

    knot: float
    """Where h bent."""
    value: float
    """J(b): the best E[h(G)] for that h."""
    lower: float
    """The largest value that a policy found so far has."""
    upper: float
    """What no policy exceeds."""


class Bounds(NamedTuple):
    """An interval that contains the optimum."""

    lower: float
    """The value of `policy`, less the problem's own error."""
    upper: float
    """What no policy exceeds, the problem's own error included."""
    knot: float | None
    """The knot of h for which `policy` is optimal; None for the mean, whose h has no knot."""
    policy: Any
    """A policy that attains `lower`."""
    solves: int
    """How often the inner problem was solved."""
    trace: tuple[Evaluation, ...]
    """Every solve, in order; without the problem's own error."""

    @property
    def gap(self) -> float:
        """How far `policy` can be from the optimum."""
        return self.upper - self.lower


def certified_bounds(
    problem: AbstractProblem,
    risk: AbstractSpectralRisk | str,
    *,
    tolerance: float = 1e-3,
    max_solves: int = 200,
    error: float | None = None,
) -> Bounds:
    r"""Both sides of $\max_\pi \rho(G^\pi)$ for $\rho = w\,\mathrm{CVaR}_\alpha + (1 - w)\,$mean.

    The optimum is $\max_b J(b)$ with $J(b) = \max_\pi \mathbb{E}[h_b(G^\pi)]$ and
    $h_b(z) = w (b + (z - b)^- / \alpha) + (1 - w) z$. For every policy the derivative in b is
    $w (1 - P(G < b) / \alpha)$, which lies between $-w (1/\alpha - 1)$ and $w$; a maximum of such
    functions keeps these slopes. So between two points $b_i < b_j$

    $J(b) \le \min\{J(b_i) + w (b - b_i),\; J(b_j) + w (1/\alpha - 1)(b_j - b)\}$,

    whose highest point is where the two lines cross. The inner problem is solved next where this
    bound is highest over all gaps (Piyavskii and Shubert), until no gap reaches more than
    `tolerance` above the best value.

    In a `FiniteProblem` only knots at attainable returns matter: between two neighbouring ones
    every policy's $\mathbb{E}[h_b(G)]$ is linear in b, so J is convex there and no larger than at
    the ends. The interval can then close entirely. And as its `returns` are exact, the value
    $\rho(G^\pi) \ge J(b)$ of each policy counts from below.

    Arguments:
        problem: what is to be solved. The knot is looked for inside its `return_range`, so the
            upper bound holds for policies whose α-quantile lies there.
        risk: a measure whose h has at most one knot, or its text.
        tolerance: how wide the interval may stay, before the problem's own error.
        max_solves: stop after this many inner solves, whatever the width; the bounds still hold.
        error: how far the problem's values can be from the true ones. By default what the problem
            says of itself (`error_bound`), or 0.
    """
    risk = as_risk(risk)
    below = [(level, weight) for level, weight in risk.atoms if level < 1.0]
    if not risk.is_finite_mixture or len(below) > 1:
        raise ValueError(
            f"`risk` must be one CVaR, the mean, or a weighted sum of the two, got {risk}. With "
            "more levels the slopes of J in one knot say nothing of the others: use a search."
        )
    tolerance = real(tolerance, "tolerance")
    if not tolerance >= 0.0:
        raise ValueError(f"`tolerance` must be at least 0, got {tolerance}.")
    if isinstance(max_solves, bool) or not isinstance(max_solves, int) or max_solves < 2:
        raise ValueError(
            f"`max_solves` must be a whole number of at least 2, got {max_solves!r}: both ends of "
            "the range of returns come first."
        )
    if error is None:
        stated: Callable[[Any], float] | None = getattr(problem, "error_bound", None)
        error = 0.0 if stated is None else stated(risk)
    if not below:
        value, policy = problem.solve(risk.utility_at(np.zeros(0)))
        once = (Evaluation(math.nan, value, value, value),)
        return Bounds(value - error, value + error, None, policy, 1, once)
    level, weight = below[0]
    search = _Search(problem, risk, rise=weight, fall=weight * (1.0 / level - 1.0))
    while search.upper > search.lower + tolerance and len(search.trace) < max_solves:
        search.refine()
    return Bounds(
        lower=search.lower - error,
        upper=search.upper + error,
        knot=search.knot,
        policy=search.policy,
        solves=len(search.trace),
        trace=tuple(search.trace),
    )


class _Search:
    """Gaps between solved knots, the one with the highest upper bound first."""

    def __init__(
        self, problem: AbstractProblem, risk: AbstractSpectralRisk, *, rise: float, fall: float
    ):
        self._problem, self._risk = problem, risk
        self._rise, self._fall = rise, fall
        self._attainable = problem.attainable_returns
        self._values: dict[float, float] = {}
        # (-bound, knot to solve next, left end, right end): a heap has its smallest entry first.
        self._gaps: list[tuple[float, float, float, float]] = []
        self.trace: list[Evaluation] = []
        self.lower, self.knot, self.policy = -math.inf, math.nan, None
        low, high = problem.return_range
        self._solve(low, [])  # alone it bounds nothing, unless it is the only return there is
        if high > low:
            self._solve(high, [low])

    @property
    def upper(self) -> float:
        """The highest bound of any gap."""
        return max(self.lower, -self._gaps[0][0] if self._gaps else self.lower)

    def refine(self) -> None:
        """Solve where the bound is highest, which cuts that gap in two."""
        _, knot, left, right = heapq.heappop(self._gaps)
        self._solve(knot, [left, right])

    def _solve(self, knot: float, neighbours: list[float]) -> None:
        value, policy = self._problem.solve(self._risk.utility_at(np.array([knot])))
        attained = self._values[knot] = value
        if self._attainable is not None:  # elsewhere `returns` may be an estimate
            returns = self._problem.returns(policy)
            attained = max(value, float(self._risk(returns.values, returns.probabilities)))
        if attained > self.lower:
            self.lower, self.knot, self.policy = attained, knot, policy
        for other in neighbours:
            self._add_gap(min(knot, other), max(knot, other))
        upper = self.upper if neighbours else math.inf
        self.trace.append(Evaluation(knot, value, self.lower, upper))

    def _add_gap(self, left: float, right: float) -> None:
        """Put a gap in line, unless nothing inside can be higher than at its ends."""
        at_left, at_right = self._values[left], self._values[right]
        if self._attainable is None:
            along = (at_right - at_left + self._fall * (right - left)) / (self._rise + self._fall)
            inside = np.array([left + along])
        else:
            begin, end = np.searchsorted(self._attainable, [left, right])
            inside = self._attainable[begin + 1 : end]
        inside = inside[(inside > left) & (inside < right)]
        if inside.size == 0:
            return
        from_left = at_left + self._rise * (inside - left)
        from_right = at_right + self._fall * (right - inside)
        bound = np.minimum(from_left, from_right)
        highest = int(np.argmax(bound))
        heapq.heappush(self._gaps, (-float(bound[highest]), float(inside[highest]), left, right))
