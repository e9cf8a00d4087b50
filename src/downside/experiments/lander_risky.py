"""Return Capping's lander: a safe left side and a gamble on the right, published rows beside ours.

Writes `results/lander-risky.csv`. The published agents (Mead, Costen, Lacerda and Hawes, ICML 2025)
live through 1.5 million steps, and so do ours; with `--timesteps` through others, and the table
then has their number in its name. Runs are resumed where they were interrupted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from downside.evaluation import Evaluation, evaluate_policy
from downside.evaluation.seeds import estimate_mean
from downside.experiments._experiment import QUICK_SHARE, Experiment, Run, entry
from downside.experiments._options import Options
from downside.experiments._paper import agent_label
from downside.experiments._results import RESAMPLES
from downside.experiments._rows import Row, select
from downside.experiments._tables import show, terminal
from downside.runs import evaluation_seed

ENVIRONMENT = "downside/RiskyLunarLander-v0"
EPISODES, PLAYED, COPIES = 200, 1_000, 20
"""Episodes of the evaluation with discount, and of that without, so many at a time."""
TIMESTEPS = 1_500_000
RISK = "cvar(0.2)"
MEASURES = ("mean", RISK)
AGENTS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("AC-SRM", RISK): {
        "gamma": 0.995,
        "risk_neutral_fraction": 0.0,
        "risk_ramp": 0.1,
        "mean_weight": 0.4,
        "ent_coef": 0.005,
        "num_envs": 32,
        "n_steps": 128,
        "batch_size": 512,
    },
    ("QR-SRM", RISK): {"gamma": 0.995},
    ("QR-DQN", "cvar(1.0)"): {"gamma": 0.995},
}
"""Settings of each algorithm and objective, the most important first. AC-SRM keeps two fifths of
the mean: with less it stays in the air, where nothing can be lost; with more it learns to land on
the right, and never leaves it. The discount makes it land soon."""
ROWS = tuple(AGENTS)
PUBLISHED: Mapping[str, float] = {"return capping": 263.0, "PPO for the mean": 203.0, "MIX": 165.0}
"""About, by cvar(0.2) of the sums of rewards after 1.5 million steps: read off a figure."""


def main(options: Options) -> bool:
    """Trains, writes and prints; there is no optimum to agree with."""
    experiment(options).train()
    show(terminal(100), "Return Capping's lander, undiscounted", HEADER, lines(options))
    return True


def experiments(options: Options) -> list[Experiment]:
    """The only one."""
    return [experiment(options)]


def experiment(options: Options) -> Experiment:
    """AC-SRM and QR-SRM for the worst fifth, and QR-DQN."""
    timesteps = options.timesteps or TIMESTEPS
    usual = timesteps == TIMESTEPS
    return Experiment(
        name="lander-risky" + ("" if usual else f"-{timesteps}"),
        command="downside reproduce lander-risky" + ("" if usual else f" --timesteps {timesteps}"),
        env=ENVIRONMENT,
        entries=[
            entry(algorithm, risk, **settings, total_timesteps=timesteps)
            for (algorithm, risk), settings in AGENTS.items()
            if options.wants(agent_label(algorithm, risk))
        ],
        seeds=options.seeds_or((0, 1, 2)),
        measures=MEASURES,
        order=lambda row: (
            ROWS.index((row["algorithm"], row["objective"])),
            int(row["seed"]),
            MEASURES.index(row["measure"]),
        ),
        options=options,
        episodes=EPISODES,
        extra=_extra,
        facts={
            "changes": {" ".join(agent): dict(changes) for agent, changes in AGENTS.items()},
            "total_timesteps": timesteps,
        },
    )


def _extra(run: Run) -> Row:
    """The steps, and sums of rewards without discount: what is published."""
    episodes = PLAYED // QUICK_SHARE if run.spec.episodes < EPISODES else PLAYED
    sums, _ = evaluate_policy(
        run.agent,
        gym.make_vec(ENVIRONMENT, COPIES, "sync"),
        n_eval_episodes=episodes,
        return_episode_rewards=True,
        seed=evaluation_seed(run.spec.seed),
    )
    result = Evaluation(np.asarray(sums, float))
    row: Row = {"timesteps": run.agent.num_timesteps, "played": episodes}
    for name, measure in zip(("mean", "cvar"), MEASURES, strict=True):
        row[f"sum_{name}"] = round(result.value(measure), 3)
        row[f"sum_{name}_error"] = round(result.standard_error(measure), 3)
    return row


HEADER = ("agent", "mean", RISK, "seeds", "steps")


def lines(options: Options) -> list[list[str]]:
    """Published values, and ours with intervals over seeds, as sums of rewards."""
    out = [
        [f"{name}, published", "", f"about {value:g}", "", f"{TIMESTEPS:,}"]
        for name, value in PUBLISHED.items()
    ]
    rows = experiment(options).rows()
    for algorithm, risk in ROWS:
        mine = select(rows, algorithm=algorithm, objective=risk, measure=RISK)
        if mine:
            steps = max(int(row["timesteps"]) for row in mine)
            cells = [_interval(mine, name) for name in ("sum_mean", "sum_cvar")]
            out.append([agent_label(algorithm, risk), *cells, str(len(mine)), f"{steps:,}"])
    return out


def _interval(rows: Sequence[Row], name: str) -> str:
    values = [float(row[name]) for row in rows]
    errors = [float(row[f"{name}_error"]) for row in rows]
    estimate = estimate_mean(values, errors, resamples=RESAMPLES)
    return f"{estimate.value:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"
