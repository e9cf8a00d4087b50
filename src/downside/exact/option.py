"""The American option, solved on a grid of prices."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from downside.envs import AmericanPut
from downside.envs.problems.finance.prices import ornstein_uhlenbeck_deviation
from downside.exact.problem import AbstractProblem, Solution
from downside.exact.simulate import simulate
from downside.risk import Distribution, Utility

_REACH = 6.5
"""Half the width of the grid, in standard deviations of the price at that time."""


_MOST_MEMORY = 2 * 2**30
"""Bytes that the transition probabilities may take; long horizons get coarser grids."""


class OptionPolicy(eqx.Module):
    """Exercise where it is worth at least as much as holding, between grid points by a line."""

    env: AmericanPut
    advantage: Float[Array, "periods nodes"]
    """E[h] of exercising minus E[h] of holding, at each time and grid point."""
    centres: Float[Array, " periods"]
    deviations: Float[Array, " periods"]

    def __call__(self, state, accumulated, discount_so_far) -> Int[Array, ""]:
        """Exercise (1) or hold (0); the two augmented inputs are not needed here."""
        del accumulated, discount_so_far
        coordinate = jnp.log(state.price) if self.env.process == "gbm" else state.price
        time = jnp.minimum(state.time, self.env.periods - 1)
        place = (coordinate - self.centres[time]) / self.deviations[time]
        nodes = self.advantage.shape[1]
        position = jnp.clip((place + _REACH) / (2 * _REACH) * (nodes - 1), 0, nodes - 1)
        left = jnp.minimum(position.astype(jnp.int32), nodes - 2)
        share = position - left
        row = self.advantage[time]
        gain = (1 - share) * row[left] + share * row[left + 1]
        return ((gain >= 0) & (self.env.payoff(state.price) > 0)).astype(jnp.int32)


class OptionProblem(AbstractProblem):
    r"""When to exercise, for a fixed utility h.

    Nothing is earned before the exercise, so the state is price and time alone:
    $V_t(P) = \max\{h(\gamma^t\, \mathrm{payoff}(P)),\ \mathbb{E}[V_{t+1}(P') \mid P]\}$, and at
    maturity $V_T(P) = h(\gamma^{T-1}\, \mathrm{payoff}(P))$, because the last decision pays it.

    Each time has its own grid of `nodes` prices over 6.5 standard deviations to both sides (log
    prices for "gbm"). The expectation is the sum over the next grid weighted by the normal
    density: for equally spaced points much closer than one step's deviation that is the trapezoidal
    rule of a smooth integrand, exact to rounding but for the kinks of V.
    """

    def __init__(self, env: AmericanPut, *, gamma: float, nodes: int = 801):
        if env.sigma <= 0:
            raise ValueError(
                f"`sigma` must be above 0 for the planner, got {env.sigma}. Without noise the best "
                "time to exercise is the one with the largest discounted payoff."
            )
        self.env, self.gamma = env, gamma
        steps, dt = np.arange(env.periods + 1), env.dt
        if env.process == "gbm":
            decay, step_deviation = 1.0, env.sigma * math.sqrt(dt)
            pull = (env.drift - 0.5 * env.sigma**2) * dt
            start = math.log(env.initial_price)
            centres = start + pull * steps
            deviations = step_deviation * np.sqrt(steps)
        else:
            decay = math.exp(-env.kappa * dt)
            pull = env.mean * (1 - decay)
            step_deviation = ornstein_uhlenbeck_deviation(kappa=env.kappa, sigma=env.sigma, dt=dt)
            centres = env.mean + (env.initial_price - env.mean) * decay**steps
            deviations = np.array(
                [
                    ornstein_uhlenbeck_deviation(kappa=env.kappa, sigma=env.sigma, dt=step * dt)
                    for step in steps
                ]
            )
        nodes = min(nodes, 2 * int(math.sqrt(_MOST_MEMORY / (8 * env.periods)) / 2) - 1)
        unit = np.linspace(-_REACH, _REACH, nodes)
        deviations[0] = step_deviation  # a point, but the boundary around it is of interest
        self._centres, self._deviations = centres, deviations
        coordinates = centres[:, None] + deviations[:, None] * unit
        prices = np.exp(coordinates) if env.process == "gbm" else coordinates
        sign = 1.0 if env.kind == "put" else -1.0
        self.prices = prices
        """Prices of the grid, by time and node."""
        payoff = np.maximum(sign * (env.strike - prices), 0.0)
        discount = gamma ** np.minimum(steps, env.periods - 1)
        self._payoff = payoff
        self._worth = discount[:, None] * payoff
        self._kernels = [
            _kernel(pull + decay * coordinates[t], coordinates[t + 1], step_deviation)
            for t in range(env.periods)
        ]

    def solve(self, utility: Utility) -> Solution:
        """Backward recursion over the grid."""
        worth = np.asarray(utility(self._worth))
        value = worth[-1]
        slack = 1e-10 * (1.0 + float(np.abs(worth).max()))
        advantage = np.empty((self.env.periods, worth.shape[1]))
        for t in range(self.env.periods - 1, -1, -1):
            hold = self._kernels[t] @ value
            # Where h is flat both are worth the same: then the money in hand is taken.
            advantage[t] = worth[t] - hold + slack
            value = np.where(self._exercised(advantage[t], t), worth[t], hold)
        middle = worth.shape[1] // 2
        policy = OptionPolicy(
            self.env,
            jnp.asarray(advantage, dtype=float),
            jnp.asarray(self._centres[:-1], dtype=float),
            jnp.asarray(self._deviations[:-1], dtype=float),
        )
        return Solution(float(value[middle]), policy)

    def _exercised(self, advantage: np.ndarray, time: int) -> np.ndarray:
        return (advantage >= 0) & (self._payoff[time] > 0)

    def returns(self, policy: OptionPolicy) -> Distribution:
        """The distribution of the discounted payoff: probabilities pushed forward over the grid."""
        nodes = self.prices.shape[1]
        alive = np.zeros(nodes)
        alive[nodes // 2] = 1.0
        values, masses = [], []
        for t in range(self.env.periods):
            now = self._exercised(np.asarray(policy.advantage[t], dtype=float), t)
            values.append(self._worth[t][now])
            masses.append(alive[now])
            alive = np.where(now, 0.0, alive) @ self._kernels[t]
        values, masses = (
            np.concatenate([*values, self._worth[-1]]),
            np.concatenate([*masses, alive]),
        )
        kept = masses > 1e-14
        return Distribution(values[kept], masses[kept] / masses[kept].sum()).merged()

    def simulate(self, policy: OptionPolicy, episodes: int, seed: int) -> np.ndarray:
        """Discounted payoffs under fresh noise."""
        key = jax.random.key(seed)
        returns, _ = simulate(self.env, policy, gamma=self.gamma, episodes=episodes, key=key)
        return returns

    @property
    def return_range(self) -> tuple[float, float]:
        """From nothing to the largest discounted payoff that is at all likely."""
        likely = np.abs(np.linspace(-_REACH, _REACH, self.prices.shape[1])) <= 4.0
        return 0.0, float(self._worth[:, likely].max())

    def boundary(self, policy: OptionPolicy) -> Float[np.ndarray, " periods"]:
        """The price at which exercise begins, at each time; NaN where it is never worth it.

        A put is exercised at this price and below, a call at this price and above.
        """
        edge = np.full(self.env.periods, np.nan)
        for t in range(self.env.periods):
            advantage = np.asarray(policy.advantage[t], dtype=float)
            (inside,) = np.nonzero(self._exercised(advantage, t))
            if not inside.size:
                continue
            last, step = (inside[-1], 1) if self.env.kind == "put" else (inside[0], -1)
            beyond = min(max(last + step, 0), len(advantage) - 1)
            fall = advantage[last] - advantage[beyond]
            share = advantage[last] / fall if fall > 0 else 0.0  # where the line crosses 0
            edge[t] = self.prices[t][last] + min(share, 1.0) * (
                self.prices[t][beyond] - self.prices[t][last]
            )
        return edge


def _kernel(means: np.ndarray, targets: np.ndarray, deviation: float) -> np.ndarray:
    """Probabilities of moving to each of the equally spaced `targets`; rows sum to 1."""
    weights = np.exp(-0.5 * ((targets - means[:, None]) / deviation) ** 2)
    totals = weights.sum(axis=1, keepdims=True)
    # From a node far out the next grid may be out of reach: go to its nearest end.
    lost = totals[:, 0] < 1e-200
    weights[lost] = 0.0
    weights[lost, np.abs(targets - means[lost, None]).argmin(axis=1)] = 1.0
    return weights / np.where(lost[:, None], 1.0, totals)
