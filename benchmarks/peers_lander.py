# pyright: reportMissingImports=false
"""What stable-baselines3-contrib's QRDQN is worth in the windy lunar lander.

    make peers-lander        # in an environment of its own with PyTorch

Writes `results/lunar-lander-sb3.csv` in the form of our own table, for the page to show it beside.
Downside is not imported here.
"""

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np
import torch
from sb3_contrib import QRDQN
from stable_baselines3.common.env_util import make_vec_env

GAMMA, EPISODES, STEPS = 0.99, 1_000, 300_000
PLAYED = 16
"""Environments side by side when the policy is valued."""


def main() -> None:
    """Trains and values one seed after the other; those that are there are left alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("results/lunar-lander-sb3.csv"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    if options.results.exists():
        with options.results.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    for seed in options.seeds:
        if any((row["seed"], row["timesteps"]) == (str(seed), str(options.steps)) for row in rows):
            continue
        begin = time.perf_counter()
        model = trained(seed, options.steps)
        seconds = time.perf_counter() - begin
        returns = np.sort(discounted_returns(model, options.episodes, 10_000 + seed))
        worth = measures(returns)
        for measure, value in worth.items():
            rows.append(
                {
                    "row": "stable-baselines3-contrib QRDQN",
                    "seed": seed,
                    "measure": measure,
                    "value": round(value, 4),
                    "timesteps": options.steps,
                    "seconds": round(seconds, 1),
                }
            )
        write(options.results, rows)
        print(f"seed {seed}, {seconds:.0f} s:", {one: round(worth[one], 1) for one in worth})


def trained(seed: int, steps: int) -> QRDQN:
    """Three layers of 128, 50 quantiles, batches of 128, an update for four steps."""
    env = make_vec_env("LunarLander-v3", n_envs=4, env_kwargs={"enable_wind": True}, seed=seed)
    model = QRDQN(
        "MlpPolicy",
        env,
        learning_rate=lambda left: 1.5e-3 * left,
        gamma=GAMMA,
        batch_size=128,
        buffer_size=100_000,
        learning_starts=2_000,
        train_freq=1,  # a step of four environments, then an update
        gradient_steps=1,
        target_update_interval=500,
        exploration_fraction=0.1,
        exploration_final_eps=0.02,
        policy_kwargs={"net_arch": [128, 128, 128], "n_quantiles": 50},
        device="cpu",
        seed=seed,
    )
    return model.learn(total_timesteps=steps)


def discounted_returns(model: QRDQN, episodes: int, seed: int) -> np.ndarray:
    """Of fresh episodes, as many from each environment, without random actions."""
    env = make_vec_env("LunarLander-v3", n_envs=PLAYED, env_kwargs={"enable_wind": True}, seed=seed)
    earned, discount = np.zeros(PLAYED), np.ones(PLAYED)
    returns: list[list[float]] = [[] for _ in range(PLAYED)]
    observations = env.reset()
    while min(map(len, returns)) * PLAYED < episodes:
        actions, _ = model.predict(observations, deterministic=True)
        observations, rewards, over, _ = env.step(actions)
        earned += discount * rewards
        discount *= GAMMA
        for i in np.flatnonzero(over):
            returns[i].append(float(earned[i]))
            earned[i], discount[i] = 0.0, 1.0
    each = min(map(len, returns))
    return np.concatenate([row[:each] for row in returns])[:episodes]


def measures(returns: np.ndarray) -> dict[str, float]:
    """The columns of the paper's table, of returns in increasing order."""
    mean, half, fifth = (
        float(returns[: round(share * len(returns))].mean()) for share in (1.0, 0.5, 0.2)
    )
    return {
        "cvar(1.0)": mean,
        "cvar(0.5)": half,
        "cvar(0.2)": fifth,
        "0.5*cvar(0.2)+0.5*cvar(1.0)": 0.5 * fifth + 0.5 * mean,
    }


def write(path: Path, rows: list[dict]) -> None:
    """The rows, under a temporary name first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)


if __name__ == "__main__":
    main()
