"""The optimum of a finite problem from both sides, on lattices as fine as they need to be."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from downside.exact.boxes import Box, box_bounds
from downside.exact.curve import Curve, curve_of, spectral_upper
from downside.exact.lattice import Lattice
from downside.exact.lattice_problem import LatticeProblem
from downside.exact.mdp import FiniteMDP
from downside.exact.outer import Progress, Round
from downside.exact.transitions import TooLargeError
from downside.risk import AbstractSpectralRisk, Distribution, Utility

SHARE = 0.005
"""By default bounds are to be this share of the deviation of returns apart."""
_PER_POINT = 4e-9
"""Seconds for one point and outcome,"""
_PER_OUTCOME = 5e-6
"""and for one time and outcome, whatever the number of points."""
_QUICK = 1e7
"""Points times outcomes that are spent in any case."""
_REACHES = (6.0, 12.0, 24.0, math.inf)
_MOST_GROUPS = 5000
"""Returns of a policy are kept apart no further than this many."""
_ROUNDS = 20
"""How many rounds the alternation may take."""
_QUANTILES = 200
"""Knots of h for a spectrum that is not a finite sum of CVaRs."""


class Limits(NamedTuple):
    """When to stop refining."""

    tolerance: float | None = None
    """How far apart the bounds may stay; None is half a percent of the deviation of returns."""
    seconds: float = 40.0
    """About how long to work."""
    memory: float = 2.0
    """GiB for the tables of a recursion."""


class Certified(NamedTuple):
    """A policy, what it achieves, and what no policy exceeds."""

    problem: LatticeProblem
    """What was solved."""
    policy: Any
    """The best policy that was found."""
    value: float
    """What it achieves."""
    upper: float
    """What no policy exceeds."""
    utility: Utility
    """The h that the policy is optimal for."""
    start: str
    """How it was found."""
    alternation: float
    """What the paper's alternation reaches, on a coarse lattice."""
    trace: tuple[Round, ...]
    """Every recursion."""
    tolerance: float
    """What was asked for."""
    note: str
    """What stopped the refinement, if the bounds are further apart than that."""


class Refinement:
    """Lattices of one problem, and how fine they can be within the limits."""

    def __init__(self, mdp: FiniteMDP, limits: Limits):
        self.limits, self.begin = limits, time.perf_counter()
        self.base = Lattice(mdp, 1.0)
        low, high = self.base.return_range
        self.range = max(high - low, 1e-12 * max(abs(high), abs(low), 1e-300))
        spread = self.base.deviation or self.range
        wanted = SHARE * spread if limits.tolerance is None else limits.tolerance
        self.tolerance = max(wanted, 10 * self.base.same(self.range, 6.0).rounding)
        self.reach = _REACHES[0]
        self.common = _common_step(mdp) if mdp.gamma == 1.0 else None

    @property
    def deadline(self) -> float:
        """When to stop."""
        return self.begin + self.limits.seconds

    def lattice(self, width: float) -> Lattice:
        """A lattice of the problem."""
        return self.base.same(width, self.reach)

    @property
    def coarse(self) -> float:
        """A width for searches, and to begin with."""
        return self.fitting(max(self.base.deviation, self.range / 256) / 24)

    def cost(self, lattice: Lattice, utility: Utility, *, everywhere: bool) -> tuple[float, float]:
        """Points times outcomes, and seconds, of one recursion; infinite if it does not fit."""
        if lattice.cut * lattice.transitions.states.size * _PER_OUTCOME > 1e4:
            return math.inf, math.inf
        windows = lattice.windows(utility, everywhere=everywhere)
        points, work = lattice.size(windows)
        widest = 8.0 * float((windows.sizes.max(axis=1) * (lattice.mdp.num_states + 1)).max())
        if 4 * widest + points > self.limits.memory * 2**30:
            return math.inf, math.inf
        steps = lattice.cut * lattice.transitions.states.size
        return float(work), work * _PER_POINT + steps * _PER_OUTCOME

    def width_for_work(self, utility: Utility, work: float, *, everywhere: bool) -> float:
        """The width at which a recursion takes about so many points times outcomes."""
        width = self.range / 64
        for _ in range(6):
            lattice = self.lattice(width)
            now, _ = self.cost(lattice, utility, everywhere=everywhere)
            if not math.isfinite(now):
                width *= 4
                continue
            ratio = work / max(now, 1.0)
            if 0.7 < ratio < 1.4:
                break
            width = max(width / min(max(ratio, 1e-3), 1e3), self.tolerance / 50)
        return self.fitting(width)

    def width_for(self, levels: Sequence[float], weights: Sequence[float], target: float) -> float:
        """The width at which rounding costs at most `target`."""
        width = self.range / 256
        for _ in range(4):
            allowed = float(np.dot(weights, self.lattice(width).allowance(np.array(levels))))
            if allowed <= 0.0:
                break
            width = min(width * target / allowed, self.range / 16)
        return self.fitting(width)

    def fitting(self, width: float) -> float:
        """The width, or one nearby of which all rewards are multiples."""
        if self.common is None:
            return width
        return (
            self.common / max(1, math.ceil(self.common / width))
            if width < self.common
            else (self.common * max(1, math.floor(width / self.common)))
        )

    def within(
        self, width: float, utility: Utility, seconds: float, *, everywhere: bool = False
    ) -> float:
        """The width, or the finest one that fits into memory and takes about so long."""
        for _ in range(80):
            _, takes = self.cost(self.lattice(width), utility, everywhere=everywhere)
            if takes <= seconds:
                return width
            width = self.fitting(width * 1.3) if self.common is None else 2 * width
        raise TooLargeError(self.sizes("even the coarsest lattice does not fit"))

    def sizes(self, what: str) -> str:
        """Why it cannot be done, in numbers."""
        lattice, mdp = self.base.same(self.range / 64, self.reach), self.base.mdp
        return (
            f"`mdp` is too large for the planner: {mdp.num_states:,} states, "
            f"{lattice.transitions.states.size:,} outcomes and {lattice.cut:,} decisions that "
            f"count (`horizon` {mdp.horizon}, `gamma` {mdp.gamma}); {what} within "
            f"{self.limits.seconds:g} s and {self.limits.memory:g} GiB. Use a smaller `gamma` or "
            "`horizon`, or raise `time_limit` and `memory_limit`."
        )

    def choose_reach(self, upper: Callable[[Lattice], float], width: float) -> None:
        """As far out as makes a difference: tried on a coarse lattice."""
        bounds = []
        for reach in _REACHES:
            self.reach = reach
            bounds.append(upper(self.lattice(width)))
            if len(bounds) > 1 and bounds[-2] - bounds[-1] <= 0.05 * self.tolerance:
                self.reach = _REACHES[len(bounds) - 2]
                return


def certify(
    mdp: FiniteMDP,
    risk: AbstractSpectralRisk,
    limits: Limits,
    *,
    progress: Progress | None = None,
    achieved: float | None = None,
) -> Certified:
    """A policy for `risk`, its value, and an upper bound of the optimum.

    Arguments:
        mdp: the problem.
        risk: the measure.
        limits: when to stop.
        progress: called after every recursion.
        achieved: what a policy is known to achieve, if only the upper bound matters.
    """
    run = _Run(Refinement(mdp, limits), risk, progress)
    knots = sum(level < 1.0 for level, _ in risk.atoms)
    if risk.is_finite_mixture and knots == 0:
        return run.mean()
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
            matters = likely - value > 0.1 * self.fine.tolerance and likely > self.value
            if not (finer and matters) or earned.values.size > _MOST_GROUPS or follow >= 64:
                break
            follow *= 2
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
            if stalled == 2:
                break
            utility = _fitted(self.risk, problem.returns(solution.policy))
        self.keep(problem, best, start, finer=False)
        return reached

    def one_utility(self) -> tuple[Utility, float]:
        """For one knot: h with the knot at 0 and a drop of 1, and the slope above the knot."""
        ((level, weight),) = self.below
        ratio = (1.0 - weight) * level / weight
        return Utility(np.zeros(1), np.ones(1), linear=ratio), ratio

    def result(self) -> Certified:
        assert self.problem is not None or self.policy is None
        self.upper = min(self.upper, self.fine.base.best_mean)
        gap, note = self.upper - self.value, ""
        if gap > self.fine.tolerance:
            note = (
                f"The bounds are {gap:.3g} apart; {self.fine.tolerance:.3g} was asked for. "
                f"{self.needed}"
            ).strip()
        problem = self.problem or LatticeProblem(self.fine.lattice(self.fine.range / 64))
        return Certified(
            problem=problem,
            policy=self.policy,
            value=self.value,
            upper=max(self.upper, self.value),
            utility=self.utility,
            start=self.start,
            alternation=self.alternation,
            trace=tuple(self.trace),
            tolerance=self.fine.tolerance,
            note=note,
        )

    # --- kinds of measures ----------------------------------------------------------------------

    def mean(self) -> Certified:
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
            if likely - value <= 0.1 * fine.tolerance:
                return
            if time.perf_counter() > fine.deadline and self.value > -math.inf:
                return

    def several_knots(self) -> None:
        """Boxes of knots on finer and finer lattices."""
        fine = self.fine
        levels, weights = zip(*self.below, strict=True)
        pure = Utility(np.zeros(1), np.ones(1))
        probe = self.utility if self.utility.knots.size else pure
        target = fine.width_for(levels, weights, 0.5 * fine.tolerance)
        coarse = fine.within(fine.coarse, pure, fine.limits.seconds / 20, everywhere=True)
        fine.choose_reach(lambda lattice: curve_of(lattice).highest(levels[0]), coarse)
        self._improve(fine.within(max(fine.coarse / 4, target), probe, fine.limits.seconds / 20))
        # Often single CVaRs at their best are bound enough: one recursion.
        affordable = fine.within(target, pure, 0.2 * fine.limits.seconds, everywhere=True)
        self._apart(fine.lattice(affordable))
        self.needed = self._need(target, pure)
        width = fine.within(target, probe, fine.limits.seconds / 200)
        while self.upper - self.value > fine.tolerance:
            highest, solves = self._boxes(width)
            if self.policy is not None and highest is not None:
                before, middle = self.value, [sum(side) / 2 for side in highest]
                problem = LatticeProblem(fine.lattice(width))
                self.keep(problem, self.risk.utility_at(np.array(middle)), "boxes of knots")
                self._improve(width)
                if self.value > before + 0.1 * fine.tolerance:
                    continue
            late = time.perf_counter() >= fine.deadline
            if late or width <= target or not self._affordable(0.5 * width, probe, solves):
                return
            width = fine.fitting(max(0.5 * width, target))
            self._improve(width)

    def _boxes(self, width: float) -> tuple[Box | None, int]:
        """Branch and bound on one lattice; the highest open box, and how many recursions."""
        fine, lattice = self.fine, self.fine.lattice(width)
        levels, weights = zip(*self.below, strict=True)
        rounding = float(np.dot(weights, lattice.allowance(np.array(levels))))
        result = box_bounds(
            lattice,
            self._apart(lattice),
            self.risk,
            lower=self.value,
            tolerance=max(fine.tolerance, 1.5 * rounding),
            deadline=min(fine.deadline, time.perf_counter() + 0.5 * fine.limits.seconds),
            report=lambda bound: self.record("boxes of knots", bound, self.utility),
        )
        self.upper = min(self.upper, max(result.upper, self.value))
        return result.highest, result.solves

    def _improve(self, width: float) -> None:
        """A policy for the best h of the policy so far, on a lattice of this width."""
        if self.policy is None:
            return
        for _ in range(2):
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

    def _affordable(self, width: float, probe: Utility, solves: int) -> bool:
        _, takes = self.fine.cost(self.fine.lattice(width), probe, everywhere=False)
        return takes * max(solves, 4) <= self.fine.deadline - time.perf_counter()

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


def _common_step(mdp: FiniteMDP) -> float | None:
    """A number of which all rewards are multiples, if there is one that is not tiny."""
    rewards = np.unique(np.abs(mdp.rewards[mdp.probabilities > 0]))
    rewards = rewards[rewards > 0]
    if not rewards.size:
        return None
    step, slack = float(rewards[0]), 1e-9 * float(rewards[-1])
    for reward in rewards.tolist():
        while reward > slack:  # Euclid's algorithm
            left = math.fmod(step, reward)
            step, reward = reward, 0.0 if reward - left < slack else left
        if step < 1e4 * slack:
            return None
    return step
