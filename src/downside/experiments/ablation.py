"""What each of our choices adds: QR-SRM on mean reversion with one of them taken back at a time.

Writes `results/ablation.csv`, a row for each choice, measure and seed; what is there is not trained
again. Half the default number of steps, so that differences show.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from downside.evaluation import evaluate
from downside.experiments._study import read_rows, write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.experiments.agents import EPISODES, EVALUATION_SEED
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.train import train_many

RISKS = ("cvar(0.5)", "cvar(0.2)")
TIMESTEPS = 384_000
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
    "no risk-neutral start": {"neutral_fraction": 0.0},
}


def main(results: Path = Path("results"), seeds: tuple[int, ...] = (10,)) -> bool:
    """Trains, writes and prints; there is nothing to agree with."""
    path = results / "ablation.csv"
    rows = read_rows(path)
    for name, changes in CHOICES.items():
        for seed in seeds:
            if any(row["choice"] == name and int(row["seed"]) == seed for row in rows):
                continue
            begin = time.perf_counter()
            agents = train_many(
                ENVIRONMENT,
                risks=RISKS,
                seeds=[seed],
                total_timesteps=TIMESTEPS,
                progress_bar=True,
                **{"distribution_fraction": 0.0, **changes},
            )
            seconds = time.perf_counter() - begin
            for risk, agent in zip(RISKS, agents, strict=True):
                found = evaluate(agent, episodes=EPISODES, seed=EVALUATION_SEED + seed)
                rows.append(
                    {
                        "choice": name,
                        "risk": risk,
                        "seed": seed,
                        "value": round(found.value(risk), 6),
                        "standard_error": round(found.standard_error(risk), 6),
                        "predicted": round(agent.history[-1]["predicted"], 6),
                        "seconds": round(seconds, 1),
                    }
                )
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
        own = [
            np.mean([float(r["value"]) for r in rows if r["choice"] == name and r["risk"] == risk])
            for risk in RISKS
        ]
        shown.append([name, *(f"{value:.4f}" for value in own)])
    show(terminal(), "One choice taken back at a time", ("", *RISKS), shown)
    return True
