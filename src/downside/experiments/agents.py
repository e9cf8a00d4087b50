"""QR-SRM on mean reversion for each objective of the paper's table, beside paper and optimum.

Trains seeds 0 to 4 of all seven objectives and values every agent by every objective on 100,000
fresh episodes. Writes a row for each into `results/mean-reversion-agents.csv`; what is already
there is not trained again.
"""

import itertools
import time
from pathlib import Path

import numpy as np

from downside.evaluation import evaluate
from downside.experiments._study import Row, read_rows, write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA, OBJECTIVES, SHORT
from downside.train import train_many

PAPER = (1.43, 0.27, -0.21, 0.05, 0.46, 0.40, 0.22)  # the diagonal of table 2, QR-SRM
PAPER_DEVIATION = (0.03, 0.03, 0.04, 0.03, 0.02, 0.02, 0.06)
EPISODES = 100_000
EVALUATION_SEED = 1000
"""Of the episodes that agents are valued in; training never sees it."""


def main(
    results: Path = Path("results"),
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
    preset: str = "default",
) -> bool:
    """Trains, values, writes and prints; says whether the default agents reach their marks."""
    suffix = "" if preset == "default" else f"-{preset}"
    path = results / f"mean-reversion-agents{suffix}.csv"
    rows = read_rows(path)
    done = {int(row["seed"]) for row in rows}
    for begin in range(0, len(seeds), 2):  # two at a time, so that no core waits for the last agent
        pair = [seed for seed in seeds[begin : begin + 2] if seed not in done]
        if not pair:
            continue
        start = time.perf_counter()
        agents = train_many(
            ENVIRONMENT,
            risks=OBJECTIVES,
            seeds=pair,
            preset=preset,
            distribution_fraction=0.0,  # only the policies are looked at here
            progress_bar=True,
        )
        seconds = (time.perf_counter() - start) / len(agents)
        cells = itertools.product(OBJECTIVES, pair)
        for (objective, seed), agent in zip(cells, agents, strict=True):
            found = evaluate(agent, episodes=EPISODES, seed=EVALUATION_SEED + seed)
            rows += [
                {
                    "objective": objective,
                    "seed": seed,
                    "measure": measure,
                    "value": round(found.value(measure), 6),
                    "standard_error": round(found.standard_error(measure), 6),
                    "predicted": round(agent.history[-1]["predicted"], 6),
                    "seconds": round(seconds, 1),
                }
                for measure in OBJECTIVES
            ]
        write_rows(path, rows)
        write_about(
            path.with_suffix(".json"),
            f"downside reproduce agents{'' if preset == 'default' else '_' + preset}",
            environment=ENVIRONMENT,
            gamma=GAMMA,
            preset=preset,
            seeds=sorted({int(row["seed"]) for row in rows}),
            episodes=EPISODES,
        )
    return _show(rows, _optimum(results), preset)


def _optimum(results: Path) -> dict[str, float]:
    """The planner's value of each objective, where `downside reproduce optimum` has been run."""
    rows = read_rows(results / "mean-reversion-optimum.csv")
    return {row["plan"]: float(row["value"]) for row in rows if row["plan"] == row["measure"]}


def values(rows: list[Row], objective: str, measure: str) -> np.ndarray:
    """The value of each seed's agent."""
    return np.array(
        [
            float(row["value"])
            for row in rows
            if row["objective"] == objective and row["measure"] == measure
        ]
    )


def _show(rows: list[Row], optimum: dict[str, float], preset: str) -> bool:
    console = terminal()
    shown, reached = [], True
    for i, objective in enumerate(OBJECTIVES):
        own = values(rows, objective, objective)
        best = optimum.get(objective, float("nan"))
        spread = own.std(ddof=1) if len(own) > 1 else float("nan")
        shown.append(
            [
                SHORT[i],
                f"{own.mean():.4f}",
                f"{spread:.4f}",
                str(len(own)),
                f"{best:.4f}",
                f"{own.mean() / best:.0%}",
                f"{PAPER[i]:.2f} ± {PAPER_DEVIATION[i]:.2f}",
            ]
        )
        reached &= bool(own.mean() >= PAPER[i] - PAPER_DEVIATION[i])
    header = ("objective", "QR-SRM", "sd of seeds", "seeds", "optimum", "share", "paper")
    show(
        console, f"Mean reversion, preset {preset}: each agent by its own objective", header, shown
    )
    return reached
