"""Value a risk measure.

    python examples/value_a_risk_measure.py

The same returns, valued by seven measures. The last one is a spectrum that you draw: the worst
tenth counts four times, the best half counts a little.
"""

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import downside as ds

MEASURES = (
    "mean",
    "cvar(0.5)",
    "cvar(0.2)",
    "0.5*mean + 0.5*cvar(0.2)",
    "exponential(4)",
    "dual_power(2)",
)


def main(full: bool = False):
    """Prints the values and draws the spectra."""
    rng, count = np.random.default_rng(0), 1_000_000 if full else 100_000
    crash = rng.random(count) < 0.15
    returns = np.where(crash, -1.5, 0.8) + 0.45 * rng.standard_normal(count)

    measures = {text: ds.parse(text) for text in MEASURES}
    measures["drawn by hand"] = ds.CustomSpectrum({0.1: 4.0, 0.5: 1.0, 1.0: 0.2})

    table = Table("measure", "value", "weight of the worst 10%")
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    ranks = np.linspace(0.0, 1.0, 1001)
    for name, risk in measures.items():
        table.add_row(name, f"{risk(returns):.3f}", f"{float(risk.cumulative(0.1)):.0%}")
        axis.plot(ranks, risk.spectrum(ranks), label=name, linewidth=2)
    Console(width=80).print(table)
    axis.set(xlabel="rank of the outcome, from worst to best", ylabel="weight", ylim=(0.0, 5.3))
    axis.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main().savefig("value_a_risk_measure.png")
