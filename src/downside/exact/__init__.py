"""Planners that need no learning: the optimum of a static spectral risk measure."""

from downside.exact.bounds import Bounds, certified_bounds
from downside.exact.finite import FiniteProblem
from downside.exact.mdp import FiniteMDP
from downside.exact.option import OptionProblem
from downside.exact.outer import Found, Round, search
from downside.exact.plan import Estimate, Plan, as_problem, estimate, solve
from downside.exact.problem import AbstractProblem, Solution
from downside.exact.simulate import simulate
from downside.exact.trading import TradingProblem

__all__ = [
    "AbstractProblem",
    "Bounds",
    "Estimate",
    "FiniteMDP",
    "FiniteProblem",
    "Found",
    "OptionProblem",
    "Plan",
    "Round",
    "Solution",
    "TradingProblem",
    "as_problem",
    "certified_bounds",
    "estimate",
    "search",
    "simulate",
    "solve",
]
