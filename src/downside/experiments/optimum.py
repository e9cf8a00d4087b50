"""The optimum of mean reversion for each objective of the paper's table, valued by all of them.

Writes `results/mean-reversion-optimum.csv`: one row for each pair of a plan and a measure.
"""

import time
from pathlib import Path

from rich.console import Console

from downside.exact import Plan, solve
from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._study import Row, read_rows, select, write_about, write_rows
from downside.experiments._tables import show, terminal

ENVIRONMENT = "downside/MeanReversion-v0"
GAMMA = 0.99
OBJECTIVES = paper_table("mean_reversion").measures
SHORT = ("mean", "cvar 0.5", "cvar 0.2", "exp 4", "dual 2", "3 levels", "½+½")
EPISODES, QUICK_EPISODES = 1_000_000, 10_000
QUICK_OBJECTIVES = OBJECTIVES[:2]


def main(options: Options) -> bool:
    """Solves, values, writes and prints; says whether each diagonal leads its column."""
    console = terminal()
    path = options.folder / "mean-reversion-optimum.csv"
    rows: list[Row] = read_rows(path)
    episodes = QUICK_EPISODES if options.quick else EPISODES
    for objective in QUICK_OBJECTIVES if options.quick else OBJECTIVES:
        if select(rows, plan=objective):
            continue
        begin = time.perf_counter()
        plan = solve(
            ENVIRONMENT, objective, gamma=GAMMA, episodes=episodes, seed=0, progress_bar=True
        )
        rows += _rows(plan, objective, time.perf_counter() - begin)
        console.print(
            f"{objective}: optimum {plan.value:.4f}, simulated {plan.estimate}, by the alternation "
            f"alone {plan.alternation:.4f}"
        )
        _write(rows, path, episodes)
    return _show(rows, console)


def optimum(folder: Path) -> dict[str, float]:
    """The planner's value of each objective, as far as they have been solved."""
    rows = read_rows(folder / "mean-reversion-optimum.csv")
    return {row["plan"]: float(row["recursion"]) for row in rows}


def _rows(plan: Plan, objective: str, seconds: float) -> list[Row]:
    estimates = plan.evaluate(OBJECTIVES)
    return [
        {
            "plan": objective,
            "measure": measure,
            "value": round(estimates[str(measure)].value, 6),
            "standard_error": round(estimates[str(measure)].standard_error, 6),
            "recursion": round(plan.value, 6),
            "alternation": round(plan.alternation, 6),
            "start": plan.start,
            "seconds": round(seconds, 1),
        }
        for measure in OBJECTIVES
    ]


def _write(rows: list[Row], path: Path, episodes: int) -> None:
    write_rows(path, rows)
    write_about(
        path.with_suffix(".json"),
        "downside reproduce optimum",
        environment=ENVIRONMENT,
        gamma=GAMMA,
        seed=0,
        episodes=episodes,
    )


def _show(rows: list[Row], console: Console) -> bool:
    table = {(row["plan"], row["measure"]): row for row in rows}

    def number(plan: str, measure: str, field: str = "value") -> float:
        return float(str(table[plan, measure][field]))

    leads = True
    shown = []
    solved = [one for one in OBJECTIVES if (one, one) in table]
    for objective in solved:
        own = number(objective, objective)
        error = number(objective, objective, "standard_error")
        leads &= all(
            number(other, objective)
            <= own + 2 * (error + number(other, objective, "standard_error"))
            for other in solved
        )
        shown.append(
            [
                SHORT[OBJECTIVES.index(objective)],
                *(f"{number(objective, measure):.3f}" for measure in OBJECTIVES),
            ]
        )
    shown.append(
        [
            "paper's best",
            *(f"{value:.2f}" for value in map(paper_table("mean_reversion").best, OBJECTIVES)),
        ]
    )
    last = len(solved) - 1
    show(console, "Plans (rows) valued by measures", ("", *SHORT), shown, frozenset({last}))
    errors = [number(objective, objective, "standard_error") for objective in solved]
    console.print(f"Standard errors on the diagonal: at most {max(errors):.4f}.")
    console.print(
        "Every plan leads its own column." if leads else "A plan does not lead its column."
    )
    return leads
