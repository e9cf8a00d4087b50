"""The comparison on mean reversion (table 2 of the paper): 13 agents valued by 7 measures.

Every agent is valued by every measure on 100,000 fresh episodes. Writes a row for each into
`results/mean-reversion-default.csv` and `results/mean-reversion-paper.csv`; what is complete there
is not trained again.
"""

import numpy as np

from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._rows import Row, values
from downside.experiments._study import Study
from downside.experiments._tables import show, terminal
from downside.experiments._training import Cell, agent_label, agent_of
from downside.experiments.optimum import ENVIRONMENT, GAMMA, OBJECTIVES, SHORT, optimum

PAPER = paper_table("mean_reversion")
ROWS = PAPER.rows
CHANGES = {"distribution_fraction": 0.0}
"""Only the policies are looked at here, so that there is nothing to learn once they are found."""


def main(options: Options) -> bool:
    """Trains, values, writes and prints; says whether the default QR-SRM reach the paper's."""
    agree = True
    for preset in options.presets:
        rows = study(options, preset).train(f"mean-reversion, {preset}")
        reached = _show(rows, optimum(options.folder / "mean-reversion-optimum.csv"), preset)
        agree &= reached or preset == "paper" or options.quick
    return agree


def studies(options: Options) -> list[Study]:
    """One for each preset."""
    return [study(options, preset) for preset in options.presets]


def study(options: Options, preset: str) -> Study:
    """Its agents, seed by seed, so that a table without holes comes first."""
    return Study(
        name=f"mean-reversion-{preset}",
        command=f"downside reproduce mean-reversion --preset {preset}",
        env=ENVIRONMENT,
        cells=[
            Cell(algorithm, objective, seed, {"preset": preset, **CHANGES})
            for seed in options.seeds_or()
            for algorithm, objective in map(agent_of, ROWS)
            if options.wants(agent_label(algorithm, objective))
        ],
        measures=OBJECTIVES,
        order=_order,
        options=options,
        facts={"gamma": GAMMA, "preset": preset, "changes": CHANGES},
    )


def _order(row: Row) -> tuple[int, int, int]:
    """As in the paper's table."""
    agent = ROWS.index(agent_label(row["algorithm"], row["objective"]))
    return agent, int(row["seed"]), OBJECTIVES.index(row["measure"])


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
