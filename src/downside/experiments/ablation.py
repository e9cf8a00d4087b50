"""What each of our choices adds: QR-SRM on mean reversion with one of them taken back at a time.

Writes `results/ablation.csv`, a row for each choice, measure and seed; what is there is not trained
again. A quarter of the default number of steps, so that differences show.
"""

from collections.abc import Mapping
from typing import Any

from downside.experiments._options import Options
from downside.experiments._rows import values
from downside.experiments._study import Study
from downside.experiments._tables import show, terminal
from downside.experiments._training import Cell
from downside.experiments.optimum import ENVIRONMENT, GAMMA

RISKS = ("cvar(0.5)", "cvar(0.2)")
TIMESTEPS = 192_000
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "Adam instead of Muon": {"optimiser": "adam", "learning_rate": 2e-3},
    "ReLU instead of SiLU": {"activation": "relu"},
    "one outcome instead of a mirrored pair": {"outcomes": 1},
    "no extra weight on differences": {"difference_weight": 1.0},
    "all actions instead of those that score best": {"near_greedy": 21, "random_actions": 0},
    "transitions as they were lived through": {"near_greedy": 0, "random_actions": 0},
    "inputs scaled once": {"rescale_until": 0.0},
    "no relabelling": {"relabel": 0.0},
    "no search over shifts": {"shifts": 1},
    "h from learned quantiles": {"outer": "learned"},
}


def main(options: Options) -> bool:
    """Trains, writes and prints; there is nothing to agree with."""
    rows = study(options).train("ablation")
    shown = []
    for name in CHOICES:
        own = [values(rows, choice=name, objective=risk, measure=risk) for risk in RISKS]
        shown.append([name, *(f"{one.mean():.4f}" if one.size else "-" for one in own)])
    show(terminal(), "One choice taken back at a time", ("", *RISKS), shown)
    return True


def studies(options: Options) -> list[Study]:
    """The one there is."""
    return [study(options)]


def study(options: Options) -> Study:
    """Its agents, choice by choice."""
    choices = list(CHOICES)[: 2 if options.quick else None]
    common = {"distribution_fraction": 0.0, "total_timesteps": TIMESTEPS}
    return Study(
        name="ablation",
        command="downside reproduce ablation",
        env=ENVIRONMENT,
        cells=[
            Cell(
                "QR-SRM",
                risk,
                seed,
                {**common, **CHOICES[name]},
                label=name,
                entries={"choice": name},
            )
            for name in choices
            for seed in options.seeds_or((10,))
            for risk in RISKS
            if options.wants(name)
        ],
        measures=(),
        order=lambda row: (list(CHOICES).index(row["choice"]), int(row["seed"]), row["objective"]),
        options=options,
        keys=("choice", "objective", "seed"),
        facts={
            "gamma": GAMMA,
            "total_timesteps": TIMESTEPS,
            "choices": {name: dict(changes) for name, changes in CHOICES.items()},
        },
    )
