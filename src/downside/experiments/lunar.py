"""The windy lunar lander (table 3 of the paper).

Writes `results/lunar-lander-PRESET.csv`. With another number of steps than usual the table has it
in its name, and the settings are those of the preset alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from downside.experiments._experiment import Experiment, Run, entry
from downside.experiments._options import Options
from downside.experiments._paper import agent_of, paper_table
from downside.experiments._rows import Row, select
from downside.experiments._tables import show, terminal

ENVIRONMENT = "downside/WindyLunarLander-v0"
GAMMA, EPISODES = 0.99, 1_000
TIMESTEPS: Mapping[str, int] = {"default": 2_500_000, "paper": 500_000}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {
        "num_envs": 32,
        "updates_per_step": 1,
        "buffer_size": 400_000,
        "min_discount": 0.0,
        "history_length": 1,
        "averaging": 0.4,
    },
    "paper": {},
}
"""Changes to a preset. The simulator is fast: with an eighth of the updates per step there can be
many more steps; after a million, caution could not be told from chance. Such long runs keep the
average of the last networks (`averaging`) and cut off no episode (`min_discount`), which was
measured in short runs only. All agents see the last change of the observation
(`history_length`), also QR-DQN and QR-iCVaR, which do not by default: so they differ in the measure
only."""
MIXTURE = "0.5*cvar(0.2)+0.5*cvar(1.0)"
MEASURES = ("cvar(1.0)", "cvar(0.5)", "cvar(0.2)", MIXTURE)
ROWS = (
    "QR-DQN",
    f"QR-SRM {MIXTURE}",
    "QR-SRM cvar(0.2)",
    "QR-SRM cvar(0.5)",
    "QR-SRM cvar(1.0)",
    "QR-iCVaR 0.5",
    "QR-iCVaR 0.2",
    "QR-CVaR 1.0",
    "QR-CVaR 0.5",
    "QR-CVaR 0.2",
)
"""The paper's rows, the most important first."""
PAPER = paper_table("windy_lunar_lander").figures
SB3_TIMESTEPS = 300_000
SB3 = dict(zip(MEASURES, (43.6, 20.1, 4.2, 23.9), strict=True))
"""QR-DQN of stable-baselines3-contrib in one run of so many steps: layers of 3 x 128, 50 quantiles,
batches of 128, learning rate 1.5e-3 decaying to 0, an update for four steps."""


def main(options: Options) -> bool:
    """Trains, writes and prints; there is no optimum to agree with."""
    for preset in options.presets:
        _show(experiment(options, preset).train(), preset)
    return True


def experiments(options: Options) -> list[Experiment]:
    """One for each preset."""
    return [experiment(options, preset) for preset in options.presets]


def experiment(options: Options, preset: str) -> Experiment:
    """The agents of the paper's table, or those of `only`."""
    usual = options.timesteps in (None, TIMESTEPS[preset])
    timesteps = options.timesteps or TIMESTEPS[preset]
    changes = SETTINGS[preset] if usual and not options.quick else {}
    names = [name for name in ROWS if options.wants(name)]

    def command(rows: Sequence[Row]) -> str:
        text = f"downside reproduce lunar --preset {preset}"
        text += "" if usual else f" --timesteps {timesteps}"
        there = {row["row"] for row in rows}
        if there != set(ROWS):
            text += "".join([" --only", *(f' "{name}"' for name in ROWS if name in there)])
        return text

    return Experiment(
        name=f"lunar-lander-{preset}" + ("" if usual else f"-{timesteps}"),
        command=command,
        env=ENVIRONMENT,
        entries=[
            entry(
                *agent_of(name),
                row={"row": name},
                preset=preset,
                gamma=GAMMA,
                total_timesteps=timesteps,
                **changes,
            )
            for name in (names[:1] if options.quick else names)
        ],
        seeds=options.seeds_or((0, 1, 2)),
        measures=MEASURES,
        order=lambda row: (ROWS.index(row["row"]), int(row["seed"])),
        options=options,
        episodes=EPISODES,
        keys=("row", "seed"),
        extra=_steps,
        facts={
            "gamma": GAMMA,
            "preset": preset,
            "total_timesteps": timesteps,
            "settings": dict(changes),
        },
    )


def _steps(run: Run) -> Row:
    return {"timesteps": run.agent.num_timesteps}


def _show(rows: Sequence[Row], preset: str) -> None:
    lines: list[list[str]] = []
    for name in ROWS:
        line, seeds = [name], []
        for measure in MEASURES:
            seeds = [float(row["value"]) for row in select(rows, row=name, measure=measure)]
            if seeds:
                spread = f" ± {np.std(seeds, ddof=1):.1f}" if len(seeds) > 1 else ""
                line.append(f"{np.mean(seeds):.1f}{spread} ({PAPER[name, measure].mean:.1f})")
        if len(line) > 1:
            lines.append([*line, str(len(seeds))])
    header = ("agent", *MEASURES[:3], "half and half", "seeds")
    title = f"Windy lunar lander, preset {preset}: mean ± sd of seeds (the paper's)"
    show(terminal(), title, header, lines)
