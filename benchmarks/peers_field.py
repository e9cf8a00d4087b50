# pyright: reportMissingImports=false
"""What a user would pick instead, after the same CPU time of one core.

    make peers        # in an environment of its own with PyTorch

PPO and SAC of stable-baselines3, QRDQN and TQC of sb3-contrib, with their default settings, PPO
with `ds.RiskReward`, and our agents: on mean reversion, hedging and the guarded maze. Every run has
a process of its own with one thread. How many steps a peer gets follows from its speed in a trial,
so that schedules that depend on the length of the run are right. Writes `results/peers.csv`; what
has its row is not run again. A peer plays its 20,000 episodes without random actions.
"""

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

ENVS, EPISODES, PLAYED, TRIAL, WARM = 32, 20_000, 4_000, 4.0, 4_096
"""Environments side by side in training; episodes of the evaluation, and how many at a time;
seconds of the trial, and the steps before it."""
MEASURES = ("mean", "cvar(0.2)", "cvar(0.05)")
NOISE_SEED = 1_000_000


class Problem(NamedTuple):
    """A problem, and who tries it."""

    name: str
    """As in `downside.envs`."""
    gamma: float
    risk: str
    """What those are asked for who can be asked."""
    horizon: int
    discrete: dict[str, Any] | None
    """Parameters under which actions are discrete; None if they never are."""
    continuous: dict[str, Any] | None
    ours: dict[str, dict[str, Any]]
    """Our agents with their settings."""


PATHWISE = {"updates": 800, "final_batches": 2}
MAZE = {"risk_neutral_fraction": 0.0, "risk_ramp": 0.0, "num_envs": 128, "n_steps": 32}
MAZE |= {"ent_coef": 0.01, "adapt": False, "clock": "off", "total_timesteps": 450_000}
"""As in `downside reproduce guarded-maze`, and as long as peers are given."""
PROBLEMS = {
    "mean-reversion": Problem(
        "MeanReversion", 0.99, "cvar(0.2)", 10, {}, {"continuous": True}, {"PGSRM": PATHWISE}
    ),
    "hedging": Problem(
        "Hedging", 1.0, "cvar(0.2)", 30, None, {}, {"PGSRM": {"updates": 400, "final_batches": 2}}
    ),
    "guarded-maze": Problem(
        "GuardedMaze", 1.0, "0.5*mean + 0.5*cvar(0.05)", 160, {}, None, {"ACSRM": MAZE}
    ),
}
DISCRETE, CONTINUOUS = ("PPO", "QRDQN", "PPO+RiskReward"), ("PPO", "SAC", "TQC", "PPO+RiskReward")


def methods(problem: Problem) -> list[str]:
    """All that try a problem; `continuous` in the name of those with continuous actions."""
    ours = [f"{name} {risk}" for name in problem.ours for risk in (problem.risk, "mean")]
    discrete = list(DISCRETE) if problem.discrete is not None else []
    continuous = [f"{name} continuous" for name in CONTINUOUS] if problem.continuous else []
    if problem.continuous == {}:
        continuous = [f"{name} continuous" for name in CONTINUOUS]
    elif problem.continuous and discrete:  # PPO has had its turn
        continuous = ["SAC continuous", "TQC continuous"]
    return [*ours, *discrete, *continuous]


# --- one run ------------------------------------------------------------------------------------


def run(problem: Problem, method: str, seconds: float, seed: int) -> dict[str, Any]:
    """Trains and plays."""
    is_ours = method.split()[0] in problem.ours
    played = ours(problem, method, seed) if is_ours else peer(problem, method, seconds, seed)
    returns, cost = played
    import downside as ds

    result = ds.Evaluation(returns)
    row = {"method": method, "seed": seed, **cost}
    for measure in MEASURES:
        row[measure] = round(result.value(measure), 4)
        row[f"error {measure}"] = round(result.standard_error(measure), 4)
    return row


def ours(problem: Problem, method: str, seed: int) -> Any:
    """One of our agents."""
    import downside as ds

    name, _, risk = method.partition(" ")
    begin = time.process_time()
    settings = {"gamma": problem.gamma, **problem.ours[name]}
    agent = getattr(ds, name)(f"downside/{problem.name}-v0", risk=risk, seed=seed, **settings)
    agent.learn()
    cost = {"seconds": round(time.process_time() - begin, 1), "lived": agent.num_timesteps}
    cost["simulated"] = agent.simulated_steps
    return ds.evaluate(agent, episodes=EPISODES, seed=NOISE_SEED + seed).returns, cost


def make(problem: Problem, method: str, copies: int) -> Any:
    """Copies of the problem, with `RiskReward` if the method has it."""
    import gymnasium as gym

    import downside as ds
    from downside.envs import GymnasiumVectorEnv

    parameters = problem.continuous if "continuous" in method else problem.discrete
    env: Any = GymnasiumVectorEnv(
        problem.name, copies, autoreset_mode="SameStep", **(parameters or {})
    )
    if "continuous" in method:  # as stable-baselines3 advises
        env = gym.wrappers.vector.RescaleAction(env, -1.0, 1.0)
    if "RiskReward" in method:
        env = ds.RiskReward(env, problem.risk, gamma=problem.gamma)
    return env


def model_of(problem: Problem, method: str, seed: int) -> Any:
    """The model with its default settings; n_steps for as many environments as there are."""
    import sb3_contrib
    import stable_baselines3
    from sb3_vector import Vectorised

    name = method.split()[0].partition("+")[0]
    algorithm = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
    gamma = 1.0 if "RiskReward" in method else problem.gamma
    named: dict[str, Any] = {"gamma": gamma, "seed": seed, "device": "cpu"}
    if name == "PPO":
        named |= {"n_steps": 2048 // ENVS, "batch_size": 256}
    elif name == "QRDQN":
        named |= {"learning_starts": 2_000, "train_freq": 1, "gradient_steps": 4}
        named |= {"buffer_size": 200_000}
    else:
        named |= {"learning_starts": 2_000, "train_freq": 1, "gradient_steps": 4}
        named |= {"buffer_size": 200_000, "ent_coef": "auto_0.1"}
    return algorithm("MlpPolicy", Vectorised(make(problem, method, ENVS)), **named)


def peer(problem: Problem, method: str, seconds: float, seed: int) -> Any:
    """One of stable-baselines3's, for so many CPU seconds."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList

    import downside as ds

    torch.set_num_threads(1)

    class Clock(BaseCallback):
        """Ends the training so much CPU time after the step `since`."""

        def __init__(self, most: float, since: int = 0):
            super().__init__()
            self.begin, self.most, self.since = time.process_time(), most, since

        def _on_step(self) -> bool:
            if self.num_timesteps <= self.since:
                self.begin = time.process_time()
            return time.process_time() - self.begin < self.most

    trial = Clock(TRIAL, since=WARM)  # compiling and random play do not count
    model_of(problem, method, seed + 999).learn(10**9, callback=trial)
    speed = (trial.num_timesteps - WARM) / (time.process_time() - trial.begin)
    model, clock = model_of(problem, method, seed), Clock(1.1 * seconds)
    steps = int(speed * seconds)
    moving = [ds.RiskRewardCallback()] if "RiskReward" in method else []
    callbacks: list[Any] = [clock, *moving]
    model.learn(steps, callback=CallbackList(callbacks) if moving else clock)
    cost = {"seconds": round(time.process_time() - clock.begin, 1), "lived": model.num_timesteps}
    return returns_of(problem, method, model, seed), {**cost, "simulated": 0}


def returns_of(problem: Problem, method: str, model: Any, seed: int) -> Any:
    """The discounted returns of fresh episodes."""
    import numpy as np

    returns = []
    for part in range(EPISODES // PLAYED):
        env = make(problem, method, PLAYED)
        if "RiskReward" in method:
            trained = model.get_env().get_attr("rewards")[0].utility
            if trained.bends is not None:
                env.move(trained.bends, trained.unit, trained.worth)
        observations, infos = env.reset(seed=NOISE_SEED + 1_000 * seed + part)
        earned, discount = np.zeros(PLAYED), np.ones(PLAYED)
        running = np.ones(PLAYED, bool)
        for _ in range(problem.horizon):
            actions, _ = model.predict(observations, deterministic=True)
            observations, rewards, terminated, truncated, infos = env.step(actions)
            done = terminated | truncated
            if "RiskReward" in method:
                if done.any():
                    ended = running & done
                    earned[ended] = infos["original"]["g"][ended]
            else:
                earned += np.where(running, discount * rewards, 0.0)
                discount *= problem.gamma
            running &= ~done
            if not running.any():
                break
        assert not running.any()
        returns.append(earned)
    return np.concatenate(returns)


# --- all of them --------------------------------------------------------------------------------


def main() -> None:
    """Runs what is missing and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU seconds of a peer")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of PROBLEM/METHOD")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--one", nargs=3, metavar=("PROBLEM", "METHOD", "SEED"))
    options = parser.parse_args()
    if options.one:
        name, method, seed = options.one
        row = run(PROBLEMS[name], method, options.seconds, int(seed))
        sys.stdout.write(json.dumps({"problem": name, **row}) + "\n")
        return
    path = options.results / "peers.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    for seed in options.seeds:
        for name, problem in PROBLEMS.items():
            for method in methods(problem):
                key = (name, method, str(seed))
                there = {(row["problem"], row["method"], str(row["seed"])) for row in rows}
                wanted = not options.only or any(p in f"{name}/{method}" for p in options.only)
                if key in there or not wanted:
                    continue
                command = [sys.executable, __file__, "--seconds", str(options.seconds)]
                done = subprocess.run(
                    [*command, "--one", *key], capture_output=True, text=True, check=False
                )
                if done.returncode:
                    sys.stderr.write(f"{key} failed:\n{done.stderr[-2000:]}\n")
                    continue
                row = json.loads(done.stdout.splitlines()[-1])
                rows.append(row)
                write(path, rows)
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()
    write_about(path, rows, options.seconds)
    for row in rows:
        shown = "  ".join(f"{float(row[measure]):9.3f}" for measure in MEASURES)
        sys.stdout.write(
            f"{row['problem']:15} {row['method']:34} {shown}  {float(row['seconds']):6.0f} s  "
            f"{int(row['lived']):>9,} lived  {int(row['simulated']):>11,} simulated\n"
        )
    for line in leads(rows):
        sys.stdout.write(f"{line}\n")


def leads(rows: list[dict[str, Any]]) -> list[str]:
    """By how much ours is ahead of each peer by `cvar(0.2)`, seed by seed, with intervals."""
    from downside.evaluation.seeds import estimate_mean

    lines = []
    for name, problem in PROBLEMS.items():
        mine, *others = (
            {int(row["seed"]): row for row in rows if (row["problem"], row["method"]) == key}
            for key in [
                (name, method) for method in methods(problem) if not method.endswith(" mean")
            ]
        )
        for other in others:
            seeds = sorted(mine.keys() & other.keys())
            if not seeds:
                continue
            pairs = [(mine[seed], other[seed]) for seed in seeds]
            gaps = [float(ours["cvar(0.2)"]) - float(peer["cvar(0.2)"]) for ours, peer in pairs]
            errors = [
                math.hypot(float(ours["error cvar(0.2)"]), float(peer["error cvar(0.2)"]))
                for ours, peer in pairs
            ]
            gap = estimate_mean(gaps, errors, resamples=None)
            lines.append(
                f"{name:15} {pairs[0][0]['method']} less {pairs[0][1]['method']:27} "
                f"{gap.value:8.3f} [{gap.low:.3f}, {gap.high:.3f}]  seeds {seeds}"
            )
    return lines


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """The rows, under a temporary name first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)


def write_about(path: Path, rows: list[dict[str, Any]], seconds: float) -> None:
    """How the rows were made."""
    from downside.experiments._rows import write_about as write_json

    seeds = sorted({int(row["seed"]) for row in rows})
    facts = {"seeds": seeds, "seconds": seconds, "episodes": EPISODES, "environments": ENVS}
    write_json(path.with_suffix(".json"), "make peers", **facts)


if __name__ == "__main__":
    main()
