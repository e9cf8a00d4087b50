"""Three richer spectra on mean reversion (figure 3 of the paper): returns, and the spectra.

QR-SRM for the exponential measure at 12, the dual power measure at 4 and a mixture of three levels.
Writes `results/spectra-PRESET.csv` (each agent by each measure) and `spectra-PRESET-returns.csv`
(quantiles of the returns), the planner's in `spectra-optimum.csv`, and draws
`figures/spectra-PRESET`.
"""

from typing import Any

import numpy as np

from downside.experiments._experiment import Experiment, Run, entry
from downside.experiments._figures import agent_words, colour, density, figure, words
from downside.experiments._options import Options
from downside.experiments._paper import agent_label
from downside.experiments._results import difference
from downside.experiments._rows import Row, by_seed, select, values
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA, optimum, solve_all
from downside.risk import parse

OBJECTIVES = ("exponential(12)", "dual_power(4)", "0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0)")
LINES = ("--", ":", "-")
"""Line styles of the measures, as in the paper."""


def main(options: Options) -> bool:
    """Solves, trains, writes, draws; returns whether each agent leads its column."""
    if not options.quick:
        path = options.folder / "spectra-optimum.csv"
        solve_all(path, "downside reproduce spectra", ENVIRONMENT, GAMMA, OBJECTIVES, options)
    leads = True
    for preset in options.presets:
        study = experiment(options, preset)
        rows = study.train()
        if rows:
            led = _show(rows, optimum(options.folder / "spectra-optimum.csv"), preset)
            leads &= led or preset == "paper"
            size, widths = (9.6, 3.8), {"width_ratios": (3, 2)}
            with figure(options.folder, study.name, 1, 2, size, **widths) as (_, axes):
                _draw(axes[0, 0], axes[0, 1], rows, study.rows("-returns"), preset)
    return leads or options.quick


def experiments(options: Options) -> list[Experiment]:
    """One for each preset."""
    return [experiment(options, preset) for preset in options.presets]


def experiment(options: Options, preset: str) -> Experiment:
    """QR-SRM for each objective."""
    return Experiment(
        name=f"spectra-{preset}",
        command=f"downside reproduce spectra --preset {preset}",
        env=ENVIRONMENT,
        entries=[
            entry("QR-SRM", objective, preset=preset, evaluation_fraction=0.0)
            for objective in OBJECTIVES
            if options.wants(agent_label("QR-SRM", objective))
        ],
        seeds=options.seeds_or(),
        measures=OBJECTIVES,
        order=lambda row: (OBJECTIVES.index(row["objective"]), int(row["seed"])),
        options=options,
        parts={"-returns": Run.returns},
        facts={"gamma": GAMMA, "preset": preset},
    )


def _show(rows: list[Row], best: dict[str, float], preset: str) -> bool:
    """Prints the table; returns whether no agent is significantly better than that of a measure."""
    table = {
        (objective, measure): by_seed(rows, objective=objective, measure=measure)
        for objective in OBJECTIVES
        for measure in OBJECTIVES
        if select(rows, objective=objective)
    }
    trained = [objective for objective in OBJECTIVES if (objective, objective) in table]
    shown = [
        [words(name), *(f"{np.mean([*table[name, m].values()]):.4f}" for m in OBJECTIVES)]
        for name in trained
    ]
    shown.append(
        ["the optimum", *(f"{best.get(objective, np.nan):.4f}" for objective in OBJECTIVES)]
    )
    header = ("QR-SRM for", *map(words, OBJECTIVES))
    title = f"Spectra, preset {preset}: mean over seeds"
    show(terminal(), title, header, shown, frozenset({2}))
    return all(
        difference(table[name, name], table[other, name]).high >= 0
        for name in trained
        for other in trained
    )


def _draw(left: Any, right: Any, rows: list[Row], returns: list[Row], preset: str) -> None:
    every = np.array([float(row["value"]) for row in returns])
    low, high = np.quantile(every, [0.002, 0.998])
    grid = np.linspace(low, high, 400)
    ranks = np.linspace(0.0005, 0.9995, 1000)
    for objective in OBJECTIVES:
        label = f"QR-SRM {objective}"
        sample = [float(row["value"]) for row in select(returns, objective=objective)]
        if not sample:
            continue
        left.plot(grid, density(sample, grid), color=colour(label), label=agent_words(label))
        for measure, line in zip(OBJECTIVES, LINES, strict=True):
            value = values(rows, objective=objective, measure=measure).mean()
            left.axvline(value, color=colour(label), linestyle=line, linewidth=1)
        heights = np.asarray(parse(objective).spectrum(ranks))
        right.plot(ranks, heights, color=colour(label), label=words(objective))
    for measure, line in zip(OBJECTIVES, LINES, strict=True):
        left.plot([], [], color="#777777", linestyle=line, label=f"value by {words(measure)}")
    left.set(
        title=f"Returns of QR-SRM, preset {preset}",
        xlabel="discounted return of an episode",
        ylabel="density",
        ylim=(0, None),
        xlim=(grid[0], grid[-1]),
    )
    left.legend(loc="upper right")
    right.set(
        title="The spectra",
        xlabel="rank of the outcome: 0 the worst, 1 the best",
        ylabel="how much it counts",
        xlim=(0, 1),
        ylim=(0, None),
    )
    right.legend()
