"""What each of our choices adds: QR-SRM on mean reversion with one of them taken back at a time.

Writes `results/ablation.csv`, a row for each choice, measure and seed; what is there is not trained
again. A quarter of the default number of steps, so that differences show.
"""

from collections.abc import Mapping
from typing import Any

from downside.experiments._options import Options
from downside.experiments._study import read_rows, values, with_agent, write_about, write_rows
from downside.experiments._tables import show, terminal
from downside.experiments._training import EPISODES, Cell, is_done, train_cells
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
    path = options.folder / "ablation.csv"
    rows = read_rows(path)
    for one in train_cells(ENVIRONMENT, missing(options), "ablation", options):
        own = {"choice": one.cell.label, **one.rows(one.cell.objective)[0]}
        del own["algorithm"]
        # Read again: another command may have written other agents in the meantime.
        rows = with_agent(read_rows(path), [own], "choice", "objective", "seed")
        write_rows(path, rows)
        write_about(
            path.with_suffix(".json"),
            "downside reproduce ablation",
            environment=ENVIRONMENT,
            gamma=GAMMA,
            total_timesteps=TIMESTEPS,
            seeds=sorted({int(row["seed"]) for row in rows}),
            episodes=EPISODES,
            choices={name: dict(changes) for name, changes in CHOICES.items()},
        )
    shown = []
    for name in CHOICES:
        own = [values(rows, choice=name, objective=risk, measure=risk) for risk in RISKS]
        shown.append([name, *(f"{one.mean():.4f}" if one.size else "-" for one in own)])
    show(terminal(), "One choice taken back at a time", ("", *RISKS), shown)
    return True


def remaining(options: Options) -> int:
    """How many agents are still to be trained."""
    return len(missing(options))


def missing(options: Options) -> list[Cell]:
    """The agents that are not in the file."""
    rows = read_rows(options.folder / "ablation.csv")
    choices = list(CHOICES.items())[: 2 if options.quick else None]
    common = {"distribution_fraction": 0.0, "total_timesteps": TIMESTEPS}
    cells = [
        Cell("QR-SRM", risk, seed, {**common, **changes}, label=name)
        for name, changes in choices
        for seed in options.seeds_or((10,))
        for risk in RISKS
        if options.wants(name)
    ]
    return [
        one
        for one in cells
        if not is_done(rows, ENVIRONMENT, one, options, choice=one.label, objective=one.objective)
    ]
