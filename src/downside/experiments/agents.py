"""QR-SRM on mean reversion for each objective of the paper's table, beside paper and optimum.

Trains seeds 0 to 4 of all seven objectives and values every agent by every objective on 100,000
fresh episodes. Writes a row for each into `results/mean-reversion-agents.csv`; what is already
there is not trained again.
"""

from pathlib import Path

import numpy as np

from downside.experiments._study import (
    EPISODES,
    Row,
    read_rows,
    train_cells,
    write_about,
    write_rows,
)
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA, OBJECTIVES, SHORT

PAPER = (1.43, 0.27, -0.21, 0.05, 0.46, 0.40, 0.22)  # the diagonal of table 2, QR-SRM
PAPER_DEVIATION = (0.03, 0.03, 0.04, 0.03, 0.02, 0.02, 0.06)


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
        cells = train_cells(
            ENVIRONMENT,
            OBJECTIVES,
            pair,
            preset=preset,
            distribution_fraction=0.0,  # only the policies are looked at here
        )
        rows += [row for cell in cells for row in cell.row(*OBJECTIVES)]
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
