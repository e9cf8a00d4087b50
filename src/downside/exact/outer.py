r"""The outer problem of section 4: which utility h?

$\max_\pi \rho(G^\pi) = \max_h \max_\pi \mathbb{E}[h(G^\pi)]$ over the h of the measure's family,
for which the conjugate term is 0. The paper alternates: the best policy for h, then the best h for
that policy. J never falls on the way, but it may stop short of the optimum: where $\phi(1) = 0$,
doing nothing is a fixed point. So there is a global search beside it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from downside.exact.bounds import certified_bounds
from downside.exact.boxes import ListedBoxes
from downside.exact.problem import AbstractProblem, Solution
from downside.risk import AbstractSpectralRisk, CVaR, Distribution, Mean, Utility

Progress = Callable[[str, float], None]
"""Called after every inner solution with what is being done and its J."""

_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_EXACT = 1e-12
"""Bounds this close, relative to the returns, are equal."""
_QUANTILES = 200
"""Knots of h for a spectrum that is not a finite sum of CVaRs."""


class Round(NamedTuple):
    """One inner solution of the search."""

    start: str
    """Where this climb began."""
    value: float
    """J: the optimum of the inner problem."""
    utility: Utility
    """The h it was solved for."""


class SearchResult(NamedTuple):
    """What the outer search came back with."""

    solution: Solution
    """The best inner solution."""
    utility: Utility
    """Its h."""
    start: str
    """The start that led to it."""
    alternation: Round
    """The best that `rounds` of the paper's alternation reach, from the risk-neutral policy."""
    trace: tuple[Round, ...]
    """Every inner solution, in order."""
    upper: float | None = None
    """What no policy exceeds, where the search can tell."""


class _Search:
    """Inner solutions are remembered by value alone; only the best keeps its policy."""

    def __init__(
        self, problem: AbstractProblem, risk: AbstractSpectralRisk, progress: Progress | None
    ):
        self.problem, self.risk, self.progress = problem, risk, progress
        self.trace: list[Round] = []
        self.best: tuple[Solution, Utility, str] | None = None

    def solve(self, utility: Utility, start: str) -> Solution:
        solution = self.problem.solve(utility)
        self.trace.append(Round(start, solution.value, utility))
        if self.progress is not None:
            self.progress(start, solution.value)
        if self.best is None or solution.value > self.best[0].value:
            self.best = solution, utility, start
        return solution

    def utility(self, returns: Distribution) -> Utility:
        """The best h for these returns; dense spectra get it at equally likely quantiles."""
        if self.risk.is_finite_mixture or returns.values.shape[0] <= _QUANTILES:
            return self.risk.utility(returns)
        ranks = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        return self.risk.utility(_quantiles(returns, ranks))

    def climb(self, utility: Utility, start: str, rounds: int, tolerance: float) -> None:
        """The paper's alternation, until J gains less than `tolerance` twice in a row."""
        reached, stalled = -np.inf, 0
        for _ in range(rounds):
            solution = self.solve(utility, start)
            stalled = stalled + 1 if solution.value < reached + tolerance else 0
            reached = max(reached, solution.value)
            if stalled == 2:
                break
            utility = self.utility(self.problem.returns(solution.policy))

    def refine(self, utility_of: Callable[[np.ndarray], Utility], point: np.ndarray, scale: float):
        """Coordinate search for a better h around `point`, with steps that shrink."""
        value = self.solve(utility_of(point), "local refinement").value
        step = np.full(len(point), scale)
        for _ in range(4):
            for i in range(len(point)):
                for sign in (1.0, -1.0):
                    trial = point.copy()
                    trial[i] += sign * step[i]
                    got = self.solve(utility_of(trial), "local refinement").value
                    if got > value:
                        point, value = trial, got
                        break
            step /= 2.5


def search(
    problem: AbstractProblem,
    risk: AbstractSpectralRisk,
    *,
    rounds: int = 20,
    solves: int = 40,
    enough: float = 0.0,
    seconds: float = 30.0,
    progress: Progress | None = None,
) -> SearchResult:
    """The best utility for `risk`: the alternation, and a global search over knots.

    Arguments:
        problem: what to solve.
        risk: the measure. For a sum of CVaRs and a problem whose returns are listed, branch and
            bound over knots: the optimum, with an upper bound if time is up before. With one knot
            otherwise, the knots that bounds on J leave open, up to a tolerance. With more, the best
            of several climbs and of a local refinement, without a proof that it is the optimum.
        rounds: how many rounds the alternation may take from each start.
        solves: how many knots the search on a line may try, where it cannot try all that matter.
        enough: where returns are listed, the gap between the bounds at which it may stop after a
            quarter of the time,
        seconds: and about how long it may take in all.
        progress: called after every inner solution.
    """
    run = _Search(problem, risk, progress)
    neutral = problem.solve(Mean().utility(np.zeros(1)))
    returns = problem.returns(neutral.policy)
    del neutral
    low, high = problem.return_range
    tolerance = 1e-4 * max(high - low, 1e-12)
    run.climb(run.utility(returns), "risk-neutral", rounds, 0.1 * tolerance)  # it may creep
    alternation = max(run.trace, key=lambda round_: round_.value)
    knots = sum(level < 1.0 for level, _ in risk.atoms) if risk.is_finite_mixture else _QUANTILES
    upper = None
    if knots == 0:
        upper = alternation.value
    elif risk.is_finite_mixture and problem.attainable_returns is not None:
        upper = _search_boxes(run, enough, seconds)
    elif knots == 1:
        _search_line(run, low, high, solves)
    else:
        _search_starts(run, returns, rounds, tolerance)
    assert run.best is not None
    solution, utility, start = run.best
    # The best h for the policy that was found is at least as good, and exact where knots are not.
    run.climb(run.utility(problem.returns(solution.policy)), "the best of these", 2, tolerance)
    solution, utility, _ = run.best
    return SearchResult(solution, utility, start, alternation, tuple(run.trace), upper)


def polish(
    problem: AbstractProblem, risk: AbstractSpectralRisk, candidates: Sequence[Round]
) -> SearchResult:
    """Solves again for the utilities found on a coarser problem, then alternates from the best."""
    run = _Search(problem, risk, None)
    for candidate in candidates:
        run.solve(candidate.utility, candidate.start)
    assert run.best is not None
    solution, utility, start = run.best
    run.climb(run.utility(problem.returns(solution.policy)), start, 2, 0.0)
    solution, utility, _ = run.best
    return SearchResult(solution, utility, start, run.trace[0], tuple(run.trace))


def _search_boxes(run: _Search, enough: float, seconds: float) -> float:
    """Branch and bound over attainable knots: what no policy exceeds (`boxes.py`).

    The policy of every box is valued, so that both sides close: entirely, or `enough` when a
    quarter of the time is over.
    """
    problem, risk, attainable = run.problem, run.risk, run.problem.attainable_returns
    assert attainable is not None
    exact = _EXACT * max(float(np.abs(attainable).max()), float(np.ptp(attainable)))

    def bound(utility: Utility) -> float:
        value, policy = problem.solve(utility)
        returns = problem.returns(policy)
        achieved = float(risk(returns.values, returns.probabilities))
        if run.best is None or achieved > run.best[0].value:
            run.solve(risk.utility(returns), "boxes of knots")
        return value

    begin = time.perf_counter()
    boxes = ListedBoxes(risk, attainable, bound)
    while not boxes.done:
        assert run.best is not None
        gap, spent = boxes.upper - run.best[0].value, time.perf_counter() - begin
        if gap <= exact or spent > seconds or (gap <= enough and spent > 0.25 * seconds):
            break
        boxes.halve()
    assert run.best is not None
    return max(boxes.upper, run.best[0].value)


class _Recorded(AbstractProblem):
    """The problem as the certified search sees it: every solve goes into the trace."""

    def __init__(self, run: _Search):
        self._run = run

    def solve(self, utility: Utility) -> Solution:
        return self._run.solve(utility, "knots by their bounds")

    def returns(self, policy: Any) -> Distribution:
        return self._run.problem.returns(policy)

    @property
    def return_range(self) -> tuple[float, float]:
        return self._run.problem.return_range


def _search_line(run: _Search, low: float, high: float, solves: int) -> None:
    """Where the bounds on J leave most room, for so many solves.

    J may have several peaks, so the next knot is always the one whose upper bound is highest
    (`bounds.py`). Then a golden section around the best: bounds are slow to close where J is flat.
    """
    if not high > low:
        run.solve(run.risk.utility_at(np.array([low])), "the only return")
        return
    certified_bounds(_Recorded(run), run.risk, tolerance=1e-3 * (high - low), max_solves=solves)
    assert run.best is not None
    tried = sorted({float(one.utility.knots[0]) for one in run.trace})
    best = tried.index(float(run.best[1].knots[0]))
    left, right = tried[max(best - 1, 0)], tried[min(best + 1, len(tried) - 1)]

    def value(knot: float) -> float:
        return run.solve(run.risk.utility_at(np.array([knot])), "golden section").value

    inner = [right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)]
    values = [value(knot) for knot in inner]
    while right - left > 5e-4 * (high - low):
        if values[0] >= values[1]:
            right = inner[1]
            inner = [right - _GOLDEN * (right - left), inner[0]]
            values = [value(inner[0]), values[0]]
        else:
            left = inner[0]
            inner = [inner[1], left + _GOLDEN * (right - left)]
            values = [values[1], value(inner[1])]


def _search_starts(run: _Search, neutral: Distribution, rounds: int, tolerance: float) -> None:
    """Climbs from h as narrow and as wide distributions would give it, then refines the best."""
    ranks = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    wide = _quantiles(neutral, ranks)
    middle = float(np.median(wide))
    for name, share in (("half the spread", 0.5), ("a quarter of the spread", 0.25)):
        start = middle + share * (wide - middle)
        run.climb(run.risk.utility(start), name, rounds, tolerance)
    levels = [level for level, _ in run.risk.atoms if level < 1.0] or [0.1, 0.4]
    for level in levels:
        policy = _best_cvar(run.problem, CVaR(level))
        start = run.utility(run.problem.returns(policy))
        run.climb(start, f"the plan for cvar({level:g})", rounds, tolerance)
    assert run.best is not None
    spread = float(wide.std())
    if run.risk.is_finite_mixture:
        run.refine(run.risk.utility_at, np.asarray(run.best[1].knots, dtype=float), 0.1 * spread)
    else:
        base = np.asarray(run.best[1].knots, dtype=float)
        centre = float(np.median(base))

        def moved(change: np.ndarray) -> Utility:
            return run.risk.utility(centre + change[0] + (1 + change[1]) * (base - centre))

        run.refine(moved, np.zeros(2), 0.1)


def _best_cvar(problem: AbstractProblem, risk: CVaR) -> Any:
    """A good policy for one CVaR, from a few knots."""
    knots = np.linspace(*problem.return_range, 9)
    best = max(knots, key=lambda knot: problem.solve(risk.utility_at(np.array([knot]))).value)
    return problem.solve(risk.utility_at(np.array([best]))).policy


def _quantiles(returns: Distribution, ranks: np.ndarray) -> np.ndarray:
    """Quantiles of a large distribution, by a search instead of a comparison of all with all."""
    index = np.searchsorted(np.asarray(returns.cumulative), ranks)
    return np.asarray(returns.values)[np.minimum(index, returns.values.shape[0] - 1)]
