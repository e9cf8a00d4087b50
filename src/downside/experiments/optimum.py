"""The optimum of mean reversion for each objective of the paper's table, valued by all of them.

Writes `results/mean-reversion-optimum.csv`: one row for each pair of a plan and a measure.
"""

import time
from pathlib import Path

from rich.console import Console

from downside.exact import Plan, solve
from downside.experiments._study import write_about, write_rows
from downside.experiments._tables import show, terminal

ENVIRONMENT = "downside/MeanReversion-v0"
GAMMA = 0.99
OBJECTIVES = (
    "cvar(1.0)",
    "cvar(0.5)",
    "cvar(0.2)",
    "exponential(4)",
    "dual_power(2)",
    "0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0)",
    "0.5*cvar(0.2)+0.5*cvar(1.0)",
)
SHORT = ("mean", "cvar 0.5", "cvar 0.2", "exp 4", "dual 2", "3 levels", "½+½")
PAPER_BEST = (1.48, 0.28, -0.17, 0.05, 0.48, 0.40, 0.24)  # the best of each column of table 2
EPISODES = 1_000_000


def main(results: Path = Path("results"), seed: int = 0) -> bool:
    """Solves, values, writes and prints; says whether each diagonal leads its column."""
    console = terminal()
    rows: list[dict[str, object]] = []
    for objective in OBJECTIVES:
        begin = time.perf_counter()
        plan = solve(
            ENVIRONMENT, objective, gamma=GAMMA, episodes=EPISODES, seed=seed, progress_bar=True
        )
        rows += _rows(plan, objective, time.perf_counter() - begin)
        console.print(
            f"{objective}: optimum {plan.value:.4f}, simulated {plan.estimate}, by the alternation "
            f"alone {plan.alternation:.4f}"
        )
        _write(rows, results, seed)
    return _show(rows, console)


def _rows(plan: Plan, objective: str, seconds: float) -> list[dict[str, object]]:
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


def _write(rows: list[dict[str, object]], results: Path, seed: int) -> None:
    path = results / "mean-reversion-optimum.csv"
    write_rows(path, rows)
    write_about(
        path.with_suffix(".json"),
        "downside reproduce optimum",
        environment=ENVIRONMENT,
        gamma=GAMMA,
        seed=seed,
        episodes=EPISODES,
    )


def _show(rows: list[dict[str, object]], console: Console) -> bool:
    table = {(row["plan"], row["measure"]): row for row in rows}

    def number(plan: str, measure: str, field: str = "value") -> float:
        return float(str(table[plan, measure][field]))

    leads = True
    shown = []
    for objective, name in zip(OBJECTIVES, SHORT, strict=True):
        own = number(objective, objective)
        error = number(objective, objective, "standard_error")
        leads &= all(
            number(other, objective)
            <= own + 2 * (error + number(other, objective, "standard_error"))
            for other in OBJECTIVES
        )
        shown.append([name, *(f"{number(objective, measure):.3f}" for measure in OBJECTIVES)])
    shown.append(["paper's best", *(f"{value:.2f}" for value in PAPER_BEST)])
    last = len(OBJECTIVES) - 1
    show(console, "Plans (rows) valued by measures", ("", *SHORT), shown, frozenset({last}))
    errors = [number(objective, objective, "standard_error") for objective in OBJECTIVES]
    console.print(f"Standard errors on the diagonal: at most {max(errors):.4f}.")
    console.print(
        "Every plan leads its own column." if leads else "A plan does not lead its column."
    )
    return leads
