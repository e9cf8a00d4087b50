"""Hedge an option for the worst 5%.

    python examples/hedging.py             # half a minute
    python examples/hedging.py --full      # two minutes

A bank sells an option and trades the stock every day for a month. Each trade costs 0.1%. The agent
is paid for what is left in the worst 5% of months; it sees the stock, the time, its position, and
what it has earned so far. Beside it stand the hedges of the textbooks.
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import downside as ds

RISK = ds.parse("cvar(0.05)")
FULL: dict[str, Any] = {"updates": 1200}
SMALL: dict[str, Any] = {
    "updates": 100,
    "batch_size": 512,
    "final_batches": 1,
    "outer_interval": 50,
    "outer_episodes": 2048,
}


def main(full: bool = False):
    """Trains the agent, prints its hedge beside those of textbooks, and draws two of them."""
    env, episodes = "downside/Hedging-v0", 100_000 if full else 20_000
    agent = ds.PGSRM(env, risk=RISK, seed=0, **(FULL if full else SMALL))
    agent.learn(progress_bar=True)

    hedges = {
        "no hedge": ds.baselines.NoHedge(env),
        "Black-Scholes delta": ds.baselines.BlackScholesDelta(env),
        "Leland's delta": ds.baselines.LelandDelta(env),
        "band of 0.02 around delta": ds.baselines.DeltaBand(env, half_width=0.02),
        "PG-SRM": agent,
    }
    table = Table("hedge", "mean", "worst 20%", "worst 5%", title="Profit and loss of a sold call")
    results = {
        name: ds.evaluate(hedge, episodes=episodes, seed=1, label=name)
        for name, hedge in hedges.items()
    }
    for name, result in results.items():
        values = (result.value(risk) for risk in ("mean", "cvar(0.2)", RISK))
        table.add_row(name, *(f"{value:.3f}" for value in values))
    console = Console(width=80)
    console.print(table)
    lead = ds.compare(results["PG-SRM"], results["band of 0.02 around delta"], RISK)
    console.print(f"Better than the band by {lead.value:.3f} ({lead.low:.3f} to {lead.high:.3f})")
    price = agent.price(episodes=episodes)
    console.print(f"The premium at which the seller is indifferent: {price:.3f}")

    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for name in ("Black-Scholes delta", "PG-SRM"):
        result = results[name]
        label = f"{name}: worst 5% {result.value(RISK):.2f}"
        axis.hist(result.returns, np.linspace(-2.5, 1.0, 100).tolist(), alpha=0.6, label=label)
    axis.set(xlabel="profit and loss of a month", ylabel="months")
    axis.legend(frameon=False, loc="upper left")
    return figure


if __name__ == "__main__":
    main(full="--full" in sys.argv).savefig("hedging.png")
