"""What each of our choices adds: QR-SRM on mean reversion with one of them taken back at a time.

Writes `results/ablation.csv`, a row for each choice, measure and seed; what is there is not trained
again. A quarter of the default number of steps, so that differences show.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from downside.experiments._study import (
    EPISODES,
    read_rows,
    train_cells,
    write_about,
    write_rows,
)
from downside.experiments._tables import show, terminal
from downside.experiments.agents import values
from downside.experiments.optimum import ENVIRONMENT, GAMMA

RISKS = ("cvar(0.5)", "cvar(0.2)")
TIMESTEPS = 192_000
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "Adam instead of Muon": {"optimiser": "adam", "learning_rate": 2e-3},
    "ReLU instead of SiLU": {"activation": "relu"},
    "one outcome instead of a mirrored pair": {"outcomes": 1},
    "no extra weight on differences": {"difference_weight": 1.0},
    "all actions instead of those that score best": {"near_greedy": 21, "random_actions": 0},
    "transitions as they were lived through": {"near_greedy": 0, "random_actions": 0},
    "inputs scaled once": {"rescale_until": 0.0},
    "no relabelling": {"relabel": 0.0},
    "no search over shifts": {"shifts": 1},
    "h from learned quantiles": {"outer": "learned"},
}


def main(results: Path = Path("results"), seeds: tuple[int, ...] = (10,)) -> bool:
    """Trains, writes and prints; there is nothing to agree with."""
    path = results / "ablation.csv"
    rows = read_rows(path)
    for name, changes in CHOICES.items():
        for seed in seeds:
            if any(row["choice"] == name and int(row["seed"]) == seed for row in rows):
                continue
            cells = train_cells(
                ENVIRONMENT,
                RISKS,
                [seed],
                total_timesteps=TIMESTEPS,
                **{"distribution_fraction": 0.0, **changes},
            )
            rows += [{"choice": name, **row} for cell in cells for row in cell.row(cell.risk)]
            write_rows(path, rows)
            write_about(
                path.with_suffix(".json"),
                "downside reproduce ablation",
                environment=ENVIRONMENT,
                gamma=GAMMA,
                total_timesteps=TIMESTEPS,
                seeds=sorted({int(row["seed"]) for row in rows}),
                episodes=EPISODES,
                choices={name: dict(changes) for name, changes in CHOICES.items()},
            )
    shown = []
    for name in CHOICES:
        own = [row for row in rows if row["choice"] == name]
        shown.append([name, *(f"{values(own, risk, risk).mean():.4f}" for risk in RISKS)])
    show(terminal(), "One choice taken back at a time", ("", *RISKS), shown)
    return True
