"""The optimum of a finite problem from both sides, on lattices as fine as they need to be."""

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from downside.exact.boxes import DistanceBoxes
from downside.exact.curve import Curve, curve_of, spectral_upper
from downside.exact.lattice import Lattice
from downside.exact.lattice_problem import LatticeProblem
from downside.exact.mdp import FiniteMDP
from downside.exact.outer import Progress, Round
from downside.exact.problem import AbstractFiniteProblem
from downside.exact.refinement import Limits, Refinement, check_horizon
from downside.risk import AbstractSpectralRisk, Distribution, Utility

_QUICK = 1e7
"""Points times outcomes that are spent in any case."""
_MOST_GROUPS = 5000
"""Returns of a policy are kept apart no further than this many."""
_FINEST = 64
"""and at most this many times finer than the lattice."""
_ROUNDS = 20
"""How many rounds the alternation may take."""
_COARSER = 4.0
"""Lattices for branch and bound are this much coarser, one than the other."""
_QUANTILES = 200
"""Knots of h for a spectrum that is not a finite sum of CVaRs."""


class FinitePlan(NamedTuple):
    """What is known of the optimum of a finite problem."""

    problem: AbstractFiniteProblem
    """What was solved."""
    policy: Any
    """The policy."""
    value: float
    """What it achieves."""
    upper: float
    """What no policy exceeds."""
    utility: Utility
    """The h that it is optimal for."""
    start: str
    """How it was found."""
    alternation: float
    """What the paper's alternation reaches; on a coarse lattice, if there is one."""
    trace: tuple[Round, ...]
    """Every inner solution."""
    tolerance: float
    """How far apart the bounds may be."""
    note: str
    """What stopped the refinement, if the bounds are further apart than that."""


def certify(
    mdp: FiniteMDP,
    risk: AbstractSpectralRisk,
    limits: Limits,
    *,
    progress: Progress | None = None,
    achieved: float | None = None,
) -> FinitePlan:
    """A policy for `risk`, its value, and an upper bound of the optimum.

    Arguments:
        mdp: the problem.
        risk: the measure.
        limits: when to stop.
        progress: called after every recursion.
        achieved: what a policy is known to achieve, if only the upper bound matters.
    """
    knots = sum(level < 1.0 for level, _ in risk.atoms)
    if knots or not risk.is_finite_mixture:
        check_horizon(mdp, limits)
    run = _Run(Refinement(mdp, limits), risk, progress)
    if risk.is_finite_mixture and knots == 0:
        return run.mean()
    run.fine.check()
    if achieved is not None:
        run.value = achieved
    else:
        run.search()
    if risk.is_finite_mixture and knots == 1:
        run.one_knot()
    elif risk.is_finite_mixture:
        run.several_knots()
    else:
        run.dense()
    return run.result()


class _Run:
    def __init__(
        self, refinement: Refinement, risk: AbstractSpectralRisk, progress: Progress | None
    ):
        self.fine, self.risk, self.progress = refinement, risk, progress
        self.below = [(level, weight) for level, weight in risk.atoms if level < 1.0]
        self.upper, self.value = refinement.base.best_mean, -math.inf
        self.policy: Any = None
        self.problem: LatticeProblem | None = None
        self.returns: Distribution | None = None
        self.utility = Utility(np.zeros(0), np.zeros(0))
        self.start, self.alternation, self.needed = "", -math.inf, ""
        self.trace: list[Round] = []

    # --- shared steps ---------------------------------------------------------------------------

    def record(self, start: str, value: float, utility: Utility) -> None:
        self.trace.append(Round(start, value, utility))
        if self.progress is not None:
            self.progress(start, value)

    def keep(
        self, problem: LatticeProblem, utility: Utility, start: str, *, finer: bool = True
    ) -> float:
        """Solve for h, evaluate the policy, keep it if it is the best; its value.

        With `finer`, paths are kept apart until that makes no difference to the value.
        """
        solution = problem.solve(utility)
        self.record(start, solution.value, utility)
        follow = 1
        while True:
            earned = problem.achieved(solution.policy, follow=follow)
            value = earned.value(self.risk) - problem.lattice.rounding
            returns = earned.distribution()
            likely = float(self.risk(returns.values, returns.probabilities))
            lost, bearable = likely - value, 0.1 * self.fine.tolerance
            close = self.upper - value <= self.fine.tolerance or lost <= bearable
            late = time.perf_counter() > self.fine.deadline
            if close or late or not finer or likely <= self.value or follow >= _FINEST:
                break
            if earned.values.size > _MOST_GROUPS:
                break
            # What is lost falls with the square of the width.
            follow = min(_FINEST, follow * math.ceil(min(8.0, math.sqrt(lost / bearable))))
        if value > self.value:
            self.value, self.policy, self.utility, self.start = (
                value,
                solution.policy,
                utility,
                start,
            )
            self.problem, self.returns = LatticeProblem(problem.lattice, follow=follow), returns
        return value

    def search(self) -> None:
        """The paper's alternation and, for several knots, a climb from those of single CVaRs."""
        fine = self.fine
        probe = Utility(np.array([fine.base.best_mean]), np.ones(1))
        width = fine.within(fine.coarse, probe, fine.limits.seconds / 40)
        coarse = LatticeProblem(fine.lattice(width), follow=1)
        neutral = coarse.solve(Utility(np.zeros(0), np.zeros(0), linear=1.0))
        start = _fitted(self.risk, coarse.returns(neutral.policy))
        self.alternation = self.climb(coarse, start, "risk-neutral")
        if len(self.below) == 1 and self.risk.is_finite_mixture:
            return
        pure = Utility(np.zeros(1), np.ones(1))
        width = fine.within(width, pure, fine.limits.seconds / 20, everywhere=True)
        curve = curve_of(fine.lattice(width))
        levels = [level for level, _ in self.below]
        if not self.risk.is_finite_mixture:
            levels = list((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
        knots = np.array([curve.knots[int(np.argmax(curve.values(level)))] for level in levels])
        knots = np.maximum.accumulate(knots)
        finite = self.risk.is_finite_mixture
        start = self.risk.utility_at(knots) if finite else self.risk.utility(knots)
        self.climb(coarse, start, "the plans for single CVaRs")

    def climb(self, problem: LatticeProblem, utility: Utility, start: str) -> float:
        """The paper's alternation, until J gains next to nothing twice in a row."""
        reached, stalled, best = -math.inf, 0, utility
        for _ in range(_ROUNDS):
            solution = problem.solve(utility)
            self.record(start, solution.value, utility)
            gain = solution.value - reached
            stalled = stalled + 1 if gain < 0.02 * self.fine.tolerance else 0
            if gain > 0:
                reached, best = solution.value, utility
            spent = time.perf_counter() - self.fine.begin
            if stalled == 2 or spent > 0.3 * self.fine.limits.seconds:
                break
            utility = _fitted(self.risk, problem.returns(solution.policy))
        self.keep(problem, best, start, finer=False)
        return reached

    def one_utility(self) -> tuple[Utility, float]:
        """For one knot: h with the knot at 0 and a drop of 1, and the slope above the knot."""
        ((level, weight),) = self.below
        ratio = (1.0 - weight) * level / weight
        return Utility(np.zeros(1), np.ones(1), linear=ratio), ratio

    def result(self) -> FinitePlan:
        assert self.problem is not None or self.policy is None
        self.upper = min(self.upper, self.fine.base.best_mean)
        gap, note = self.upper - self.value, ""
        if gap > self.fine.tolerance:
            note = (
                f"The bounds are {gap:.3g} apart; {self.fine.tolerance:.3g} was asked for. "
                f"{self.needed}"
            ).strip()
        problem = self.problem or LatticeProblem(self.fine.lattice(self.fine.range / 64))
        return FinitePlan(
            problem=problem,
            policy=self.policy,
            value=float(self.value),
            upper=float(max(self.upper, self.value)),
            utility=self.utility,
            start=self.start,
            alternation=self.alternation,
            trace=tuple(self.trace),
            tolerance=self.fine.tolerance,
            note=note,
        )

    # --- kinds of measures ----------------------------------------------------------------------

    def mean(self) -> FinitePlan:
        """Time and state are enough."""
        problem = LatticeProblem(self.fine.lattice(self.fine.range / 64))
        utility = self.risk.utility_at(np.zeros(0))
        solution = problem.solve(utility)
        self.record("risk-neutral", solution.value, utility)
        self.problem, self.policy, self.utility = problem, solution.policy, utility
        self.start, self.alternation = "risk-neutral", solution.value
        self.value = self.upper = self.fine.base.best_mean
        return self.result()

    def widths(self, probe: Utility, levels: Sequence[float], weights: Sequence[float]) -> float:
        """The width to aim at: rounding costs most of the tolerance, or less if that is cheap."""
        fine = self.fine
        target = fine.width_for(levels, weights, 0.75 * fine.tolerance)
        quick = fine.width_for_work(probe, _QUICK, everywhere=True)
        return min(target, quick)

    def one_knot(self) -> None:
        """One recursion for all knots, then policies for the best knot."""
        fine, ((level, weight),) = self.fine, self.below
        probe, ratio = self.one_utility()

        def upper(lattice: Lattice) -> tuple[float, float, Curve]:
            curve = curve_of(lattice, ratio)
            values = curve.values(level, weight)
            best = int(np.argmax(values))
            extra = weight * float(lattice.allowance(np.array([level]))[0]) + lattice.rounding
            knot = float(curve.knots[best])
            value = max(float(values[best]), curve.outside(level, weight))
            self.record("every knot at once", value, self.risk.utility_at(np.array([knot])))
            return value + extra, knot, curve

        coarse = fine.within(fine.coarse, probe, fine.limits.seconds / 20, everywhere=True)
        fine.choose_reach(lambda lattice: upper(lattice)[0], coarse)
        target = self.widths(probe, [level], [weight])
        left = 0.6 * max(fine.deadline - time.perf_counter(), 0.2 * fine.limits.seconds)
        width = fine.within(target, probe, left, everywhere=True)
        if width > target * 1.01:
            self.needed = self._need(target, probe)
        bound, knot, _ = upper(fine.lattice(width))
        self.upper = min(self.upper, bound)
        if self.policy is not None:
            self.policies(width, knot, bound)

    def policies(self, width: float, knot: float, bound: float) -> None:
        """Policies for a knot on finer and finer lattices, until finer ones cannot win much."""
        fine, ((level, weight),) = self.fine, self.below
        likely = bound - weight * float(fine.lattice(width).allowance(np.array([level]))[0])
        for times in (4, 2, 1):
            lattice = fine.lattice(fine.fitting(times * width))
            problem = LatticeProblem(lattice)
            value = self.keep(problem, self.risk.utility_at(np.array([knot])), "every knot at once")
            if self.upper - self.value <= fine.tolerance:
                return
            if likely - value <= 0.1 * fine.tolerance:
                return
            if time.perf_counter() > fine.deadline and self.value > -math.inf:
                return

    def several_knots(self) -> None:
        """Boxes of distances between knots, on finer and finer lattices."""
        fine = self.fine
        levels, weights = zip(*self.below, strict=True)
        pure = Utility(np.zeros(1), np.ones(1))
        target = fine.width_for(levels, weights, 0.4 * fine.tolerance)
        coarse = fine.within(fine.coarse, pure, fine.limits.seconds / 40, everywhere=True)
        fine.choose_reach(lambda lattice: curve_of(lattice).highest(levels[0]), coarse)
        # Often single CVaRs at their best are bound enough: one recursion.
        width = fine.within(target, pure, 0.05 * fine.limits.seconds, everywhere=True)
        self._apart(fine.lattice(width))
        self.needed = self._need(target, pure)
        self._improve(min(16 * width, coarse))
        if self.upper - self.value > fine.tolerance:
            self._halve(coarse, width)
            for times in (8, 2):
                self._improve(times * width)

    def _halve(self, coarse: float, width: float) -> None:
        """Branch and bound until the bounds are close or time is up; policies on the way."""
        fine = self.fine
        widths = [width]
        while widths[-1] * _COARSER < coarse:
            widths.append(fine.fitting(widths[-1] * _COARSER))
        lattices = [fine.lattice(each) for each in reversed(widths)]
        boxes, takes, tried = DistanceBoxes(self.risk, lattices), {0: 0.0}, set()
        while boxes.highest is not None and boxes.upper - self.value > fine.tolerance:
            level = boxes.next_level(self.value)
            expected = takes.get(level, 2 * _COARSER * takes.get(level - 1, 0.0))
            begin = time.perf_counter()
            if begin + expected > fine.deadline:
                break
            boxes.refine(self.value)
            takes[level] = time.perf_counter() - begin
            self.record("distances of knots", boxes.upper, self.utility)
            highest = boxes.highest
            if self.policy is None or highest is None or highest.box in tried:
                continue
            tried.add(highest.box)
            problem = LatticeProblem(lattices[min(1, len(lattices) - 1)], follow=1)
            knots = self.risk.utility_at(np.array(highest.knots))
            self.keep(problem, knots, "distances of knots", finer=False)
        self.upper = min(self.upper, max(boxes.upper, self.value))

    def _improve(self, width: float) -> None:
        """A policy for the best h of the policy so far, on a lattice of this width."""
        if self.policy is None:
            return
        for _ in range(2):
            late = time.perf_counter() > self.fine.deadline
            if late or self.upper - self.value <= self.fine.tolerance:
                return
            before = self.value
            assert self.returns is not None
            problem = LatticeProblem(self.fine.lattice(self.fine.fitting(width)))
            self.keep(problem, _fitted(self.risk, self.returns), self.start)
            if self.value <= before + 0.02 * self.fine.tolerance:
                return

    def _apart(self, lattice: Lattice) -> Curve:
        """The bound by single CVaRs at their best."""
        curve = curve_of(lattice)
        upper = spectral_upper(lattice, curve, self.risk) + lattice.rounding
        self.upper = min(self.upper, max(upper, self.value))
        return curve

    def dense(self) -> None:
        """The best of each single CVaR from above; policies for the h of the outer search."""
        fine, pure = self.fine, Utility(np.zeros(1), np.ones(1))
        width = fine.within(
            fine.width_for_work(pure, 8 * _QUICK, everywhere=True),
            pure,
            0.3 * fine.limits.seconds,
            everywhere=True,
        )
        self._apart(fine.lattice(width))
        self.needed = (
            "For a measure that is no finite sum of CVaRs the upper bound takes each CVaR at its "
            "best, which no single policy need attain."
        )
        self._improve(width)

    def _need(self, width: float, probe: Utility) -> str:
        """What closing the bounds would take."""
        lattice, unlimited = self.fine.lattice(width), self.fine.limits._replace(memory=math.inf)
        before, self.fine.limits = self.fine.limits, unlimited
        _, takes = self.fine.cost(lattice, probe, everywhere=True)
        self.fine.limits = before
        points, _ = lattice.size(lattice.windows(probe, everywhere=True))
        return (
            f"That would take a lattice of width {width:.2g} with {points:,} points, about "
            f"{takes:.0f} s a recursion; the limits are {before.seconds:g} s and {before.memory:g} "
            "GiB (`time_limit`, `memory_limit`)."
        )


def _fitted(risk: AbstractSpectralRisk, returns: Distribution) -> Utility:
    """The best h for these returns; of a dense spectrum at equally likely quantiles."""
    if risk.is_finite_mixture or returns.values.shape[0] <= _QUANTILES:
        return risk.utility(returns)
    ranks = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    at = np.searchsorted(np.asarray(returns.cumulative), ranks)
    return risk.utility(np.asarray(returns.values)[np.minimum(at, returns.values.shape[0] - 1)])
