"""PG-SRM on the paper's problems: mean reversion with 21 trades and with continuous ones, with and
without (s, c) in the actor's input, and the American put; and on further ones (`actors_planned`).

Writes `results/actors.csv`, `actors-continuous.csv`, `actors-memoryless.csv` and `actors-put.csv`:
a row for each objective and seed. `--only` takes parts of names such as "actors PG-SRM cvar(0.5)",
"actors-put PG-SRM cvar(0.2)" or "actors-checks".
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from downside.experiments import actors_checks, actors_planned, put
from downside.experiments._experiment import QUICK_ACTOR, Experiment, entry
from downside.experiments._options import Options
from downside.experiments._paper import agent_label
from downside.experiments._results import difference
from downside.experiments._rows import Row, by_seed, select, values
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA, OBJECTIVES, optimum

MORE = ("exponential(12)", "dual_power(4)")
"""Objectives beside those of the paper's table."""
MEMORYLESS = ("cvar(0.5)", "cvar(0.2)")
"""Objectives for which an actor without (s, c) is trained, too."""


def main(options: Options) -> bool:
    """Trains the missing agents, writes and prints; there is nothing to agree with."""
    for experiment in experiments(options):
        experiment.train()
    actors_planned.solve_missing(options)
    actors_checks.check_missing(options, trading(options))
    _show(options)
    return True


def experiments(options: Options) -> list[Experiment]:
    """One for each table."""
    return [
        _trading(options, "actors", (*OBJECTIVES, *MORE)),
        _trading(options, "actors-memoryless", MEMORYLESS, see_memory=False),
        _trading(options, "actors-continuous", (*OBJECTIVES, *MORE), {"continuous": True}),
        _put(options),
        *actors_planned.experiments(options),
    ]


def trading(options: Options) -> Experiment:
    """The objectives of the paper's table on its 21 trades, whatever `only` names; one seed."""
    alone = dataclasses.replace(options, only=(), seeds=options.seeds_or((0,)))
    return _trading(alone, "actors", OBJECTIVES)


def _trading(
    options: Options,
    name: str,
    objectives: Sequence[str],
    parameters: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Experiment:
    return Experiment(
        name=name,
        command="downside reproduce actors",
        env=ENVIRONMENT,
        parameters=parameters or {},
        entries=[
            entry("PG-SRM", objective, gamma=GAMMA, **settings)
            for objective in objectives
            if options.wants(f"{name} {agent_label('PG-SRM', objective)}")
        ],
        seeds=options.seeds_or(),
        measures=(),
        order=lambda row: (objectives.index(row["objective"]), int(row["seed"])),
        options=options,
        facts={"gamma": GAMMA, "parameters": dict(parameters or {}), "changes": settings},
        quick=QUICK_ACTOR,
    )


def _put(options: Options) -> Experiment:
    return Experiment(
        name="actors-put",
        command="downside reproduce actors",
        env=put.ENVIRONMENT,
        entries=[
            entry("PG-SRM", risk, gamma=put.GAMMA)
            for risk in put.RISKS
            if options.wants(f"actors-put {agent_label('PG-SRM', risk)}")
        ],
        seeds=options.seeds_or(),
        measures=(),
        order=lambda row: (put.RISKS.index(row["objective"]), int(row["seed"])),
        options=options,
        extra=put.boundary_column,
        facts={"gamma": put.GAMMA},
        quick=QUICK_ACTOR,
    )


def optima(options: Options) -> dict[str, float]:
    """The planner's values, as far as they are solved."""
    folder = options.folder
    spectra = optimum(folder / "spectra-optimum.csv")
    return {**spectra, **optimum(folder / "mean-reversion-optimum.csv")}


def lines(options: Options) -> list[list[str]]:
    """A line for each objective of mean reversion: PG-SRM on the 21 trades, its share of the
    optimum, with continuous trades, and the optimum."""
    tables = {experiment.name: experiment.rows() for experiment in experiments(options)}
    best, out = optima(options), []
    for objective in (*OBJECTIVES, *MORE):
        grid, box = (
            values(tables[name], objective=objective) for name in ("actors", "actors-continuous")
        )
        if not grid.size and not box.size:
            continue
        known = best.get(objective)
        share = "-"
        if grid.size and known is not None:
            small = known < 0.05
            gap = grid.mean() - known
            share = f"{gap:+.4f}" if small else f"{grid.mean() / known:.1%}"
        out.append(
            [
                objective,
                _mean(grid),
                share,
                _mean(box),
                "-" if known is None else f"{known:.4f}",
                _seconds(tables["actors"], objective),
                f"{grid.size}, {box.size}",
            ]
        )
    return out


HEADER = (
    "objective",
    "21 trades",
    "of the optimum",
    "continuous",
    "optimum",
    "seconds of training",
    "seeds (21 trades, continuous)",
)


def memory_lines(options: Options) -> list[list[str]]:
    """What (s, c) in the actor's input adds: with it, without it, and the difference."""
    tables: dict[str, list[Row]] = {e.name: e.rows() for e in experiments(options)}
    out = []
    for objective in MEMORYLESS:
        with_it, without = (
            by_seed(tables[name], objective=objective) for name in ("actors", "actors-memoryless")
        )
        if not set(with_it) & set(without):
            continue
        gap, seeds = difference(with_it, without), set(with_it) & set(without)
        interval = f" [{gap.low:.4f}, {gap.high:.4f}]" if len(seeds) > 1 else ""
        out.append(
            [
                objective,
                _mean(np.array(list(with_it.values()))),
                _mean(np.array(list(without.values()))),
                f"{gap.value:+.4f}{interval}",
                str(len(seeds)),
            ]
        )
    return out


MEMORY_HEADER = ("objective", "with (s, c)", "without", "difference", "seeds")


def put_lines(options: Options) -> list[list[str]]:
    """The American put: value, optimum, and the largest gap between the boundaries."""
    rows = _put(options).rows()
    folder = options.folder
    best = optimum(folder / "american-put-optimum.csv")
    plans = put.plans(folder)
    out = []
    for risk in put.RISKS:
        seeds = values(rows, objective=risk)
        if not seeds.size:
            continue
        middle = put.median(put.boundaries(rows, risk))
        gap = np.abs(middle - put.planned(plans, risk, len(middle)))
        out.append(
            [
                risk,
                _mean(seeds),
                f"{best[risk]:.4f}" if risk in best else "-",
                "-" if np.isnan(gap).all() else f"{np.nanmax(gap):.3f}",
                str(seeds.size),
            ]
        )
    return out


PUT_HEADER = ("objective", "PG-SRM", "optimum", "largest gap of the boundary", "seeds")


def _mean(seeds: np.ndarray) -> str:
    """The mean over seeds, and their standard deviation if there are several."""
    if not seeds.size:
        return "-"
    return f"{seeds.mean():.4f}" + (f" ± {seeds.std(ddof=1):.4f}" if seeds.size > 1 else "")


def _seconds(rows: Sequence[Row], objective: str) -> str:
    """What an agent took, by the clock."""
    each = [float(row["seconds"]) for row in select(rows, objective=objective)]
    return f"{np.mean(each):.0f}" if each else "-"


def _show(options: Options) -> None:
    console = terminal(130)
    show(console, "PG-SRM on mean reversion: mean over seeds", HEADER, lines(options))
    show(console, "What (s, c) adds", MEMORY_HEADER, memory_lines(options))
    show(console, "PG-SRM on the American put", PUT_HEADER, put_lines(options))
    further = actors_planned.lines(options)
    show(console, "PG-SRM on further problems", actors_planned.HEADER, further)
    checks = actors_checks.lines(options)
    show(console, "Checks of explanations", actors_checks.HEADER, checks)
