"""Hedge a call that was sold, for the worst 5%, and hold the hedge against textbooks.

    python examples/hedging.py             # three minutes
    python examples/hedging.py --quick     # seconds, to see that it runs

A bank sells an option and trades the stock every day for a month. Each trade costs 0.1%. The agent
is paid for what is left in the worst 5% of months; it sees the stock, the time, its position, and
what it has earned so far.
"""

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

import downside as ds

RISK = ds.parse("cvar(0.05)")
FULL: dict[str, Any] = {"updates": 2000}
QUICK: dict[str, Any] = {
    "updates": 20,
    "batch_size": 128,
    "final_batches": 1,
    "outer_interval": 10,
    "outer_episodes": 512,
}


def main(quick: bool = False) -> ds.PGSRM:
    """Trains the agent, and prints its hedge beside those of textbooks."""
    env, episodes = "downside/Hedging-v0", 2_000 if quick else 100_000
    agent = ds.PGSRM(env, risk=RISK, seed=0, **(QUICK if quick else FULL))
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
    console = Console()
    console.print(table)
    console.print(ds.compare(results["PG-SRM"], results["band of 0.02 around delta"], RISK))
    price = agent.price(episodes=episodes)
    console.print(f"The premium at which the seller is indifferent: {price:.3f}")
    return agent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny settings")
    main(parser.parse_args().quick)
