"""What the planner costs against the resolution of its grids, and what the resolution is worth.

    python benchmarks/planner.py

Every line solves the same inner problem, mean reversion for CVaR 0.5 and 0.2 given the knot; times
are relative to the default resolution in the same run.
"""

import resource
import time

from downside import CVaR
from downside.envs import MeanReversion
from downside.exact import TradingProblem

KNOTS = {0.5: 1.42, 0.2: 0.36}


def main() -> None:
    """Prints one line for each resolution."""
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
    main()
