"""Whether the explanations of PG-SRM's agents can be relied on: the checks of `ds.explain`.

Reads the agents that `downside reproduce actors` has trained, and makes two that have hardly
learned, which must not pass. Writes `results/actors-checks.csv`.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from downside.experiments._experiment import Experiment
from downside.experiments._options import Options
from downside.experiments._rows import Row, add_rows, read_rows, select
from downside.experiments._tables import terminal
from downside.experiments.optimum import ENVIRONMENT, GAMMA
from downside.explanation import explain
from downside.studies.storage import state
from downside.train import PGSRM, Agent

NAME = "actors-checks"
COMMAND = "downside reproduce actors"
EARLY_RISKS, EARLY_UPDATES = ("cvar(0.5)", "cvar(0.2)"), 30
"""The agents that have hardly learned."""
CHECKS = ("levels", "parts", "promise", "choices")


def check_missing(options: Options, trained: Experiment) -> None:
    """Explains the agents of `trained` that are finished and not in the table."""
    path = options.folder / f"{NAME}.csv"
    rows = read_rows(path)
    for objective, seed, updates, agent in _agents(options, trained, rows):
        begin = time.perf_counter()
        calibration = explain(agent, checks=50 if options.quick else 500).calibration
        assert calibration is not None
        verdicts = calibration.verdicts
        row = {
            "objective": objective,
            "seed": seed,
            "updates": updates,
            "verdict": calibration.verdict,
            **{name: verdicts.get(name, "") for name in CHECKS},
            "promised": round(calibration.whole, 6),
            "achieved": round(calibration.achieved, 6),
            "achieved_error": round(calibration.achieved_error, 6),
            "better_choices": round(calibration.choice_gap[0], 6),
            "allowed": round(calibration.choice_gap[1], 6),
            "spread": round(calibration.spread, 6),
            "seconds": round(time.perf_counter() - begin, 1),
        }
        add_rows(path, rows, [row], ("objective", "seed", "updates"), COMMAND, _facts)
        terminal().print(f"{objective}, seed {seed}: {calibration.words}", markup=False)


def _facts(rows: Sequence[Row]) -> Row:
    seeds = sorted({int(row["seed"]) for row in rows})
    return {"environment": ENVIRONMENT, "gamma": GAMMA, "seeds": seeds}


def _agents(
    options: Options, trained: Experiment, rows: list[Row]
) -> Iterator[tuple[str, int, int, Agent]]:
    """The agents that are not in the table: objective, seed, updates and agent."""
    for run in trained.runs:
        objective, seed = run.columns["objective"], run.spec.seed
        written = select(rows, objective=objective, seed=seed)
        done = any(int(row["updates"]) != EARLY_UPDATES for row in written)
        wanted = options.wants(f"{NAME} {objective}")
        if wanted and not done and state(run.folder, run.spec.episodes) == "finished":
            yield objective, seed, int(run.agent.history[-1]["updates"]), run.agent
    for risk in EARLY_RISKS if options.wants(f"{NAME} early") else ():
        if not select(rows, objective=risk, updates=EARLY_UPDATES):
            yield risk, 0, EARLY_UPDATES, _early(risk)


def _early(risk: str) -> Agent:
    """An agent that has hardly learned."""
    settings: Mapping[str, Any] = {"updates": EARLY_UPDATES, "outer_interval": 10}
    return PGSRM(ENVIRONMENT, risk=risk, seed=0, gamma=GAMMA, **settings).learn()


HEADER = (
    "objective",
    "updates",
    "verdict",
    "promised",
    "achieved",
    "better choices would add",
    "allowed",
    "seed",
)


def lines(options: Options) -> list[list[str]]:
    """A line for each agent that was checked."""
    return [
        [
            row["objective"],
            row["updates"],
            row["verdict"],
            f"{float(row['promised']):.4f}",
            f"{float(row['achieved']):.4f}",
            f"{float(row['better_choices']):.4f}",
            f"{float(row['allowed']):.4f}",
            row["seed"],
        ]
        for row in read_rows(options.folder / f"{NAME}.csv")
    ]
