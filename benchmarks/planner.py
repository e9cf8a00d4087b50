"""What the planner costs: finite problems by size and tolerance, the trading grid by resolution.

    python benchmarks/planner.py            # finite problems
    python benchmarks/planner.py trading    # the grid of mean reversion

Times of finite problems are relative to the first line of the same run; `exact` is the earlier way,
listing every node, where that is possible.
"""

import resource
import sys
import time

import numpy as np

from downside import CVaR, FiniteMDP
from downside.envs import MeanReversion
from downside.exact import FiniteProblem, Limits, TradingProblem
from downside.exact.certify import certify
from downside.exact.outer import search

KNOTS = {0.5: 1.42, 0.2: 0.36}
BASE = {"states": 20, "actions": 4, "horizon": 50, "share": 0.005}
CASES = [
    {},
    {"states": 40},
    {"states": 80},
    {"actions": 8},
    {"actions": 16},
    {"horizon": 100},
    {"horizon": 200},
    {"share": 0.02},
    {"share": 0.002},
]


def random_mdp(states: int, actions: int, horizon: int, *, outcomes: int = 4) -> FiniteMDP:
    """A random problem with real rewards."""
    rng = np.random.default_rng(0)
    shape = (states, actions, outcomes)
    return FiniteMDP(
        rng.dirichlet(np.ones(outcomes), size=shape[:2]),
        rng.normal(size=shape),
        next_states=rng.integers(0, states, shape),
        gamma=0.95,
        horizon=horizon,
    )


def finite() -> None:
    """Cost against states, actions, horizon and tolerance, for cvar(0.1)."""
    print("states actions horizon tolerance    value   at most   CPU (first = 1)")
    first = None
    for change in CASES:
        case = {**BASE, **change}
        mdp = random_mdp(case["states"], case["actions"], case["horizon"])
        spread = certify(mdp, CVaR(1.0), Limits()).tolerance / 0.005
        begin = time.process_time()
        result = certify(mdp, CVaR(0.1), Limits(tolerance=case["share"] * spread, seconds=600.0))
        seconds = time.process_time() - begin
        first = seconds if first is None else first
        print(
            f"{case['states']:6} {case['actions']:7} {case['horizon']:7} {case['share']:9.1%} "
            f"{result.value:8.4f} {result.upper:9.4f} {seconds / first:17.2f}"
        )
    print(f"The first line took {first:.1f} s of CPU here.")
    print("\nhorizon  nodes    listed: value   CPU (s)    lattice: value   at most   CPU (s)")
    for horizon in (3, 4, 5):
        mdp = random_mdp(3, 2, horizon, outcomes=2)
        begin = time.process_time()
        problem = FiniteProblem(mdp)
        value = search(problem, CVaR(0.1)).solution.value
        listed = time.process_time() - begin
        begin = time.process_time()
        result = certify(mdp, CVaR(0.1), Limits())
        lattice = time.process_time() - begin
        print(
            f"{horizon:7} {problem.nodes.size:6} {value:16.5f} {listed:9.2f} {result.value:17.5f} "
            f"{result.upper:9.5f} {lattice:9.2f}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"Peak memory {peak:.1f} GiB.")


def trading() -> None:
    """One line for each resolution of mean reversion, given the knot."""
    rows = []
    for refine in (0.5, 0.7, 1.0, 1.4, 2.0):
        problem = TradingProblem(MeanReversion(), gamma=0.99, refine=refine)
        values, times = [], []
        for alpha, knot in KNOTS.items():
            utility = CVaR(alpha).utility_at([knot])
            problem.solve(utility)  # compile
            begin = time.perf_counter()
            values.append(problem.solve(utility).value)
            times.append(time.perf_counter() - begin)
        rows.append((refine, problem.memory / 2**20, min(times), *values))
    base = next(row[2] for row in rows if row[0] == 1.0)
    print("refine   policy MiB   time (default = 1)   J of cvar(0.5)   J of cvar(0.2)")
    for refine, memory, seconds, *values in rows:
        relative = seconds / base
        print(f"{refine:6.1f} {memory:12.0f} {relative:20.2f} {values[0]:16.5f} {values[1]:16.5f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"One inner problem at the default takes {base:.2f} s here; peak memory {peak:.1f} GiB.")


if __name__ == "__main__":
    trading() if "trading" in sys.argv[1:] else finite()
