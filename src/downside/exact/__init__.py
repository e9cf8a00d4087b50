"""Planners that need no learning: the optimum of a static spectral risk measure."""

from downside.exact.bounds import Bounds, certified_bounds
from downside.exact.finite import FiniteProblem
from downside.exact.finite_plan import CurvePoint, cvar_curve
from downside.exact.lattice import Lattice
from downside.exact.lattice_policy import LatticePolicy
from downside.exact.lattice_problem import LatticeProblem
from downside.exact.mdp import FiniteMDP
from downside.exact.option import OptionProblem
from downside.exact.outer import Round, SearchResult, search
from downside.exact.plan import Estimate, Plan, as_problem, estimate, solve
from downside.exact.problem import AbstractFiniteProblem, AbstractProblem, Solution
from downside.exact.refinement import Limits
from downside.exact.simulate import simulate
from downside.exact.trading import TradingProblem
from downside.exact.transitions import TooLargeError

__all__ = [
    "AbstractFiniteProblem",
    "AbstractProblem",
    "Bounds",
    "CurvePoint",
    "Estimate",
    "FiniteMDP",
    "FiniteProblem",
    "Lattice",
    "LatticePolicy",
    "LatticeProblem",
    "Limits",
    "OptionProblem",
    "Plan",
    "Round",
    "SearchResult",
    "Solution",
    "TooLargeError",
    "TradingProblem",
    "as_problem",
    "certified_bounds",
    "cvar_curve",
    "estimate",
    "search",
    "simulate",
    "solve",
]
