"""Learning from pictures beside stable-baselines3: the same convolutions, batch and replay ratio.

    python benchmarks/images.py             # needs stable-baselines3, ale-py, minigrid, opencv

Both have four environments side by side, one update of 32 transitions for every four environment
steps, and the network of Mnih et al. (2015); QR-DQN with one quantile has as many outputs as DQN.
The time is that of one core (XLA_FLAGS=--xla_cpu_multi_thread_eigen=false OMP_NUM_THREADS=1), when
all is compiled. The libraries take turns (`--rounds`), so that both meet the same machine.
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

import downside as ds

ENVS, BATCH, WARMUP, BUFFER = 4, 32, 400, 4_000


def pong() -> gym.Env:
    """Pong: four grey pictures of 84 x 84; episodes are cut early, so that the warm-up is short."""
    gym.register_envs(importlib.import_module("ale_py"))
    env = gym.make("ALE/Pong-v5", frameskip=1, max_num_frames_per_episode=800)
    return gym.wrappers.FrameStackObservation(gym.wrappers.AtariPreprocessing(env), 4)


def minigrid() -> gym.Env:
    """MiniGrid: the view ahead as a picture of 56 x 56 in colour."""
    wrappers = importlib.import_module("minigrid.wrappers")
    env = gym.make("MiniGrid-Empty-8x8-v0")
    return wrappers.ImgObsWrapper(wrappers.RGBImgPartialObsWrapper(env))


PROBLEMS: dict[str, Callable[[], gym.Env]] = {"Pong": pong, "MiniGrid": minigrid}


def ours(make: Callable[[], gym.Env], steps: int) -> float:
    """Environment steps a second of QR-DQN with one quantile."""
    mode = gym.vector.AutoresetMode.SAME_STEP
    env = gym.vector.SyncVectorEnv([make] * ENVS, autoreset_mode=mode)
    agent = ds.QRDQN(
        "CnnPolicy",
        env,
        quantiles=1,
        batch_size=BATCH,
        warmup_steps=WARMUP,
        buffer_size=BUFFER,
        updates_per_step=1,
        update_interval=1,
        outer_interval=50,
        n_steps=1,
        exploration_fraction=0.1,
        exploration_final=0.05,
    )
    marks: list[tuple[float, int]] = []
    agent.learn(steps, lambda agent: marks.append((time.process_time(), agent.num_timesteps)))
    (begin, first), (end, last) = marks[1], marks[-1]
    return (last - first) / (end - begin)


def theirs(make: Callable[[], gym.Env], steps: int) -> float:
    """Environment steps a second of stable-baselines3's DQN."""
    sb3 = importlib.import_module("stable_baselines3")
    vectors = importlib.import_module("stable_baselines3.common.vec_env")
    callbacks = importlib.import_module("stable_baselines3.common.callbacks")
    env = vectors.DummyVecEnv([make] * ENVS)
    model = sb3.DQN(
        "CnnPolicy",
        env,
        batch_size=BATCH,
        learning_starts=WARMUP,
        buffer_size=BUFFER,
        train_freq=1,
        gradient_steps=1,
        exploration_fraction=0.1,
        exploration_final_eps=0.05,
        device="cpu",
    )
    marks: list[tuple[float, int]] = []

    class Clock(callbacks.BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps >= WARMUP + 400:  # as many as ours compiles in
                marks.append((time.process_time(), self.num_timesteps))
            return True

    model.learn(WARMUP + steps, callback=Clock())
    (begin, first), (end, last) = marks[0], marks[-1]
    return (last - first) / (end - begin)


def main() -> None:
    """Each problem, with one library after the other."""
    parser = argparse.ArgumentParser(description="Learning from pictures.")
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(PROBLEMS)}")
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    for name in options.names or PROBLEMS:
        make = PROBLEMS[name]
        for _ in range(options.rounds):
            result: dict[str, Any] = {"environment": name, "steps": options.steps}
            result["downside"] = round(ours(make, options.steps))
            result["stable-baselines3"] = round(theirs(make, options.steps))
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
