"""How many quantiles? (appendix I of the paper): QR-SRM for the mean against QR-DQN.

QR-SRM with N = 10, 25, 50, 100 and 200 quantiles, and QR-DQN with 50 and 200. Writes
`results/quantiles-PRESET.csv` (values), `quantiles-PRESET-returns.csv` (quantiles of the returns)
and `quantiles-PRESET-curves.csv` (the course of training), and draws `figures/quantiles-PRESET`.
What an update costs is in `quantiles-cost.csv` (`_cost.py`).

Differs: in the preset `default` QR-SRM scores actions by a network that knows no quantiles, so that
N changes nothing but the distribution that is learned afterwards. Here it scores them by its
quantiles, with the settings that QR-DQN has in that preset: what sets the two apart is (s, c).
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from downside.agents.memoryless import AbstractMemoryless
from downside.experiments import _cost
from downside.experiments._options import Options
from downside.experiments._quantile_figure import draw
from downside.experiments._rows import Row, select, values
from downside.experiments._study import Study
from downside.experiments._tables import show, terminal
from downside.experiments._training import Cell, Trained
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.train import Agent
from downside.train.policy import Policy

COUNTS, QUICK_COUNTS = (10, 25, 50, 100, 200), (5, 10)
DQN_COUNTS, QUICK_DQN_COUNTS = (50, 200), (10,)
OBJECTIVE = "cvar(1.0)"
MEASURES = (OBJECTIVE, "cvar(0.5)", "cvar(0.2)")
SEEDS = (0, 1, 2)


def main(options: Options) -> bool:
    """Trains, measures, writes and draws; there is nothing to agree with."""
    counts = QUICK_COUNTS if options.quick else COUNTS
    cost = _cost.measured(options.folder / "quantiles-cost.csv", counts, quick=options.quick)
    for preset in options.presets:
        made = study(options, preset)
        rows = made.train(f"quantiles, {preset}", start_returns)
        if rows:
            _show(rows, preset)
            draw((rows, made.rows("-returns"), made.rows("-curves"), cost), options.folder, preset)
    return True


def studies(options: Options) -> list[Study]:
    """One for each preset."""
    return [study(options, preset) for preset in options.presets]


def study(options: Options, preset: str) -> Study:
    """Its agents, seed by seed, those with few quantiles first: they are quick."""
    ours = QUICK_COUNTS if options.quick else COUNTS
    theirs = QUICK_DQN_COUNTS if options.quick else DQN_COUNTS
    agents = sorted([(n, "QR-SRM") for n in ours] + [(n, "QR-DQN") for n in theirs])
    return Study(
        name=f"quantiles-{preset}",
        command=f"downside reproduce quantiles --preset {preset}",
        env=ENVIRONMENT,
        cells=[
            Cell(
                algorithm,
                OBJECTIVE,
                seed,
                _settings(preset, count) if algorithm == "QR-SRM" else _common(preset, count),
                label=f"{algorithm}, {count} quantiles",
                entries={"quantiles": count},
            )
            for seed in options.seeds_or(SEEDS)
            for count, algorithm in agents
            if options.wants(f"{algorithm}, {count} quantiles")
        ],
        measures=MEASURES,
        order=lambda row: (row["algorithm"], int(row["quantiles"]), int(row["seed"])),
        options=options,
        keys=("algorithm", "quantiles", "seed"),
        parts={"-returns": Trained.returns, "-curves": _curve},
        facts={
            "gamma": GAMMA,
            "preset": preset,
            "changes_of_qrsrm": {
                name: _plain(value)
                for name, value in _settings(preset, 0).items()
                if name != "quantiles"
            },
        },
    )


def _common(preset: str, count: int) -> dict[str, Any]:
    return {"preset": preset, "quantiles": count, "distribution_fraction": 0.0}


def _settings(preset: str, count: int) -> dict[str, Any]:
    own = AbstractMemoryless.preset if preset == "default" else {}
    return {**own, **_common(preset, count), **AbstractMemoryless.fixed}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


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
                **one.cell.row(),
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
