"""The optimum of mean reversion for each objective of the paper's table, by all measures.

Writes `results/mean-reversion-optimum.csv`: one row for each pair of a plan and a measure.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from downside.exact import Plan, solve
from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._rows import Row, add_rows, read_rows, select
from downside.experiments._tables import show, terminal

ENVIRONMENT = "downside/MeanReversion-v0"
GAMMA = 0.99
OBJECTIVES = paper_table("mean_reversion").measures
SHORT = ("mean", "cvar 0.5", "cvar 0.2", "exp 4", "dual 2", "3 levels", "½+½")
EPISODES, QUICK_EPISODES, QUICK_REFINE, QUICK_OBJECTIVES = 1_000_000, 10_000, 0.25, 1


def main(options: Options) -> bool:
    """Solves, writes and prints; returns whether each plan leads its column."""
    path = options.folder / "mean-reversion-optimum.csv"
    rows = solve_all(path, "downside reproduce optimum", ENVIRONMENT, GAMMA, OBJECTIVES, options)
    return _show(rows, terminal())


def solve_all(
    path: Path,
    command: str,
    env: str,
    gamma: float,
    objectives: Sequence[str],
    options: Options,
    also: Callable[[Plan], Row] | None = None,
) -> list[Row]:
    """The optimum of each objective, by all of them; only what is not in the file is solved.

    Only the first objective if `quick`. `also` adds columns to the rows of a plan.
    """
    rows = read_rows(path)
    episodes = QUICK_EPISODES if options.quick else EPISODES
    for objective in objectives[: QUICK_OBJECTIVES if options.quick else None]:
        if select(rows, plan=objective):
            continue
        begin = time.perf_counter()
        plan = solve(
            env,
            objective,
            gamma=gamma,
            refine=QUICK_REFINE if options.quick else 1.0,
            episodes=episodes,
            progress_bar=True,
        )
        seconds = time.perf_counter() - begin
        terminal().print(
            f"{objective}: optimum {plan.value:.4f}, simulated {plan.estimate}, by the alternation "
            f"alone {plan.alternation:.4f}"
        )
        more = {} if also is None else also(plan)
        new = [{**row, **more} for row in _rows(plan, objective, objectives, seconds)]
        facts: Row = {"environment": env, "gamma": gamma, "seed": 0, "episodes": episodes}
        add_rows(path, rows, new, ("plan", "measure"), command, facts)
    return rows


def optimum(path: Path) -> dict[str, float]:
    """The planner's value of each objective that is solved, in fresh episodes."""
    rows = [row for row in read_rows(path) if row["plan"] == row["measure"]]
    return {row["plan"]: float(row["value"]) for row in rows}


def _rows(plan: Plan, objective: str, measures: Sequence[str], seconds: float) -> list[Row]:
    estimates = plan.evaluate(measures)
    return [
        {
            "plan": objective,
            "measure": measure,
            "value": round(estimate.value, 6),
            "standard_error": round(estimate.standard_error, 6),
            "recursion": round(plan.value, 6),
            "alternation": round(plan.alternation, 6),
            "start": plan.start,
            "seconds": round(seconds, 1),
        }
        for measure, estimate in zip(measures, estimates.values(), strict=True)
    ]


def _show(rows: list[Row], console: Console) -> bool:
    table = {(row["plan"], row["measure"]): row for row in rows}

    def number(plan: str, measure: str, field: str = "value") -> float:
        return float(str(table[plan, measure][field]))

    leads = True
    shown = []
    solved = [name for name in OBJECTIVES if (name, name) in table]
    for objective in solved:
        value = number(objective, objective)
        error = number(objective, objective, "standard_error")
        leads &= all(
            number(other, objective)
            <= value + 2 * (error + number(other, objective, "standard_error"))
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
