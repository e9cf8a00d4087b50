"""Environments of other people: what runs, how fast, and what is learned in a minute or two.

    python benchmarks/third_party.py FrozenLake Taxi       # some, or all without a name

Prints a line of JSON for each: steps, seconds of one core (compiling included), steps a second, and
the mean and the CVaR of the worst 20% of the discounted return, of random play and of what was
learned. What is not installed is
left out: `pip install highway-env minigrid gym-anytrading mo-gymnasium ale-py gymnasium[mujoco]`.
`docs/evidence/third-party.md` has the results.
"""

import argparse
import dataclasses
import importlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

import downside as ds
from downside.envs.gymnasium.rollout import VectorRollout, in_turns
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter

RISK = ds.parse("0.5*mean + 0.5*cvar(0.2)")
TAIL = ds.parse("cvar(0.2)")


@dataclasses.dataclass(frozen=True)
class Problem:
    """An environment, and how it is trained in."""

    make: Callable[[], gym.Env]
    steps: int
    agent: str = "QRSRM"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    num_envs: int = 8
    episodes: int = 100
    """Of the evaluation."""


def made(name: str, **parameters: Any) -> Callable[[], gym.Env]:
    """How to make an environment from its id."""
    return lambda: gym.make(name, **parameters)


def grid(name: str) -> gym.Env:
    """A MiniGrid environment without the text of its mission, as a picture of 7 x 7 cells."""
    wrappers = importlib.import_module("minigrid.wrappers")
    return wrappers.ImgObsWrapper(gym.make(name))


def treasure() -> gym.Env:
    """The deep sea treasure, with one reward: the treasure less a tenth of the time."""
    mo_gymnasium = importlib.import_module("mo_gymnasium")
    return mo_gymnasium.wrappers.LinearReward(
        mo_gymnasium.make("deep-sea-treasure-v0", max_episode_steps=100),
        weight=np.array([0.9, 0.1]),
    )


def atari(name: str) -> gym.Env:
    """Grey pictures of 84 x 84, four of them stacked, every fourth frame."""
    gym.register_envs(importlib.import_module("ale_py"))
    env = gym.make(name, frameskip=1)
    env = gym.wrappers.AtariPreprocessing(env)
    return gym.wrappers.FrameStackObservation(env, 4)


PROBLEMS: dict[str, Problem] = {
    "FrozenLake": Problem(made("FrozenLake-v1"), 60_000),
    "CliffWalking": Problem(made("CliffWalking-v1", max_episode_steps=200), 60_000),
    "Taxi": Problem(made("Taxi-v4"), 60_000),
    "Blackjack": Problem(made("Blackjack-v1"), 60_000, episodes=200),
    "MountainCar": Problem(made("MountainCar-v0"), 20_000),
    "Acrobot": Problem(made("Acrobot-v1"), 60_000),
    "Pendulum": Problem(made("Pendulum-v1"), 200_000, "ACSRM"),
    "HalfCheetah": Problem(made("HalfCheetah-v5"), 200_000, "ACSRM", episodes=20),
    "LunarLanderContinuous": Problem(made("LunarLander-v3", continuous=True), 300_000, "ACSRM"),
    "highway-env": Problem(made("highway_env:highway-fast-v0"), 5_000, episodes=20, num_envs=2),
    "MiniGrid": Problem(
        lambda: grid("MiniGrid-Empty-5x5-v0"), 10_000, settings={"cnn": True, "hidden_sizes": (64,)}
    ),
    "gym-anytrading": Problem(
        made("gym_anytrading:stocks-v0", window_size=10, frame_bound=(10, 300)), 20_000, episodes=10
    ),
    "mo-gymnasium": Problem(treasure, 20_000),
    "Atari Pong": Problem(
        lambda: atari("ALE/Pong-v5"),
        4_000,
        settings={"cnn": True, "buffer_size": 10_000, "warmup_steps": 1_000, "outer_interval": 100},
        num_envs=2,
        episodes=2,
    ),
}


def vector(problem: Problem, count: int) -> gym.vector.VectorEnv:
    """Several copies."""
    mode = gym.vector.AutoresetMode.SAME_STEP
    return gym.vector.SyncVectorEnv([problem.make] * count, autoreset_mode=mode)


def random_returns(problem: Problem, gamma: float) -> np.ndarray:
    """The discounted returns of random play."""
    env = vector(problem, min(8, problem.episodes))
    env.action_space.seed(0)
    adapter = VectorEnvAdapter(env, env.num_envs)
    first = adapter.first_action
    rows = VectorRollout(adapter, gamma, 1).play(
        lambda _: env.action_space.sample() - first, problem.episodes
    )
    return np.array([row[0] for row in in_turns(rows)])


def run(name: str, seed: int, limit: float) -> dict[str, Any]:
    """Trains for so many seconds at most, and evaluates."""
    problem = PROBLEMS[name]
    env = vector(problem, problem.num_envs)
    agent = getattr(ds, problem.agent)(env, risk=RISK, seed=seed, **problem.settings)
    begin = time.process_time()  # of this process alone, on however busy a machine
    agent.learn(problem.steps, lambda _: time.process_time() - begin < limit)
    seconds = time.process_time() - begin
    returns = agent.simulate_returns(problem.episodes, 1)
    chance = random_returns(problem, agent.settings.gamma)
    return {
        "environment": name,
        "agent": agent.name,
        "seed": seed,
        "steps": agent.num_timesteps,
        "seconds": round(seconds, 1),
        "steps per second": round(agent.num_timesteps / seconds),
        "episodes": problem.episodes,
        "random mean": round(float(chance.mean()), 3),
        "random cvar(0.2)": round(float(TAIL(chance)), 3),
        "mean": round(float(returns.mean()), 3),
        "cvar(0.2)": round(float(TAIL(returns)), 3),
    }


def main() -> None:
    """The environments that were named, one after the other."""
    parser = argparse.ArgumentParser(description="Environments of other people.")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(PROBLEMS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=90.0, help="of one core, of training, at most"
    )
    options = parser.parse_args()
    for name in options.names or PROBLEMS:
        try:
            print(json.dumps(run(name, options.seed, options.seconds)), flush=True)
        except (ImportError, gym.error.Error) as error:
            print(json.dumps({"environment": name, "left out": f"{error}"}), flush=True)


if __name__ == "__main__":
    main()
