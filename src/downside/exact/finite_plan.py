"""Finite problems: every reachable node where there are few, lattices where there are many."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from downside._arrays import real
from downside.exact.certify import FinitePlan, certify
from downside.exact.curve import curve_of
from downside.exact.finite import FiniteProblem
from downside.exact.lattice import Lattice
from downside.exact.lattice_problem import LatticeProblem
from downside.exact.mdp import FiniteMDP
from downside.exact.nodes import TooManyNodesError
from downside.exact.outer import Progress, search
from downside.exact.problem import AbstractFiniteProblem
from downside.exact.refinement import Limits, Refinement
from downside.risk import AbstractSpectralRisk, CVaR, Utility

_FEW_NODES = 60_000
"""Up to so many nodes are listed and solved exactly."""
_FEW_DECISIONS = 2_000
_REST = 1e-7
"""How much of the largest return is lost where an endless problem with few nodes is cut."""


def finite_problem(mdp: FiniteMDP) -> AbstractFiniteProblem:
    """The problem with every node listed, or on a lattice if there are too many."""
    problem = _listed(mdp)
    if problem is not None:
        return problem
    base = Lattice(mdp, 1.0)
    low, high = base.return_range
    return LatticeProblem(base.same((high - low) / 1000, 6.0))


def plan_finite(
    mdp: FiniteMDP, risk: AbstractSpectralRisk, limits: Limits, progress: Progress | None = None
) -> FinitePlan:
    """The best policy for `risk` that the limits allow to find, with bounds of the optimum."""
    problem = _listed(mdp)
    if problem is None:
        return certify(mdp, risk, limits, progress=progress)
    base, tolerance = Lattice(mdp, 1.0), Refinement(mdp, limits).tolerance
    result = search(
        problem, risk, enough=tolerance, seconds=0.5 * limits.seconds, progress=progress
    )
    returns = problem.returns(result.solution.policy)
    value = float(risk(returns.values, returns.probabilities)) - problem.return_error
    upper = base.best_mean
    if result.upper is not None:
        upper = min(upper, result.upper + problem.return_error)
    policy, utility, start, note = result.solution.policy, result.utility, result.start, ""
    if upper - value > tolerance:  # the search could not close the bounds, a lattice may
        rough = certify(mdp, risk, limits, progress=progress, achieved=value)
        upper = min(upper, rough.upper)
        note = rough.note if upper - value > tolerance else ""
    return FinitePlan(
        problem=problem,
        policy=policy,
        value=value,
        upper=max(upper, value),
        utility=utility,
        start=start,
        alternation=result.alternation.value,
        trace=result.trace,
        tolerance=tolerance,
        note=note,
    )


def _listed(mdp: FiniteMDP) -> FiniteProblem | None:
    if mdp.horizon is not None and mdp.horizon > _FEW_DECISIONS:
        return None
    try:
        if mdp.horizon is not None:
            return FiniteProblem(mdp, max_nodes=_FEW_NODES)
        rest = _REST * mdp.largest_return
        if rest > 0 and mdp.truncation(rest).horizon <= _FEW_DECISIONS:
            return FiniteProblem(mdp, max_nodes=_FEW_NODES, tolerance=rest)
    except TooManyNodesError:
        pass
    return None


class CurvePoint(NamedTuple):
    """The best CVaR of one level."""

    level: float
    """The worst share of outcomes."""
    value: float
    """What a policy achieves."""
    upper: float
    """What no policy exceeds."""


def cvar_curve(
    mdp: FiniteMDP,
    levels: Sequence[float],
    *,
    tolerance: float | None = None,
    time_limit: float = 40.0,
    memory_limit: float = 2.0,
) -> tuple[CurvePoint, ...]:
    r"""The best CVaR of many levels: one recursion for the upper bounds of all of them.

    $\max_\pi \mathrm{CVaR}_\alpha = \max_b \{b - \frac{1}{\alpha} \min_\pi \mathbb{E}[(b -
    G)^+]\}$, and the best shortfall for every b comes from one recursion whatever the level.

    Arguments:
        mdp: the problem.
        levels: each in (0, 1].
        tolerance: how far apart value and upper bound may be; by default half a percent of the
            standard deviation of the returns of the risk-neutral policy.
        time_limit: about how many seconds to work.
        memory_limit: GiB for tables.
    """
    wanted = [real(level, "levels") for level in levels]
    for level in wanted:
        CVaR(level)  # refuses what is none
    if not wanted:
        raise ValueError("`levels` must hold at least one level, got none.")
    limits = Limits(tolerance, time_limit, memory_limit)
    if _listed(mdp) is not None:  # a search for each level is quick, and exact
        share = limits._replace(seconds=time_limit / len(wanted))
        plans = [plan_finite(mdp, CVaR(level), share) for level in wanted]
        pairs = zip(wanted, plans, strict=True)
        return tuple(CurvePoint(level, plan.value, plan.upper) for level, plan in pairs)
    fine = Refinement(mdp, limits)
    fine.check()
    below, pure = [level for level in wanted if level < 1.0], Utility(np.zeros(1), np.ones(1))
    mean = fine.base.best_mean
    points = {1.0: CurvePoint(1.0, mean, mean)}
    if below:
        width = fine.width_for([min(below)], [1.0], 0.75 * fine.tolerance)
        width = fine.within(width, pure, 0.4 * time_limit, everywhere=True)
        lattice = fine.lattice(width)
        curve, allowed = curve_of(lattice), lattice.allowance(np.array(below))
        problem = LatticeProblem(fine.lattice(fine.fitting(2 * width)))
        for level, extra in zip(below, allowed, strict=True):
            risk, values = CVaR(level), curve.values(level)
            best = int(np.argmax(values))
            solution = problem.solve(risk.utility_at(curve.knots[best : best + 1]))
            value = problem.achieved(solution.policy).value(risk) - problem.lattice.rounding
            upper = max(float(values[best]), curve.outside(level, 1.0)) + extra + lattice.rounding
            upper = max(value, min(upper, mean))
            points[level] = CurvePoint(level, float(value), float(upper))
    return tuple(points[level] for level in wanted)
