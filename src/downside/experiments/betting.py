"""The betting game: QR-SRM beside the exact optimum.

Writes `results/betting.csv`: each agent and seed by its own objective, and `betting-optimum.csv`:
the planner's. Sources differ in the probability to win a bet; it is 0.8 here. Bets are rounded down
to whole units, so that the game is finite and can be solved exactly.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from downside.envs import BettingGame
from downside.evaluation.seeds import estimate_mean
from downside.exact import solve
from downside.experiments import _md
from downside.experiments._experiment import Experiment, Run, entry
from downside.experiments._options import Options
from downside.experiments._results import RESAMPLES
from downside.experiments._rows import Row, add_rows, read_rows, select
from downside.experiments._tables import show, terminal

ENVIRONMENT, GAMMA = "downside/BettingGame-v0", 1.0
RISKS = ("mean", "cvar(0.2)", "cvar(0.5)", "0.5*mean + 0.5*cvar(0.2)")
SETTINGS: Mapping[str, Any] = {}
WITHIN = 0.02
"""The share of the optimum by which QR-SRM may fall short, on average over seeds."""
HELD = ("mean", "cvar(0.2)")
"""The objectives that are held to this."""


def main(options: Options) -> bool:
    """Trains and solves what is missing, writes and prints; returns whether QR-SRM is within 2% of
    the optimum by the mean and the worst fifth, as far as it was trained for them."""
    rows, best = experiment(options).train(), optima(options)
    show(terminal(100), "The betting game", HEADER, lines(options))
    shares = {
        risk: np.mean([float(row["value"]) for row in select(rows, objective=risk)]) / best[risk]
        for risk in HELD
        if select(rows, objective=risk)
    }
    return options.quick or is_near([float(share) for share in shares.values()])


def is_near(shares: Sequence[float]) -> bool:
    """Whether there are shares of the optimum, and all are near 1."""
    return bool(shares) and all(share >= 1.0 - WITHIN for share in shares)


def experiments(options: Options) -> list[Experiment]:
    """The only one."""
    return [experiment(options)]


def experiment(options: Options) -> Experiment:
    """QR-SRM for each objective."""
    return Experiment(
        name="betting",
        command="downside reproduce betting",
        env=ENVIRONMENT,
        entries=[
            entry("QR-SRM", risk, gamma=GAMMA, **SETTINGS)
            for risk in RISKS
            if options.wants(f"QR-SRM {risk}")
        ],
        seeds=options.seeds_or((0, 1, 2)),
        measures=(),
        order=lambda row: (RISKS.index(row["objective"]), int(row["seed"])),
        options=options,
        extra=_steps,
        facts={"gamma": GAMMA, "win": BettingGame().win, "changes": dict(SETTINGS)},
    )


def _steps(run: Run) -> Row:
    return {"lived": run.agent.num_timesteps, "simulated": run.agent.simulated_steps}


def optima(options: Options) -> dict[str, float]:
    """The planner's value of each objective; what is not in the table is solved."""
    path = options.folder / "betting-optimum.csv"
    rows = read_rows(path)
    for risk in RISKS:
        if select(rows, plan=risk):
            continue
        begin = time.process_time()
        plan = solve(BettingGame(), risk, gamma=GAMMA, episodes=10_000)
        assert plan.bounds is not None
        row = {
            "plan": risk,
            "measure": risk,
            "value": round(plan.value, 6),
            "upper": round(plan.bounds[1], 6),
            "seconds": round(time.process_time() - begin, 1),
        }
        facts: Row = {"environment": ENVIRONMENT, "gamma": GAMMA, "win": BettingGame().win}
        add_rows(path, rows, [row], ("plan", "measure"), "downside reproduce betting", facts)
    return {row["plan"]: float(row["value"]) for row in rows}


HEADER = ("objective", "QR-SRM", "optimum", "at most", "of the optimum", "seeds", "seconds")


def lines(options: Options) -> list[list[str]]:
    """A line for each objective: the value with its interval over seeds, and its share of the
    optimum."""
    rows, out = experiment(options).rows(), []
    plans = {row["plan"]: row for row in read_rows(options.folder / "betting-optimum.csv")}
    for risk in RISKS:
        mine = select(rows, objective=risk)
        if not mine or risk not in plans:
            continue
        values = [float(row["value"]) for row in mine]
        errors = [float(row["standard_error"]) for row in mine]
        best = float(plans[risk]["value"])
        out.append(
            [
                risk,
                _md.interval(estimate_mean(values, errors, resamples=RESAMPLES), 2, seeds=1),
                f"{best:.2f}",
                f"{float(plans[risk]['upper']):.2f}",
                f"{np.mean(values) / best:.1%}",
                str(len(values)),
                f"{np.mean([float(row['seconds']) for row in mine]):.0f}",
            ]
        )
    return out
