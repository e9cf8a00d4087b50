"""What each of our choices adds: QR-SRM on mean reversion without one of them at a time.

Writes `results/ablation.csv`: a row for each choice, measure and seed. Runs have a quarter of the
default number of steps, so that differences show.
"""

from collections.abc import Mapping
from typing import Any

from downside.experiments._experiment import Experiment, entry
from downside.experiments._options import Options
from downside.experiments._rows import values
from downside.experiments._tables import show, terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA

RISKS = ("cvar(0.5)", "cvar(0.2)")
TIMESTEPS = 192_000
CHOICES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "Adam instead of Muon": {"optimiser": "adam", "learning_rate": 2e-3},
    "ReLU instead of SiLU": {"activation": "relu"},
    "one outcome instead of a mirrored pair": {"samples_per_action": 1},
    "no extra weight on differences": {"advantage_weight": 1.0},
    "all actions instead of those that score best": {"top_actions": 21, "random_actions": 0},
    "transitions as they were lived through": {"top_actions": 0, "random_actions": 0},
    "no relabelling": {"memory_noise": 0.0},
    "no search over shifts": {"shifts": 1},
    "h from learned quantiles": {"outer": "learned"},
}


def main(options: Options) -> bool:
    """Trains, writes and prints; there is nothing to agree with."""
    rows = experiment(options).train()
    shown = []
    for name in CHOICES:
        seeds = [values(rows, choice=name, objective=risk, measure=risk) for risk in RISKS]
        shown.append([name, *(f"{v.mean():.4f}" if v.size else "-" for v in seeds)])
    show(terminal(), "Without one choice at a time", ("", *RISKS), shown)
    return True


def experiments(options: Options) -> list[Experiment]:
    """The only one."""
    return [experiment(options)]


def experiment(options: Options) -> Experiment:
    """QR-SRM for each choice and measure."""
    choices = list(CHOICES)[: 2 if options.quick else None]
    common = {"evaluation_fraction": 0.0, "total_timesteps": TIMESTEPS}
    return Experiment(
        name="ablation",
        command="downside reproduce ablation",
        env=ENVIRONMENT,
        entries=[
            entry("QR-SRM", risk, label=name, row={"choice": name}, **common, **CHOICES[name])
            for name in choices
            for risk in RISKS
            if options.wants(name)
        ],
        seeds=options.seeds_or((10,)),
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
