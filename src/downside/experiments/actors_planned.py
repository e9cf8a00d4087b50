"""PG-SRM in further problems that the planner can solve: the cliff walk, mean reversion with other
volatilities and horizons, and the frontier of mean reversion.

Writes `results/actors-NAME.csv` for each problem, and the optima to `actors-planned-optimum.csv`.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from downside.envs import make_jax
from downside.exact import solve
from downside.experiments._experiment import QUICK_ACTOR, Experiment, entry
from downside.experiments._options import Options
from downside.experiments._paper import agent_label
from downside.experiments._rows import Row, add_rows, read_rows, select, values
from downside.experiments.frontier import END, POINTS, START
from downside.experiments.optimum import ENVIRONMENT, EPISODES, GAMMA, QUICK_EPISODES
from downside.studies.frontiers import mixtures

COMMAND = "downside reproduce actors"
OPTIMUM = "actors-planned-optimum"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem with an exact answer, and the agents that are trained in it."""

    words: str
    env: str
    risks: tuple[str, ...]
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of the agents, beside γ."""
    solved_by: str = COMMAND
    """The command that solves it."""


PROBLEMS: Mapping[str, Problem] = {
    "actors-cliff": Problem(
        words="cliff walk",
        env="downside/CliffWalk-v0",
        risks=("mean", "cvar(0.2)"),
        # All four actions are simulated to the end of episodes of up to 100 steps.
        settings={
            "updates": 600,
            "final_batches": 1,
            "outer_interval": 50,
            "outer_episodes": 16_384,
        },
    ),
    "actors-quiet": Problem(
        words="mean reversion, σ = 0.5",
        env=ENVIRONMENT,
        risks=("cvar(0.5)", "cvar(0.2)", "exponential(12)"),
        parameters={"sigma": 0.5},
    ),
    "actors-loud": Problem(
        words="mean reversion, σ = 1.5, 5 trades",
        env=ENVIRONMENT,
        # By the last one doing nothing is best.
        risks=("dual_power(3)", "0.5*cvar(0.3)+0.5*mean", "cvar(0.2)"),
        parameters={"sigma": 1.5, "periods": 5},
    ),
    "actors-long": Problem(
        words="mean reversion, 20 trades until time 2",
        env=ENVIRONMENT,
        risks=("cvar(0.5)",),
        parameters={"periods": 20, "maturity": 2.0},
    ),
    "actors-frontier": Problem(
        words="mean reversion, frontier",
        env=ENVIRONMENT,
        risks=tuple(str(risk) for _, risk in mixtures(START, END, POINTS)),
        solved_by="downside reproduce frontier",
    ),
}


def experiments(options: Options) -> list[Experiment]:
    """One for each problem."""
    return [_experiment(options, name, problem) for name, problem in PROBLEMS.items()]


def _experiment(options: Options, name: str, problem: Problem) -> Experiment:
    return Experiment(
        name=name,
        command=COMMAND,
        env=problem.env,
        parameters=problem.parameters,
        entries=[
            entry("PG-SRM", risk, gamma=GAMMA, **problem.settings)
            for risk in problem.risks
            if options.wants(f"{name} {agent_label('PG-SRM', risk)}")
        ],
        seeds=options.seeds_or((0,)),
        measures=(),
        order=lambda row: (problem.risks.index(row["objective"]), int(row["seed"])),
        options=options,
        facts={
            "gamma": GAMMA,
            "parameters": dict(problem.parameters),
            "changes": dict(problem.settings),
        },
        quick=QUICK_ACTOR,
    )


def solve_missing(options: Options) -> None:
    """Solves the problems that are not in the table, for the measures that are wanted."""
    path = options.folder / f"{OPTIMUM}.csv"
    rows = read_rows(path)
    episodes = QUICK_EPISODES if options.quick else EPISODES
    for name, problem in PROBLEMS.items():
        for risk in problem.risks if problem.solved_by == COMMAND else ():
            wanted = options.wants(f"{name} optimum {risk}")
            if not wanted or select(rows, problem=name, objective=risk):
                continue
            env = make_jax(problem.env, **problem.parameters)
            assert env is not None
            begin = time.perf_counter()
            refine = 0.25 if options.quick else 1.0
            plan = solve(env, risk, gamma=GAMMA, refine=refine, episodes=episodes)
            estimate = plan.estimate
            row = {
                "problem": name,
                "objective": risk,
                "value": round(estimate.value, 6),
                "standard_error": round(estimate.standard_error, 6),
                "recursion": round(plan.value, 6),
                "seconds": round(time.perf_counter() - begin, 1),
            }
            facts: Row = {"gamma": GAMMA, "seed": 0, "episodes": episodes}
            add_rows(path, rows, [row], ("problem", "objective"), COMMAND, facts)


def optima(options: Options, name: str) -> dict[str, float]:
    """The planner's value of each measure, as far as it is solved; without sampling error."""
    if PROBLEMS[name].solved_by == COMMAND:
        rows = select(read_rows(options.folder / f"{OPTIMUM}.csv"), problem=name)
        return {row["objective"]: float(row["recursion"]) for row in rows}
    rows = read_rows(options.folder / "frontier.csv")
    return {row["risk"]: float(row["optimum"]) for row in rows if row["optimum"]}


HEADER = ("objective", "problem", "PG-SRM", "optimum", "difference", "seeds")


def lines(options: Options) -> list[list[str]]:
    """A line for each problem and measure: the mean over seeds beside the planner's value."""
    out = []
    for experiment in experiments(options):
        problem, rows = PROBLEMS[experiment.name], experiment.rows()
        best = optima(options, experiment.name)
        for risk in problem.risks:
            seeds = values(rows, objective=risk)
            if seeds.size:
                known = best.get(risk)
                out.append(
                    [
                        risk,
                        problem.words,
                        f"{seeds.mean():.4f}",
                        "-" if known is None else f"{known:.4f}",
                        "-" if known is None else f"{seeds.mean() - known:+.4f}",
                        str(seeds.size),
                    ]
                )
    return out
