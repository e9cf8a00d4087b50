# pyright: reportMissingImports=false
"""stable-baselines3's PPO with `RiskReward`.

    pip install stable-baselines3
    python examples/sb3_risk_reward.py            # seconds, too short to learn much
    python examples/sb3_risk_reward.py --full     # two minutes

Keep your algorithm, and add one wrapper: it pays the increments of the utility h instead of the
rewards, and a callback moves h to the returns of late. PPO then maximises the mean of the worst
fifth instead of the mean. The problem is a stall on a market: order crates each evening, sell some
of them the next day.
"""

import sys

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import downside as ds

RISK = "cvar(0.2)"


class Stall(gym.Env):
    """Five days at the market. Crates that are left over can be sold later, and cost a little."""

    observation_space = gym.spaces.Box(0.0, 20.0, (2,), np.float32)  # the day, and crates in stock
    action_space = gym.spaces.Discrete(4)  # crates to order

    def reset(self, *, seed=None, options=None):
        """An empty stall."""
        super().reset(seed=seed, options=options)
        self.day, self.stock = 0, 0
        return self.observe(), {}

    def step(self, action):
        """A day: none to three crates are wanted."""
        wanted = int(self.np_random.integers(0, 4))
        sold = min(self.stock + int(action), wanted)
        self.stock += int(action) - sold
        self.day += 1
        reward = 1.0 * sold - 0.6 * int(action) - 0.05 * self.stock
        return self.observe(), reward, self.day == 5, False, {}

    def observe(self):
        """The day, and crates in stock."""
        return np.array([self.day, self.stock], np.float32)


def train(risk: str, steps: int):
    """PPO for a measure; `mean` is PPO as it is."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(
        Stall,
        n_envs=16,
        wrapper_class=ds.RiskReward,
        wrapper_kwargs={"risk": risk, "gamma": 1.0},
    )
    model = PPO("MlpPolicy", env, gamma=1.0, n_steps=128, batch_size=512, seed=0, device="cpu")
    return model.learn(steps, callback=ds.RiskRewardCallback()), env


def play(model, env, episodes: int) -> np.ndarray:
    """Discounted returns of fresh episodes."""
    returns: list[float] = []
    observations = env.reset()
    while len(returns) < episodes:
        actions, _ = model.predict(observations, deterministic=True)
        observations, _, _, infos = env.step(actions)
        returns += [info["original"]["g"] for info in infos if "original" in info]
    return np.array(returns[:episodes])


def main(full: bool = False):
    """Trains twice, prints the values of both, and draws their returns."""
    try:
        import stable_baselines3  # noqa: F401
    except ImportError:
        print("This example needs stable-baselines3: pip install stable-baselines3")
        return None
    table = Table("PPO for", "mean", RISK)
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for risk in ("mean", RISK):
        model, env = train(risk, 200_000 if full else 4_096)
        result = ds.Evaluation(play(model, env, 10_000 if full else 200))
        table.add_row(risk, f"{result.mean:.3f}", f"{result.value(RISK):.3f}")
        axis.hist(result.returns, np.linspace(-3, 6, 60).tolist(), alpha=0.6, label=risk)
    Console(width=80).print(table)
    axis.set(xlabel="discounted return", ylabel="episodes")
    axis.legend(frameon=False, title="PPO for")
    return figure


if __name__ == "__main__":
    drawn = main(full="--full" in sys.argv)
    if drawn is not None:
        drawn.savefig("sb3_risk_reward.png")
