# pyright: reportMissingImports=false
"""AC-SRM with risk `mean` against stable-baselines3's PPO: steps per second and what is learned.

    pip install "stable-baselines3" "gymnasium[box2d]"
    python benchmarks/ppo.py --env Pendulum-v1 --seeds 0 1 2
    python benchmarks/ppo.py --env LunarLanderContinuous-v3 --seeds 0 1 2

One process trains one after the other, in as many environments, for as many steps; seconds are
those of the processor. PPO has the settings of RL Baselines3 Zoo for the environment (`zoo`) or its
own defaults (`own`, one environment); AC-SRM has its defaults. Both are judged without noise by the
sum of rewards in 200 fresh episodes. `first` is the time until the first iteration is done, nearly
all of which is compiling; `later` are the steps per second after that.
"""

import argparse
import ast
import csv
import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import downside as ds

EPISODES = 200
ZOO: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {
        "n_envs": 4,
        "n_steps": 1024,
        "gae_lambda": 0.95,
        "gamma": 0.9,
        "n_epochs": 10,
        "learning_rate": 1e-3,
        "use_sde": True,
        "sde_sample_freq": 4,
    },
    "LunarLanderContinuous-v3": {
        "n_envs": 16,
        "n_steps": 1024,
        "batch_size": 64,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "n_epochs": 4,
        "ent_coef": 0.01,
    },
}
STEPS = {"Pendulum-v1": 200_000, "LunarLanderContinuous-v3": 500_000}


class Clock(BaseCallback):
    """Notes when each iteration of PPO begins."""

    def __init__(self):
        super().__init__()
        self.times: list[tuple[int, float]] = []

    def _on_rollout_start(self) -> None:
        self.times.append((self.num_timesteps, time.process_time()))

    def _on_step(self) -> bool:
        return True


def later(times: list[tuple[int, float]]) -> float:
    """Steps per second from the first of these times to the last one."""
    (steps, begin), (done, end) = times[0], times[-1]
    return (done - steps) / (end - begin)


def theirs(env: str, seed: int, steps: int, peer: str) -> dict[str, float]:
    """PPO."""
    settings = dict(ZOO[env]) if peer == "zoo" else {}
    vector = make_vec_env(env, n_envs=settings.pop("n_envs", 1), seed=seed)
    begin, clock = time.process_time(), Clock()
    model = PPO("MlpPolicy", vector, seed=seed, device="cpu", **settings)
    model.learn(steps, callback=clock)
    seconds = time.process_time() - begin
    clock.times.append((model.num_timesteps, time.process_time()))
    fresh = make_vec_env(env, n_envs=16, seed=77_000 + seed)
    reward, _ = evaluate_policy(model, fresh, EPISODES)
    return {
        "reward": float(np.mean(reward)),
        "steps": model.num_timesteps,
        "seconds": seconds,
        "first": clock.times[1][1] - begin,
        "later": later(clock.times[1:]),
    }


def ours(env: str, seed: int, steps: int, changes: dict[str, Any]) -> dict[str, float]:
    """AC-SRM."""
    begin, times = time.process_time(), []
    agent = ds.ACSRM(env, risk="mean", seed=seed, **changes)
    agent.learn(steps, callback=lambda a: times.append((a.num_timesteps, time.process_time())))
    seconds = time.process_time() - begin
    return {
        "reward": reward_of(agent, 77_000 + seed),
        "steps": agent.num_timesteps,
        "seconds": seconds,
        "first": times[0][1] - begin,
        "later": later(times),
    }


def reward_of(agent: ds.Agent, seed: int) -> float:
    """The mean sum of rewards of a policy without noise."""
    made = gym.make_vec(str(agent.env_spec.id), 16, vectorization_mode="sync")
    env, sums = agent.wrap(made), []
    observations, _ = env.reset(seed=seed)
    total, over = np.zeros(16), np.zeros(16, bool)
    while len(sums) < EPISODES:
        actions, _ = agent.predict(observations, deterministic=True)
        observations, rewards, ended, cut, _ = env.step(actions)
        total = np.where(over, 0.0, total + rewards)  # a step after an end does nothing but reset
        over = ended | cut
        sums += total[over].tolist()
    return float(np.mean(sums[:EPISODES]))


def main() -> None:
    """Trains, prints a line for each run and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", choices=list(ZOO), default="Pendulum-v1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--agents", nargs="+", choices=("ours", "zoo", "own"))
    parser.add_argument("--changes", default="{}", help="settings of AC-SRM, as a dictionary")
    parser.add_argument("--results", type=Path, help="a CSV to add rows to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = options.steps or STEPS[options.env]
    for seed in options.seeds:
        for name in options.agents or ("ours", "zoo", "own"):
            if name == "ours":
                row = ours(options.env, seed, steps, ast.literal_eval(options.changes))
            else:
                row = theirs(options.env, seed, steps, name)
            print(
                f"{options.env} {name} seed {seed}: reward {row['reward']:.1f}, "
                f"{row['steps']:,} steps in {row['seconds']:.1f} s "
                f"({row['steps'] / row['seconds']:,.0f} a second; first iteration after "
                f"{row['first']:.1f} s, then {row['later']:,.0f} a second)",
                flush=True,
            )
            if options.results:
                add(options.results, {"env": options.env, "agent": name, "seed": seed, **row})


def add(path: Path, row: dict[str, Any]) -> None:
    """With one more row, in place of an earlier one of the same run."""
    rows = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    same = ("env", "agent", "seed")
    rows = [old for old in rows if any(old[name] != str(row[name]) for name in same)]
    shown = {name: round(v, 2) if isinstance(v, float) else v for name, v in row.items()}
    rows = sorted([*rows, shown], key=lambda r: tuple(str(r[name]) for name in same))
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)


if __name__ == "__main__":
    main()
