"""The dial: one training for every appetite.

    python examples/dial.py            # half a minute, too short to learn much
    python examples/dial.py --full     # two minutes

How much of the mean does a better tail cost? One agent learns every mixture of the mean and one
CVaR. Turn it, and look at the price.
"""

import sys
from typing import Any

import matplotlib.pyplot as plt
from rich.console import Console
from rich.table import Table

import downside as ds

FULL: dict[str, Any] = {"updates": 2000, "batch_size": 3072}
SMALL: dict[str, Any] = {
    "updates": 100,
    "batch_size": 512,
    "hidden_sizes": (32, 32),
    "outer_interval": 50,
    "outer_episodes": 2160,
}
MEASURES = (
    "mean",
    "0.75*mean + 0.25*cvar(0.2)",
    "0.5*mean + 0.5*cvar(0.2)",
    "0.25*mean + 0.75*cvar(0.2)",
    "cvar(0.5)",
    "cvar(0.2)",
)


def main(full: bool = False):
    """Trains once, turns the dial, prints what each measure gives and draws it."""
    dial = ds.PGSRM("downside/MeanReversion-v0", risk="dial", seed=0, **(FULL if full else SMALL))
    dial.learn(progress_bar=True)

    table = Table("turned to", "value", "mean", "worst half", "worst 20%")
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for risk in MEASURES:
        result = ds.evaluate(dial.at(risk), episodes=100_000 if full else 5_000)
        mean, half, fifth = (result.value(each) for each in ("mean", "cvar(0.5)", "cvar(0.2)"))
        values = (result.value(risk), mean, half, fifth)
        table.add_row(risk, *(f"{value:.3f}" for value in values))
        axis.plot(mean, fifth, "o", color="#0072B2")
        axis.annotate(f" {risk}", (mean, fifth), fontsize=8, va="center")
    Console(width=80).print(table)
    axis.set(xlabel="mean", ylabel="mean of the worst 20%")
    axis.margins(x=0.35, y=0.12)
    return figure


if __name__ == "__main__":
    main(full="--full" in sys.argv).savefig("dial.png")
