"""The comparison on mean reversion (table 2 of the paper): 13 agents by 7 measures.

Writes `results/mean-reversion-PRESET.csv`: a row for each agent, seed and measure.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from downside.experiments._experiment import Experiment, entry
from downside.experiments._options import Options
from downside.experiments._paper import agent_label, agent_of, paper_table
from downside.experiments._rows import Row, values
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA, OBJECTIVES, SHORT, optimum

PAPER = paper_table("mean_reversion")
ROWS = PAPER.rows
CHANGES: Mapping[str, Any] = {"evaluation_fraction": 0.0}
"""Only policies are evaluated: no return distribution is fitted to the final one."""


def main(options: Options) -> bool:
    """Trains, writes and prints; returns whether the default QR-SRM agents reach the paper's."""
    agree = True
    for preset in options.presets:
        rows = experiment(options, preset).train()
        reached = _show(rows, optimum(options.folder / "mean-reversion-optimum.csv"), preset)
        agree &= reached or preset == "paper" or options.quick
    return agree


def experiments(options: Options) -> list[Experiment]:
    """One for each preset."""
    return [experiment(options, preset) for preset in options.presets]


def experiment(options: Options, preset: str) -> Experiment:
    """The agents of the paper's table."""
    return Experiment(
        name=f"mean-reversion-{preset}",
        command=f"downside reproduce mean-reversion --preset {preset}",
        env=ENVIRONMENT,
        entries=[entry(*agent_of(r), preset=preset, **CHANGES) for r in ROWS if options.wants(r)],
        seeds=options.seeds_or(),
        measures=OBJECTIVES,
        order=_order,
        options=options,
        facts={"gamma": GAMMA, "preset": preset, "changes": dict(CHANGES)},
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
        seeds = np.zeros(0)
        for measure in OBJECTIVES:
            seeds = values(rows, algorithm=algorithm, objective=objective, measure=measure)
            line.append(f"{seeds.mean():.3f}" if seeds.size else "-")
            if seeds.size and measure == objective and algorithm == "QR-SRM":
                paper = PAPER.figures[label, measure]
                reached &= bool(seeds.mean() >= paper.mean - paper.deviation)
        shown.append([*line, str(seeds.size)])
    lines = frozenset({len(shown) - 1})
    if best:
        shown.append(
            [
                "the optimum",
                *(f"{best[measure]:.3f}" if measure in best else "-" for measure in OBJECTIVES),
                "",
            ]
        )
    shown.append(["the paper's best", *(f"{PAPER.best(m):.2f}" for m in OBJECTIVES), ""])
    title = f"Mean reversion, preset {preset}: mean over seeds"
    show(terminal(130), title, ("", *SHORT, "seeds"), shown, lines)
    return reached
