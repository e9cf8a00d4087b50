"""A Gymnasium environment from the registry.

    python examples/registry_environment.py            # half a minute, too short to learn much
    python examples/registry_environment.py --full     # two minutes

Walk along a cliff on slippery ground. The shortest way runs along the edge; a step aside costs time
and is safe. AC-SRM takes any environment of Gymnasium's registry by its id.
"""

import sys

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import downside as ds


def main(full: bool = False):
    """Trains for the mean and for the worst tenth, compares, and draws both returns."""
    env = gym.make_vec(
        "CliffWalking-v1",
        num_envs=32,
        vectorization_mode="sync",
        is_slippery=True,
        max_episode_steps=100,
    )
    table = Table("trained for", "mean", "worst 10%")
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for risk in ("mean", "cvar(0.1)"):
        agent = ds.ACSRM(env, risk=risk, seed=0)
        agent.learn(80_000 if full else 20_000, progress_bar=True)
        result = ds.evaluate(agent, episodes=1_000 if full else 100)
        table.add_row(risk, f"{result.mean:.1f}", f"{result.value('cvar(0.1)'):.1f}")
        axis.plot(np.sort(result.returns), np.linspace(0, 1, len(result.returns)), label=risk)
    Console(width=80).print(table)
    axis.set(xlabel="discounted return", ylabel="share of episodes below")
    axis.legend(frameon=False, title="trained for")
    return figure


if __name__ == "__main__":
    main(full="--full" in sys.argv).savefig("registry_environment.png")
