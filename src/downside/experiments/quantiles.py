"""How many quantiles? (appendix I of the paper): QR-SRM for the mean against QR-DQN.

QR-SRM with N = 10, 25, 50, 100 and 200 quantiles, and QR-DQN with 50 and 200. Writes
`results/quantiles-PRESET.csv` (values), `quantiles-PRESET-returns.csv` (quantiles of the returns)
and `quantiles-PRESET-curves.csv` (the course of training), and draws `figures/quantiles-PRESET`.
What an update costs is in `quantiles-cost.csv` (`_cost.py`).

Differs: in the preset `default` QR-SRM scores actions by a network that knows no quantiles, so that
N changes nothing but the distribution that is learned afterwards. Here it scores them by its
quantiles, with the settings that QR-DQN has in that preset: what sets the two apart is (s, c).
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from downside.agents.memoryless import AbstractMemoryless
from downside.experiments import _cost
from downside.experiments._options import Options
from downside.experiments._quantile_figure import draw
from downside.experiments._study import (
    Row,
    read_rows,
    select,
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
    Trained,
    is_done,
    train_cells,
)
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.train import Agent
from downside.train.policy import Policy

COUNTS, QUICK_COUNTS = (10, 25, 50, 100, 200), (5, 10)
DQN_COUNTS, QUICK_DQN_COUNTS = (50, 200), (10,)
OBJECTIVE = "cvar(1.0)"
MEASURES = (OBJECTIVE, "cvar(0.5)", "cvar(0.2)")
SEEDS = (0, 1, 2)
KEYS = ("algorithm", "quantiles", "seed")
FILES = ("", "-returns", "-curves")


def main(options: Options) -> bool:
    """Trains, measures, writes and draws; there is nothing to agree with."""
    counts = QUICK_COUNTS if options.quick else COUNTS
    cost = _cost.measured(options.folder / "quantiles-cost.csv", counts, quick=options.quick)
    for preset in options.presets:
        kept = [read_rows(path) for path in paths(options.folder, preset)]
        cells = missing(options, preset)
        for one in train_cells(ENVIRONMENT, cells, f"quantiles, {preset}", options, start_returns):
            # The values last: an agent whose values are there is complete.
            parts = (one.rows(*MEASURES), one.returns(), _curve(one))
            for i, new in reversed(list(enumerate(parts))):
                count = one.agent.settings.quantiles
                own = [{"algorithm": row["algorithm"], "quantiles": count, **row} for row in new]
                # Read again: another command may have written other agents in the meantime.
                kept[i] = with_agent(read_rows(paths(options.folder, preset)[i]), own, *KEYS)
                kept[i].sort(key=_order)
                write_rows(paths(options.folder, preset)[i], kept[i])
            write_about(
                paths(options.folder, preset)[0].with_suffix(".json"),
                f"downside reproduce quantiles --preset {preset}",
                environment=ENVIRONMENT,
                gamma=GAMMA,
                preset=preset,
                changes={name: _plain(value) for name, value in _settings(preset, 0).items()},
                seeds=sorted({int(row["seed"]) for row in kept[0]}),
                episodes=QUICK_EPISODES if options.quick else EPISODES,
            )
        if kept[0]:
            _show(kept[0], preset)
            draw((kept[0], kept[1], kept[2], cost), options.folder, preset)
    return True


def paths(folder: Path, preset: str) -> list[Path]:
    """Where the values, the returns and the course of training are written."""
    return [folder / f"quantiles-{preset}{file}.csv" for file in FILES]


def remaining(options: Options) -> int:
    """How many agents are still to be trained."""
    return sum(len(missing(options, preset)) for preset in options.presets)


def missing(options: Options, preset: str) -> list[Cell]:
    """The agents that are not in the file, those with few quantiles first: they are quick."""
    rows = read_rows(paths(options.folder, preset)[0])
    ours = QUICK_COUNTS if options.quick else COUNTS
    theirs = QUICK_DQN_COUNTS if options.quick else DQN_COUNTS
    agents = sorted([(n, "QR-SRM") for n in ours] + [(n, "QR-DQN") for n in theirs])
    cells = [
        Cell(
            algorithm,
            OBJECTIVE,
            seed,
            _settings(preset, count) if algorithm == "QR-SRM" else _common(preset, count),
            label=f"{algorithm}, {count} quantiles",
        )
        for seed in options.seeds_or(SEEDS)
        for count, algorithm in agents
        if options.wants(f"{algorithm}, {count} quantiles")
    ]
    return [
        one
        for one in cells
        if not is_done(
            rows,
            ENVIRONMENT,
            one,
            options,
            algorithm=one.algorithm,
            quantiles=one.settings["quantiles"],
        )
    ]


def _common(preset: str, count: int) -> dict[str, Any]:
    return {"preset": preset, "quantiles": count, "distribution_fraction": 0.0}


def _settings(preset: str, count: int) -> dict[str, Any]:
    own = AbstractMemoryless.preset if preset == "default" else {}
    return {**own, **_common(preset, count), **AbstractMemoryless.fixed}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _order(row: Row) -> tuple[str, int, int]:
    return str(row["algorithm"]), int(row["quantiles"]), int(row["seed"])


def start_returns(agent: Agent) -> Float[np.ndarray, " N"]:
    """The return distribution at the start that the agent believes in just now."""
    run = agent._run
    assert run is not None
    policy = Policy(agent._algorithm, run.learner.networks, run.goal, agent._core)
    env = agent._algorithm.wrap(agent._core, run.goal)
    seen = np.asarray(env.observe(env.initial_state(jax.random.key(0))))
    return policy.quantiles(seen)[policy.scores(seen).argmax()]


def _curve(one: Trained) -> list[Row]:
    """What training reached after each outer step, and how far the start distribution moved."""
    out, history = [], one.agent.history
    # The first step compiled as well: it took as long as the others do on average.
    first, last = history[0]["seconds"], history[-1]["seconds"]
    compiling = first - (last - first) / max(1, len(history) - 1)
    for i, entry in enumerate(history):
        moved = np.abs(one.watched[i] - one.watched[i - 1]).mean() if i else np.nan
        out.append(
            {
                "algorithm": one.cell.algorithm,
                "seed": one.cell.seed,
                "timesteps": int(entry["timesteps"]),
                "seconds": round(entry["seconds"] - compiling, 2),
                "value": round(entry["mean"], 5),
                "moved": "" if np.isnan(moved) else round(float(moved), 6),
            }
        )
    return out


def _show(rows: list[Row], preset: str) -> None:
    shown = []
    for algorithm, count in sorted({(r["algorithm"], int(r["quantiles"])) for r in rows}):
        own = [
            values(rows, algorithm=algorithm, quantiles=count, measure=measure)
            for measure in MEASURES
        ]
        seconds = select(rows, algorithm=algorithm, quantiles=count, measure=OBJECTIVE)
        shown.append(
            [
                f"{algorithm}, {count}",
                *(f"{one.mean():.4f}" for one in own),
                f"{np.mean([float(row['seconds']) for row in seconds]):.0f}",
                str(own[0].size),
            ]
        )
    header = ("agent, quantiles", "mean", "cvar 0.5", "cvar 0.2", "seconds", "seeds")
    show(terminal(), f"Number of quantiles, preset {preset}: mean over seeds", header, shown)
