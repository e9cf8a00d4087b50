"""The comparison on mean reversion (table 2 of the paper): 13 agents valued by 7 measures.

Every agent is valued by every measure on 100,000 fresh episodes. Writes a row for each into
`results/mean-reversion-default.csv` and `results/mean-reversion-paper.csv`; what is complete there
is not trained again.
"""

from pathlib import Path

import numpy as np

from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._study import (
    Row,
    read_rows,
    values,
    with_agent,
    write_about,
    write_rows,
)
from downside.experiments._tables import show, terminal
from downside.experiments._training import (
    EPISODES,
    QUICK_EPISODES,
    Cell,
    agent_label,
    agent_of,
    is_done,
    train_cells,
)
from downside.experiments.optimum import ENVIRONMENT, GAMMA, OBJECTIVES, SHORT, optimum

PAPER = paper_table("mean_reversion")
ROWS = PAPER.rows
CHANGES = {"distribution_fraction": 0.0}
"""Only the policies are looked at here, so that there is nothing to learn once they are found."""


def main(options: Options) -> bool:
    """Trains, values, writes and prints; says whether the default QR-SRM reach the paper's."""
    agree = True
    for preset in options.presets:
        path = options.folder / f"mean-reversion-{preset}.csv"
        rows = read_rows(path)
        for one in train_cells(
            ENVIRONMENT, missing(options, preset), f"mean-reversion, {preset}", options
        ):
            # Read again: another command may have written other agents in the meantime.
            rows = with_agent(
                read_rows(path), one.rows(*OBJECTIVES), "algorithm", "objective", "seed"
            )
            write(path, rows, preset, options)
        reached = _show(rows, optimum(options.folder / "mean-reversion-optimum.csv"), preset)
        agree &= reached or preset == "paper" or options.quick
    return agree


def remaining(options: Options) -> int:
    """How many agents are still to be trained."""
    return sum(len(missing(options, preset)) for preset in options.presets)


def missing(options: Options, preset: str) -> list[Cell]:
    """The agents that are not complete: seed by seed, so that a table without holes comes first."""
    rows = read_rows(options.folder / f"mean-reversion-{preset}.csv")
    cells = [
        Cell(algorithm, objective, seed, {"preset": preset, **CHANGES})
        for seed in options.seeds_or()
        for algorithm, objective in map(agent_of, ROWS)
        if options.wants(agent_label(algorithm, objective))
    ]
    return [one for one in cells if not is_done(rows, ENVIRONMENT, one, options, len(OBJECTIVES))]


def write(path: Path, rows: list[Row], preset: str, options: Options) -> None:
    """Writes the rows in the order of the paper's table, and how they were made."""
    rows.sort(
        key=lambda row: (
            ROWS.index(agent_label(row["algorithm"], row["objective"])),
            int(row["seed"]),
            OBJECTIVES.index(row["measure"]),
        )
    )
    write_rows(path, rows)
    write_about(
        path.with_suffix(".json"),
        f"downside reproduce mean-reversion --preset {preset}",
        environment=ENVIRONMENT,
        gamma=GAMMA,
        preset=preset,
        changes=CHANGES,
        seeds=sorted({int(row["seed"]) for row in rows}),
        episodes=QUICK_EPISODES if options.quick else EPISODES,
    )


def _show(rows: list[Row], best: dict[str, float], preset: str) -> bool:
    shown, reached = [], True
    for label in ROWS:
        algorithm, objective = agent_of(label)
        line = [label]
        own = np.zeros(0)
        for measure in OBJECTIVES:
            own = values(rows, algorithm=algorithm, objective=objective, measure=measure)
            line.append(f"{own.mean():.3f}" if own.size else "-")
            if own.size and measure == objective and algorithm == "QR-SRM":
                paper = PAPER.figures[label, measure]
                reached &= bool(own.mean() >= paper.mean - paper.deviation)
        shown.append([*line, str(own.size)])
    lines = frozenset({len(shown) - 1})
    if best:
        shown.append(
            [
                "the optimum",
                *(f"{best[measure]:.3f}" if measure in best else "-" for measure in OBJECTIVES),
                "",
            ]
        )
    shown.append(["the paper's best", *(f"{PAPER.best(one):.2f}" for one in OBJECTIVES), ""])
    title = f"Mean reversion, preset {preset}: mean over seeds"
    show(terminal(130), title, ("", *SHORT, "seeds"), shown, lines)
    return reached
