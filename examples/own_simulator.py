"""Your own NumPy simulator.

    python examples/own_simulator.py                # half a minute, too short to learn much
    python examples/own_simulator.py --full         # two minutes

Hedge a call that was sold, for the worst 20% of months, with any position in the stock. `CallHedge`
is all that a user writes: plain vectorised NumPy, with a row for each copy. Nothing in it knows of
agents, of JAX or of risk.
"""

import math
import sys
from typing import Any

import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import downside as ds

RISK = "cvar(0.2)"
FULL: dict[str, Any] = {"updates": 1200}
SMALL: dict[str, Any] = {
    "updates": 40,
    "batch_size": 128,
    "outer_interval": 20,
    "outer_episodes": 512,
}


class CallHedge:
    """A bank has sold an at-the-money call for 2.752, and trades the stock for 30 days at 0.1%."""

    horizon, noise, gamma = 30, "normal", 1.0
    observation_names = ("moneyness", "position", "days left")
    action_names = ("position",)
    strike, sigma, cost, premium, day = 100.0, 0.2, 0.001, 2.752, 1 / 252

    def __init__(self, continuous: bool = False):
        """Positions between 0 and 1: any, or one of 21."""
        self.continuous = continuous
        self.actions: Any = gym.spaces.Box(0.0, 1.0, ()) if continuous else np.linspace(0, 1, 21)
        if not continuous:
            self.action_names = tuple(f"hold {position:.2f}" for position in self.actions)

    def initial_state(self, rng, count):
        """The stock at 100, and none of it held."""
        del rng
        return {
            "price": np.full(count, 100.0),
            "position": np.zeros(count),
            "time": np.zeros(count, int),
        }

    def step(self, state, action, noise):
        """Trade to a new position; then the stock moves."""
        price, time = state["price"], state["time"] + 1
        drift, spread = -0.5 * self.sigma**2 * self.day, self.sigma * math.sqrt(self.day)
        after = price * np.exp(drift + spread * noise)
        reward = action * (after - price)
        reward -= self.cost * price * np.abs(action - state["position"])
        over = time == self.horizon
        settled = self.premium - np.maximum(after - self.strike, 0.0) - self.cost * after * action
        reward += np.where(over, settled, 0.0)
        return {"price": after, "position": action, "time": time}, reward, over

    def observe(self, state):
        """Numbers of a size that a network likes."""
        moneyness = 10.0 * np.log(state["price"] / self.strike)
        return moneyness, state["position"], 1.0 - state["time"] / self.horizon


def textbook(half_width: float, episodes: int, seed: int = 1) -> np.ndarray:
    """Profit and loss of the Black-Scholes delta with a band of no trading around it."""
    hedge, rng = CallHedge(continuous=True), np.random.default_rng(seed)
    state, total = hedge.initial_state(rng, episodes), np.zeros(episodes)
    for time in range(hedge.horizon):
        years = (hedge.horizon - time) * hedge.day
        spread = hedge.sigma * math.sqrt(years)
        d1 = (np.log(state["price"] / hedge.strike) + 0.5 * spread**2) / spread
        delta = 0.5 * (1.0 + np.vectorize(math.erf)(d1 / math.sqrt(2.0)))
        action = np.clip(state["position"], delta - half_width, delta + half_width)
        state, reward, _ = hedge.step(state, action, rng.standard_normal(episodes))
        total += reward
    return total


def main(full: bool = False):
    """Trains on the simulator, prints the hedge beside those of textbooks, and draws one month."""
    env = ds.Simulator(CallHedge(continuous=True))
    agent = ds.PGSRM(env, risk=RISK, seed=0, **(FULL if full else SMALL))
    agent.learn(progress_bar=True)

    episodes = 100_000 if full else 5_000
    results = {
        "Black-Scholes delta": ds.Evaluation(textbook(0.0, episodes)),
        "band of 0.02 around delta": ds.Evaluation(textbook(0.02, episodes)),
        "PG-SRM": ds.evaluate(agent, episodes=episodes, seed=1),
    }
    table = Table("hedge", "mean", "worst 20%", "worst 5%", title="Profit and loss of a sold call")
    for name, result in results.items():
        values = (result.value(risk) for risk in ("mean", RISK, "cvar(0.05)"))
        table.add_row(name, *(f"{value:.3f}" for value in values))
    Console(width=80).print(table)

    month = agent.wrap()
    observation, _ = month.reset(seed=4)
    prices, positions, over = [], [], False
    while not over:
        prices.append(CallHedge.strike * math.exp(observation[0] / 10.0))
        action, _ = agent.predict(observation)
        observation, _, over, _, _ = month.step(action)
        positions.append(float(np.ravel(action)[0]))
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 4), layout="constrained")
    above.plot(prices)
    above.axhline(CallHedge.strike, color="grey", linestyle=":", label="strike")
    above.set(ylabel="stock")
    above.legend(frameon=False)
    below.step(range(len(positions)), positions, where="post", color="#D55E00")
    below.set(xlabel="day", ylabel="held against the call", ylim=(-0.05, 1.05))
    return figure


if __name__ == "__main__":
    main(full="--full" in sys.argv).savefig("own_simulator.png")
