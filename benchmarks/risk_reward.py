# pyright: reportMissingImports=false
"""stable-baselines3's PPO on a hedging problem, with `ds.RiskReward` and without.

    pip install stable-baselines3
    python benchmarks/risk_reward.py --seeds 3 --steps 1000000

The problem is `CallHedge` of examples/own_simulator.py with continuous positions. Both runs have
the same settings, steps and seeds; they differ in the wrapper and its callback alone. `gamma` is 1
in both. Without the wrapper PPO does not see what it has earned so far, as users have it. Policies
are then played in 50,000 fresh episodes, the same for both.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import scipy.stats
import torch
from stable_baselines3 import PPO

import downside as ds

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from own_simulator import CallHedge, textbook
from sb3_vector import Vectorised

RISK = "cvar(0.2)"


def make(wrapped: bool, copies: int) -> Any:
    """Copies of the problem."""
    env = ds.Simulator(CallHedge(continuous=True)).vector_env(copies, autoreset_mode="SameStep")
    env = gym.wrappers.vector.RescaleAction(env, -1.0, 1.0)  # as stable-baselines3 advises
    return ds.RiskReward(env, RISK) if wrapped else env


def train(wrapped: bool, seed: int, steps: int) -> tuple[PPO, Any]:
    """A model, and where h bends in the end."""
    env = make(wrapped, 64)
    model = PPO(
        "MlpPolicy",
        Vectorised(env),
        gamma=1.0,
        n_steps=128,
        batch_size=1024,
        n_epochs=6,
        learning_rate=lambda left: 1e-3 * left + 1e-5,
        policy_kwargs={"log_std_init": -1.5},
        seed=seed,
        device="cpu",
    )
    model.learn(steps, callback=ds.RiskRewardCallback() if wrapped else None)
    return model, env.utility_bends if wrapped else None


def returns(model: PPO, bends: Any, episodes: int, seed: int) -> np.ndarray:
    """Of fresh episodes, played side by side."""
    env = make(bends is not None, episodes)
    if bends is not None:
        trained = model.get_env().get_attr("rewards")[0].utility
        env.move(trained.bends, trained.unit, trained.worth)
    observations, _ = env.reset(seed=seed)
    total, terminated, infos = np.zeros(episodes), np.zeros(episodes, bool), {}
    for _ in range(CallHedge.horizon):
        actions, _ = model.predict(observations, deterministic=True)
        observations, rewards, terminated, _, infos = env.step(actions)
        total += rewards
    if bends is not None:
        total = infos["original"]["r"]
    assert terminated.all()
    return total


def main() -> None:
    """Trains, plays, prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--episodes", type=int, default=50_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    say = lambda text: sys.stdout.write(f"{text}\n") and sys.stdout.flush()  # noqa: E731
    for width in (0.0, 0.02):
        value = ds.Evaluation(textbook(width, options.episodes)).value(RISK)
        say(f"delta with a band of {width}: {RISK} {value:.3f}")
    differences = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        values = []
        for wrapped in (True, False):
            begin = time.perf_counter()
            model, bends = train(wrapped, seed, options.steps)
            seconds = time.perf_counter() - begin
            played = ds.Evaluation(returns(model, bends, options.episodes, 1_000 + seed))
            values.append(played.value(RISK))
            name = "PPO with RiskReward" if wrapped else "PPO"
            shown = ", ".join(f"{r} {played.value(r):.3f}" for r in ("mean", RISK, "cvar(0.05)"))
            say(f"{name}, seed {seed}: {shown} ({seconds:.0f} s)")
        differences.append(values[0] - values[1])
    say(f"differences by {RISK}: {[round(d, 3) for d in differences]}")
    if len(differences) > 1:
        mean = float(np.mean(differences))
        error = float(np.std(differences, ddof=1)) / len(differences) ** 0.5
        width = error * float(scipy.stats.t.ppf(0.975, len(differences) - 1))
        say(f"mean {mean:.3f}, 95% interval [{mean - width:.3f}, {mean + width:.3f}]")


if __name__ == "__main__":
    main()
