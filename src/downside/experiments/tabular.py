"""Five tabular problems of the literature: published values beside the optimum and its bounds.

Writes `results/tabular.csv`: one row for each problem and measure. The problems are the files that
Hau, Petrik and Ghavamzadeh (AISTATS 2023) publish; they are read from a folder, `--data`.
"""

import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from downside.exact import FiniteMDP, solve
from downside.experiments._options import Options
from downside.experiments._rows import Row, add_rows, read_rows, select
from downside.experiments._tables import show, terminal

EPISODES = 100_000
TIME_LIMIT, QUICK_TIME_LIMIT = 120.0, 5.0
MEASURES = (
    "mean",
    "cvar(0.05)",
    "cvar(0.1)",
    "cvar(0.2)",
    "cvar(0.5)",
    "0.5*cvar(0.1) + 0.5*cvar(0.5)",
)
PUBLISHED_LEVEL = "cvar(0.1)"


class Domain(NamedTuple):
    """A published problem."""

    gamma: float
    """Its discount factor."""
    start: int
    """The id of its start state."""
    horizon: int
    """Its number of decisions."""
    mean: float
    """The mean of the risk-neutral optimum, as published."""
    best: float
    """CVaR of the worst tenth: the best of the nine published methods."""
    augmented: float
    """The same, of the augmented method of Chow et al."""


DOMAINS = {
    "machine": Domain(0.80, 1, 100, -0.98, -4.56, -4.83),
    "ruin": Domain(0.95, 8, 200, 17.10, 8.27, 8.27),
    "inventory_generic": Domain(0.90, 1, 100, 219.0, 195.0, 82.0),
    "riverswim": Domain(0.98, 1, 100, 871.0, 382.0, 101.0),
    "inventory": Domain(0.80, 1, 100, 128.0, 76.6, 55.1),
}
"""Published values are averages over 100,000 simulated episodes."""


def main(options: Options) -> bool:
    """Solves, writes and prints; returns whether every simulation agrees with its value."""
    path = options.folder / "tabular.csv"
    rows = read_rows(path)
    domains = list(DOMAINS)[: 1 if options.quick else None]
    for name in domains:
        for measure in MEASURES[: 3 if options.quick else None]:
            if select(rows, problem=name, measure=measure) or not options.wants(name):
                continue
            mdp = _read(options.data, name)
            row = _solve(name, mdp, measure, options)
            terminal().print(
                f"{name}, {measure}: {row['value']:.4f}, at most {row['upper']:.4f}",
                highlight=False,
            )
            facts: Row = {
                "source": "Hau, Petrik and Ghavamzadeh (AISTATS 2023)",
                "episodes": EPISODES,
            }
            keys = ("problem", "measure")
            add_rows(path, rows, [row], keys, "downside reproduce tabular", facts)
    _show(rows, terminal())
    return all(row["agrees"] in (True, "True") for row in rows)


def _read(folder: Path, name: str) -> FiniteMDP:
    domain, path = DOMAINS[name], folder / f"{name}.csv"
    if not path.exists():
        raise FileNotFoundError(
            f"`--data` must be a folder with {', '.join(f'{each}.csv' for each in DOMAINS)}, as "
            f"Hau, Petrik and Ghavamzadeh (AISTATS 2023) publish them, got {str(folder)!r} without "
            f"{path.name}."
        )
    return FiniteMDP.from_csv(path, gamma=domain.gamma, start=domain.start, horizon=domain.horizon)


def _solve(name: str, mdp: FiniteMDP, measure: str, options: Options) -> Row:
    limit = QUICK_TIME_LIMIT if options.quick else TIME_LIMIT
    begin = time.perf_counter()
    plan = solve(mdp, measure, time_limit=limit, episodes=EPISODES, progress_bar=True)
    seconds = time.perf_counter() - begin
    assert plan.bounds is not None
    slack = 4 * plan.standard_error + (plan.bounds[1] - plan.bounds[0])
    return {
        "problem": name,
        "measure": measure,
        "value": round(plan.value, 6),
        "upper": round(plan.bounds[1], 6),
        "simulated": round(plan.simulated, 6),
        "standard_error": round(plan.standard_error, 6),
        "agrees": abs(plan.simulated - plan.value) <= slack,
        "seconds": round(seconds, 1),
    }


def _show(rows: list[Row], console: Console) -> None:
    shown = []
    for row in rows:
        domain = DOMAINS[row["problem"]]
        value, upper = float(row["value"]), float(row["upper"])
        best = augmented = ""
        if row["measure"] == "mean":
            best = f"{domain.mean:g}"
        if row["measure"] == PUBLISHED_LEVEL:
            best, augmented = f"{domain.best:g}", f"{domain.augmented:g}"
        gap = f"{(upper - value) / max(abs(value), 1e-12):.2%}"
        shown.append(
            (row["problem"], row["measure"], f"{value:.4g}", f"{upper:.4g}", gap, best, augmented)
        )
    header = ("problem", "measure", "ours", "at most", "gap", "best of nine", "Chow et al.")
    show(console, "Published values beside the optimum", header, shown)
