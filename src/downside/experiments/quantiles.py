"""How many quantiles? (appendix I of the paper): QR-SRM for the mean against QR-DQN.

QR-SRM with N = 10, 25, 50, 100 and 200 quantiles, and QR-DQN with 50 and 200. Writes
`results/quantiles-PRESET.csv` (values), `quantiles-PRESET-returns.csv` (quantiles of the returns)
and `quantiles-PRESET-curves.csv` (the course of training), and draws `figures/quantiles-PRESET`.
What an update costs is in `quantiles-cost.csv` (`_cost.py`).

Differs: in the preset `default` QR-SRM scores actions by a network without quantiles, so that N
changes only the distribution that is fitted afterwards. Here it scores them by its quantiles, with
the settings of QR-DQN in that preset: the two differ in (s, c) only.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from downside.experiments import _cost
from downside.experiments._experiment import Experiment, Run, entry
from downside.experiments._options import Options
from downside.experiments._quantiles_figure import draw
from downside.experiments._rows import Row, select, values
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.train import QRDQN, QRSRM, Agent, Callback

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
        study = experiment(options, preset)
        rows = study.train()
        if rows:
            _show(rows, preset)
            draw(
                (rows, study.rows("-returns"), study.rows("-curves"), cost), options.folder, preset
            )
    return True


def experiments(options: Options) -> list[Experiment]:
    """One for each preset."""
    return [experiment(options, preset) for preset in options.presets]


def experiment(options: Options, preset: str) -> Experiment:
    """Both algorithms, those with few quantiles first: they are quick."""
    ours = QUICK_COUNTS if options.quick else COUNTS
    theirs = QUICK_DQN_COUNTS if options.quick else DQN_COUNTS
    agents = sorted([(n, "QR-SRM") for n in ours] + [(n, "QR-DQN") for n in theirs])
    changes = {"QR-SRM": settings_of_qrdqn(preset), "QR-DQN": {}}
    return Experiment(
        name=f"quantiles-{preset}",
        command=f"downside reproduce quantiles --preset {preset}",
        env=ENVIRONMENT,
        entries=[
            entry(
                algorithm,
                OBJECTIVE,
                label=f"{algorithm}, {count} quantiles",
                row={"quantiles": count},
                **changes[algorithm],
                preset=preset,
                quantiles=count,
            )
            for count, algorithm in agents
            if options.wants(f"{algorithm}, {count} quantiles")
        ],
        seeds=options.seeds_or(SEEDS),
        measures=MEASURES,
        order=lambda row: (row["algorithm"], int(row["quantiles"]), int(row["seed"])),
        options=options,
        keys=("algorithm", "quantiles", "seed"),
        parts={"-returns": Run.returns, "-curves": _curve},
        facts={"gamma": GAMMA, "preset": preset, "changes_of_qrsrm": changes["QR-SRM"]},
        callback="downside.experiments.quantiles:StartMovement",
    )


def settings_of_qrdqn(preset: str) -> dict[str, Any]:
    """The settings of QR-DQN where QR-SRM has others; no distribution is fitted at the end."""
    ours, theirs = (
        dataclasses.asdict(kind(ENVIRONMENT, risk="mean", preset=preset).settings)
        for kind in (QRSRM, QRDQN)
    )
    changes = {name: value for name, value in theirs.items() if value != ours[name]}
    return {**changes, "evaluation_fraction": 0.0}


class StartMovement(Callback):
    """Records how far the learned return distribution of the start moves in each outer step.

    Mean absolute difference of the quantiles, under the policy that is kept.
    """

    def __init__(self) -> None:
        self.before: Float[np.ndarray, " N"] | None = None

    def on_step(self, agent: Agent) -> None:
        """Adds `moved` to the record of the outer step."""
        now = start_returns(agent)
        if self.before is not None:
            agent.history[-1]["moved"] = float(np.abs(now - self.before).mean())
        self.before = now


def start_returns(agent: Agent) -> Float[np.ndarray, " N"]:
    """The learned return distribution of the greedy action at the start."""
    observation, _ = agent.wrap().reset(seed=0)
    return agent.return_distribution(observation)[agent.scores(observation).argmax()]


def _curve(run: Run) -> list[Row]:
    """The value after each outer step, and the movement of the start distribution."""
    history = run.agent.history
    # The first step includes compilation: count it as long as the others are on average.
    first, last = history[0]["seconds"], history[-1]["seconds"]
    compiling = first - (last - first) / max(1, len(history) - 1)
    return [
        {
            **run.columns,
            "timesteps": int(record["timesteps"]),
            "seconds": round(record["seconds"] - compiling, 2),
            "value": round(record["mean"], 5),
            "moved": round(record["moved"], 6) if "moved" in record else "",
        }
        for record in history
    ]


def _show(rows: list[Row], preset: str) -> None:
    shown = []
    for algorithm, count in sorted({(r["algorithm"], int(r["quantiles"])) for r in rows}):
        seeds = [
            values(rows, algorithm=algorithm, quantiles=count, measure=measure)
            for measure in MEASURES
        ]
        timed = select(rows, algorithm=algorithm, quantiles=count, measure=OBJECTIVE)
        shown.append(
            [
                f"{algorithm}, {count}",
                *(f"{v.mean():.4f}" for v in seeds),
                f"{np.mean([float(row['seconds']) for row in timed]):.0f}",
                str(seeds[0].size),
            ]
        )
    header = ("agent, quantiles", "mean", "cvar 0.5", "cvar 0.2", "seconds", "seeds")
    show(terminal(), f"Number of quantiles, preset {preset}: mean over seeds", header, shown)
