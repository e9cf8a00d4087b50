# pyright: reportMissingImports=false
"""Environment steps per second of stable-baselines3-contrib's QRDQN in the windy lunar lander.

It lives in an environment of its own with PyTorch; Downside is not imported here.
"""

import argparse
import json
import time

import torch
from sb3_contrib import QRDQN
from stable_baselines3.common.env_util import make_vec_env


def main() -> None:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--environments", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    env = make_vec_env(
        "LunarLander-v3", n_envs=options.environments, env_kwargs={"enable_wind": True}, seed=0
    )
    model = QRDQN(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        batch_size=128,
        buffer_size=100_000,
        learning_starts=1_000,
        train_freq=1,  # one step of 8 environments, then two updates
        gradient_steps=options.environments // 4,
        policy_kwargs={"net_arch": [128, 128, 128], "n_quantiles": 50},
        device="cpu",
        seed=0,
    )
    model.learn(total_timesteps=2_000)
    begin = time.perf_counter()
    model.learn(total_timesteps=options.steps, reset_num_timesteps=False)
    rate = options.steps / (time.perf_counter() - begin)
    print(json.dumps({"steps_per_second": rate}))


if __name__ == "__main__":
    main()
