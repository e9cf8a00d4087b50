"""A simulator in NumPy, like `tiny.ENV`: trades -2, -1, 0, 1, 2 in three periods."""

import numpy as np


class Market:
    """A market with a price that returns to 1, where two large trades in a row are not allowed."""

    horizon, gamma = 3, 0.99
    actions = np.linspace(-2.0, 2.0, 5)
    observation_names = ("price", "held", "time")
    action_names = ("sell 2", "sell 1", "wait", "buy 1", "buy 2")

    def __init__(self, sigma=0.3, closed_at=None):
        self.sigma, self.closed_at = sigma, closed_at
        self.open_calls = 0

    def initial_state(self, rng, count):
        return {
            "price": rng.normal(1.0, 0.1, count),
            "held": np.zeros(count),
            "time": np.zeros(count, int),
        }

    def sample_noise(self, rng, count):
        return rng.standard_normal(count)

    def mirrored(self, noise):
        return -noise

    def step(self, state, action, noise):
        self.open_calls += 1  # for tests alone: nothing depends on it while the market is open
        if self.closed_at is not None and self.open_calls > self.closed_at:
            raise RuntimeError("the market is closed")
        price = 1.0 + 0.8 * (state["price"] - 1.0) + self.sigma * noise
        held, time = state["held"] + action, state["time"] + 1
        over = time == self.horizon
        reward = -action * state["price"] - 0.005 * action**2
        reward = reward + over * (held * price - 0.5 * held**2)
        return {"price": price, "held": held, "time": time}, reward, over

    def observe(self, state):
        return state["price"], state["held"], state["time"] / self.horizon

    def action_mask(self, state):
        return np.abs(state["held"][:, None] + self.actions) <= 2.001
