"""Your own simulator in NumPy: hedge a call that was sold, for the worst 20% of months.

    python examples/own_simulator.py                # five minutes
    python examples/own_simulator.py --continuous   # any position, not one of 21
    python examples/own_simulator.py --quick        # seconds, to see that it runs

`CallHedge` is all that a user writes: plain vectorised NumPy, with a row for each copy. Nothing in
it knows of agents, of JAX or of risk.
"""

import argparse
import math
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

import downside as ds

RISK = "cvar(0.2)"
QUICK: dict[str, Any] = {
    "updates": 10,
    "batch_size": 64,
    "outer_interval": 5,
    "outer_episodes": 256,
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


def main(continuous: bool = False, quick: bool = False) -> ds.Agent:
    """Trains on the simulator, and prints the hedge beside those of textbooks."""
    env = ds.Simulator(CallHedge(continuous))
    agent = ds.PGSRM(env, risk=RISK, seed=0, **(QUICK if quick else {}))
    agent.learn(progress_bar=True)

    episodes = 2_000 if quick else 100_000
    results = {
        "Black-Scholes delta": ds.Evaluation(textbook(0.0, episodes)),
        "band of 0.02 around delta": ds.Evaluation(textbook(0.02, episodes)),
        "PG-SRM": ds.evaluate(agent, episodes=episodes, seed=1),
    }
    table = Table("hedge", "mean", "worst 20%", "worst 5%", title="Profit and loss of a sold call")
    for name, result in results.items():
        values = (result.value(risk) for risk in ("mean", RISK, "cvar(0.05)"))
        table.add_row(name, *(f"{value:.3f}" for value in values))
    Console().print(table)
    return agent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--continuous", action="store_true", help="any position between 0 and 1")
    parser.add_argument("--quick", action="store_true", help="tiny settings")
    options = parser.parse_args()
    main(options.continuous, options.quick)
