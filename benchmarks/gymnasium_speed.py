"""Whole training in Gymnasium's windy lunar lander, against stable-baselines3-contrib, in one run.

    make bench-gymnasium

Both train QRDQN with the same network (3 x 128, 50 quantiles), batch (128), number of environments
(8) and updates (one for every four environment steps), after a warm-up that is not timed. Then a
policy that only plays, as in `ds.evaluate`, against the environments' bare stepping through its
episodes.
"""

import argparse
import json
import statistics
import subprocess
import time

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

import downside as ds
from downside.envs.gymnasium.rollout import VectorRollout
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter
from downside.train.backends.gymnasium.program import greedy_actions

ENV, ENVIRONMENTS = "downside/WindyLunarLander-v0", 8
SAME = {
    "batch_size": 128,
    "activation": "relu",
    "layer_norm": False,
    "num_critics": 1,
    "n_steps": 1,
    "buffer_size": 100_000,
    "min_discount": 0.0,
}
"""As in stable-baselines3-contrib."""
SEED = 0
MANY = (8, 16, 32)
"""Environments side by side when nothing is learned: a call costs the same for all of them."""
STEPS, ENDLESS = 30_000, 10**9
"""Environment steps that are timed then, and more episodes than fit into them."""


def ours(steps: int) -> float:
    """Environment steps per second of our training, from the end of the first chunk to the end of
    the last one: compiling and the warm-up come before."""
    agent = ds.QRDQN(ENV, num_envs=ENVIRONMENTS, updates_per_step=2, **SAME).learn(steps)
    first, last = agent.history[0], agent.history[-1]
    return (last["timesteps"] - first["timesteps"]) / (last["seconds"] - first["seconds"])


def theirs(python: str, steps: int, threads: int) -> float:
    """Environment steps per second of stable-baselines3-contrib's."""
    command = [python, "benchmarks/peers_gymnasium.py", "--steps", str(steps)]
    command += ["--threads", str(threads), "--environments", str(ENVIRONMENTS)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])["steps_per_second"]


def acting(agent: ds.Agent, environments: int) -> tuple[float, list[np.ndarray]]:
    """Environment steps per second of a policy that only plays, as it does in `evaluate`, and its
    actions. They are noted in passing, which costs next to nothing."""
    policy = agent.policy
    adapter = VectorEnvAdapter(ENV, environments, history_length=0)
    act = greedy_actions(policy.learner, policy.best.networks, policy.best.outer)
    rollout = VectorRollout(adapter, agent.settings.gamma, SEED)
    for _ in range(50):  # compiles
        rollout.step(act(rollout))
    taken = []
    rollout.reset(SEED)
    begin = time.perf_counter()
    for _ in range(STEPS // environments):
        taken.append(act(rollout))
        rollout.step(taken[-1])
    seconds = time.perf_counter() - begin
    adapter.close()
    return len(taken) * environments / seconds, taken


def stepping(environments: int, actions: list[np.ndarray]) -> float:
    """Environment steps per second of the environments alone, through the same episodes: how long
    a step takes depends on what happens in it."""
    mode = {"autoreset_mode": AutoresetMode.SAME_STEP}
    env = gym.make_vec(ENV, environments, vectorization_mode="sync", vector_kwargs=mode)
    env.reset(seed=SEED)
    begin = time.perf_counter()
    for chosen in actions:
        env.step(chosen)
    rate = len(actions) * environments / (time.perf_counter() - begin)
    env.close()
    return rate


def main() -> None:
    """Prints the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=".venv-bench/bin/python", help="of the peer")
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    agent = ds.QRDQN(ENV).learn(2_000)
    rates: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        rates.setdefault("ours, training", []).append(ours(options.steps))
        peer = theirs(options.python, options.steps // 2, options.threads)
        rates.setdefault("sb3-contrib, training", []).append(peer)
        for many in MANY:
            rate, actions = acting(agent, many)
            rates.setdefault(f"ours, acting only, {many}", []).append(rate)
            rates.setdefault(f"{many} environments alone", []).append(stepping(many, actions))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    print(f"Environment steps per second (median of {options.rounds} rounds)")
    for name, rate in middle.items():
        print(f"  {name:28}{rate:10,.0f}")
    training = middle["ours, training"] / middle["sb3-contrib, training"]
    print(f"  {training:.1f}x faster than sb3-contrib's training (floor 3x)")
    for many in MANY:
        share = middle[f"ours, acting only, {many}"] / middle[f"{many} environments alone"]
        print(f"  {share:.0%} of the own speed of {many} environments without learning (floor 60%)")


if __name__ == "__main__":
    main()
