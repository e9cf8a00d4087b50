"""Plan when to exercise an American put.

    python examples/plan_a_put.py            # seconds
    python examples/plan_a_put.py --full     # more measures, more episodes

You hold an option to sell at 1. Waiting may make it worth more, or nothing. The planner computes
the price at which to exercise, at each time, without learning: the more cautious the measure, the
earlier you take what there is.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import downside as ds

SMALL = ("mean", "cvar(0.2)")
FULL = ("mean", "0.5*mean + 0.5*cvar(0.2)", "cvar(0.5)", "cvar(0.2)")


def main(full: bool = False):
    """Solves for each measure, prints the values and draws the boundaries."""
    table = Table("plan for", "optimum", "in simulated episodes", "mean", "worst 20%")
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for risk in FULL if full else SMALL:
        episodes = 200_000 if full else 20_000
        plan = ds.solve("downside/AmericanPut-v0", risk, gamma=1.0, episodes=episodes)
        others = plan.evaluate(["mean", "cvar(0.2)"])
        values = (f"{estimate.value:.4f}" for estimate in others.values())
        table.add_row(risk, f"{plan.value:.4f}", str(plan.estimate), *values)
        assert plan.boundary is not None
        never = ": never before the end" if np.isnan(plan.boundary).all() else ""
        axis.plot(range(len(plan.boundary)), plan.boundary, "o-", label=risk + never)
    Console(width=96).print(table)
    axis.set(xlabel="decision time", ylabel="exercise at this price or below it")
    axis.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(full="--full" in sys.argv).savefig("plan_a_put.png")
