"""A study on two cores, and on Ray.

    python examples/study.py            # two short runs
    python examples/study.py --full     # three measures, two seeds
    python examples/study.py --ray      # the same as tasks of a Ray cluster on this machine

Environments x agents x measures x seeds. Every run is done once: stop it at any time, and the same
command goes on. Results do not depend on the engine.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from rich.console import Console

import downside as ds

SMALL: dict[str, Any] = {
    "updates": 60,
    "batch_size": 256,
    "hidden_sizes": [16, 16],
    "outer_interval": 30,
    "outer_episodes": 1024,
}
FULL: dict[str, Any] = {"updates": 400, "batch_size": 1024}


def main(full: bool = False, engine: str = "local", folder: str | Path | None = None):
    """Runs the study, prints its table, and draws the value of each run."""
    study = {
        "study": {
            "name": "tails",
            "risks": ["mean", "cvar(0.5)", "cvar(0.2)"] if full else ["mean", "cvar(0.2)"],
            "seeds": 2 if full else 1,
            "episodes": 20_000 if full else 2_000,
            "measures": ["mean", "cvar(0.2)"],
        },
        "environments": [{"id": "downside/MeanReversion-v0"}],
        "agents": [{"name": "pgsrm", **(FULL if full else SMALL)}],
    }
    folder = folder or tempfile.mkdtemp()
    result = ds.sweep(study, engine=engine, workers=2, folder=folder)
    Console(width=96).print(*result.tables())

    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for group in result.groups:
        mean, tail = group.estimates["mean"].value, group.estimates["cvar(0.2)"].value
        axis.plot(mean, tail, "o", label=str(group.risk))
    axis.set(xlabel="mean", ylabel="mean of the worst 20%")
    axis.legend(frameon=False, title="trained for")
    return figure


if __name__ == "__main__":  # the workers of a study import this file
    figure = main("--full" in sys.argv, "ray" if "--ray" in sys.argv else "local")
    figure.savefig("study.png")
