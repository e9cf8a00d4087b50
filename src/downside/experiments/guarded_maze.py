"""The guarded maze of CeSoR: published rows, ours, and the best walker on a grid.

Writes `results/guarded-maze.csv` (each agent and seed by each measure, with the episodes that it
lived through and the steps that it simulated beside them) and `results/guarded-maze-planned.csv`
(plans on a grid of positions, in the true environment). The published agents learn from 100,000
episodes (Greenberg, Chow, Ghavamzadeh and Mannor, NeurIPS 2022).

AC-SRM is asked for the measure from its first step on. An agent that learns the mean first goes
past the guard, and stays there when it is asked to be careful: all small changes of that way are
worse.

QR-SRM discounts, so that it hurries: without a discount all ways to the goal are worth the same to
its critic once the moves that cost something are over. What is shown are sums of rewards without a
discount.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from downside.envs import GuardedMaze
from downside.evaluation import Evaluation
from downside.evaluation.seeds import estimate_mean
from downside.experiments import _md
from downside.experiments._experiment import EPISODES, QUICK_SHARE, Experiment, Run, entry
from downside.experiments._maze_grid import make_grid, solve_maze
from downside.experiments._options import Options
from downside.experiments._results import RESAMPLES
from downside.experiments._rows import Row, add_rows, read_rows, select
from downside.experiments._tables import show, terminal
from downside.experiments._undiscounted import undiscounted_returns
from downside.runs import evaluation_seed

ENVIRONMENT, GAMMA = "downside/GuardedMaze-v0", 1.0
MEASURES = ("mean", "cvar(0.1)", "cvar(0.05)")
PUBLISHED: Mapping[str, tuple[float, float, float]] = {
    "policy gradient": (4.2, -40.3, -63.3),
    "GCVaR": (-32.0, -32.0, -32.0),
    "CeSoR": (2.0, -4.6, -6.7),
}
"""By the three measures, after 100,000 episodes."""
LEAST = {"mean": 2.0, "cvar(0.05)": -6.7}
"""What a careful agent must reach with every seed: what CeSoR does."""
CAREFUL, MILD = "0.5*mean + 0.5*cvar(0.05)", "0.8*mean + 0.2*cvar(0.05)"
"""What AC-SRM and QR-SRM are asked for. A fifth is enough to keep away from the guard. With more, h
is so steep below its bend that QR-SRM's critic hardly sees how long a walk takes; an actor does."""
PLANS: Mapping[str, float] = {"mean": 1.0, "0.1*mean + 0.9*cvar(0.05)": 0.1, MILD: 0.8}
"""Objectives that are planned for, with the share of the mean."""
AGENTS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("AC-SRM", CAREFUL): {
        "gamma": GAMMA,
        "risk_neutral_fraction": 0.0,
        "risk_ramp": 0.0,
        "num_envs": 128,
        "n_steps": 32,
        "ent_coef": 0.01,
        "adapt": False,
        "clock": "off",
        "total_timesteps": 600_000,
    },
    ("QR-SRM", MILD): {
        "gamma": 0.99,
        "risk_neutral_fraction": 0.3,
        "exploration_final": 0.3,
        "outer_interval": 200,
        "outer_episodes": 512,
        "total_timesteps": 900_000,
    },
}
"""Settings of each agent and objective. AC-SRM is careful from its first step on, and explores by
its entropy; the maze shows the time itself. QR-SRM first learns to find the goal at all, goes on
exploring, and judges its policies more often, in fewer episodes, which may be long."""
BENDS = (-6.0, -5.0, -4.0, -3.0, -2.0)
"""The b that are tried for a plan: returns are whole numbers unless a guard asks for money."""


def main(options: Options) -> bool:
    """Trains and plans what is missing, writes and prints; returns whether every seed of the
    careful agent reaches what CeSoR does, and there is one."""
    rows = experiment(options).train()
    _plan(options)
    show(terminal(110), "The guarded maze", HEADER, lines(options))
    careful = select(rows, algorithm="AC-SRM", objective=CAREFUL)
    return options.quick or is_level(careful)


def is_level(careful: Sequence[Row]) -> bool:
    """Whether there are rows of the careful agent, and all reach what CeSoR does."""
    return bool(careful) and all(
        float(row[f"sum {measure}"]) >= least for measure, least in LEAST.items() for row in careful
    )


def experiments(options: Options) -> list[Experiment]:
    """The only one."""
    return [experiment(options)]


def experiment(options: Options) -> Experiment:
    """AC-SRM and QR-SRM for mixtures of the mean and the worst 5%."""
    return Experiment(
        name="guarded-maze",
        command="downside reproduce guarded-maze",
        env=ENVIRONMENT,
        entries=[
            entry(algorithm, risk, **settings)
            for (algorithm, risk), settings in AGENTS.items()
            if options.wants(f"{algorithm} {risk}")
        ],
        seeds=options.seeds_or(),
        measures=MEASURES,
        order=lambda row: (
            list(AGENTS).index((row["algorithm"], row["objective"])),
            int(row["seed"]),
            MEASURES.index(row["measure"]),
        ),
        options=options,
        extra=_extra,
        facts={"changes": {" ".join(agent): dict(changes) for agent, changes in AGENTS.items()}},
    )


def _extra(run: Run) -> Row:
    """Steps and episodes, and sums of rewards without discount: what is published."""
    agent = run.agent
    sums = undiscounted_returns(
        agent, GuardedMaze(), run.spec.episodes, evaluation_seed(run.spec.seed)
    )
    result = Evaluation(sums)
    row: Row = {
        "lived": agent.num_timesteps,
        "simulated": agent.simulated_steps,
        "episodes": int(agent.history[-1]["episodes"]),
    }
    for measure in MEASURES:
        row[f"sum {measure}"] = round(result.value(measure), 6)
        row[f"sum {measure} error"] = round(result.standard_error(measure), 6)
    return row


# --- plans --------------------------------------------------------------------------------------


def _plan(options: Options) -> None:
    """Solves the maze for each objective that has no rows yet."""
    path = options.folder / "guarded-maze-planned.csv"
    rows, grid = read_rows(path), None
    episodes = EPISODES // QUICK_SHARE if options.quick else EPISODES
    for risk, mean_share in PLANS.items():
        if select(rows, plan=risk):
            continue
        begin = time.process_time()
        grid = grid or make_grid(0.25 if options.quick else 0.125)
        bends = [0.0] if mean_share == 1.0 else list(BENDS)
        plan = solve_maze(grid, level=0.05, mean_share=mean_share, bends=bends)
        result = Evaluation(plan.returns(episodes, evaluation_seed(0)))
        new = [
            {
                "plan": risk,
                "measure": measure,
                "value": round(result.value(measure), 6),
                "standard_error": round(result.standard_error(measure), 6),
                "on_grid": round(plan.value, 6),
                "seconds": round(time.process_time() - begin, 1),
            }
            for measure in MEASURES
        ]
        facts: Row = {"environment": ENVIRONMENT, "gamma": GAMMA, "episodes": episodes}
        facts |= {"spacing": grid.spacing}
        add_rows(path, rows, new, ("plan", "measure"), "downside reproduce guarded-maze", facts)


# --- the table ----------------------------------------------------------------------------------

HEADER = ("agent", *MEASURES, "seeds", "episodes", "steps", "simulated")


def lines(options: Options) -> list[list[str]]:
    """Published rows, ours with intervals over seeds, and the plans."""
    out = [
        [f"{name}, published", *(f"{value:g}" for value in values), "", "100,000", "", ""]
        for name, values in PUBLISHED.items()
    ]
    rows = experiment(options).rows()
    for algorithm, risk in AGENTS:
        mine = select(rows, algorithm=algorithm, objective=risk, measure="mean")
        if mine:
            cells = [_interval(mine, measure) for measure in MEASURES]
            names = ("episodes", "lived", "simulated")
            counts = [f"{max(int(row[name]) for row in mine):,}" for name in names]
            out.append([f"{algorithm} {risk}", *cells, str(len(mine)), *counts])
    plans = read_rows(options.folder / "guarded-maze-planned.csv")
    for risk in PLANS:
        plan = {row["measure"]: float(row["value"]) for row in select(plans, plan=risk)}
        if plan:
            cells = [f"{plan[measure]:.2f}" for measure in MEASURES]
            out.append([f"plan on a grid, {risk}", *cells, "", "", "", ""])
    return out


def _interval(rows: Sequence[Row], measure: str) -> str:
    values = [float(row[f"sum {measure}"]) for row in rows]
    errors = [float(row[f"sum {measure} error"]) for row in rows]
    return _md.interval(estimate_mean(values, errors, resamples=RESAMPLES), 2, seeds=1)
