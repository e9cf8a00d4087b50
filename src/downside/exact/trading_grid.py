"""Where the value of mean-reversion trading is tabulated, and the policy read off the table."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from downside.envs import MeanReversion
from downside.envs.problems.finance.prices import ornstein_uhlenbeck_deviation

_REACH = 5.2
"""Half the width of the price grid, in standard deviations of the price."""


class TradingGrid(eqx.Module):
    r"""Where the value is tabulated: price, inventory, and wealth $w = s + \gamma^{T-1} m q$.

    Wealth values the inventory q at the long-run mean price m. Trading a at price P then shifts it
    by $\gamma^t(-aP - \varphi a^2) + \gamma^{T-1} m a$, which depends on (P, a, t) alone, and the
    move of the price leaves it as it is.
    """

    env: MeanReversion = eqx.field(static=True)
    gamma: float = eqx.field(static=True)
    prices: Float[Array, " P"]
    """Prices, as differences from the expected one at that time, equally spaced around 0."""
    inventories: Float[Array, " Q"]
    """Every inventory that trades can lead to, up to the largest one kept."""
    wealth_start: Float[Array, ""]
    wealth_step: Float[Array, ""]
    wealth_count: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    """Neighbouring trades differ by so many inventories."""

    @property
    def final_discount(self) -> float:
        """The discount of the last reward."""
        return self.gamma ** (self.env.periods - 1)

    @property
    def deviation(self) -> float:
        """Standard deviation of one move of the price."""
        env = self.env
        return ornstein_uhlenbeck_deviation(kappa=env.kappa, sigma=env.sigma, dt=env.dt)

    @property
    def decay(self) -> float:
        """How much of its distance from the expected price a price keeps in one period."""
        return math.exp(-self.env.kappa * self.env.dt)

    def expected(self, time: Array | int) -> Array:
        """The expected price at a time, seen from the start."""
        env = self.env
        return env.mean + (env.initial_price - env.mean) * self.decay ** jnp.asarray(time, float)

    def shift(self, price: Array, time: Array) -> Float[Array, "*shape A"]:
        """How far each trade at this price shifts the wealth."""
        trades = jnp.asarray(self.env.trades, dtype=float)
        paid = -trades * price[..., None] - self.env.cost * trades**2
        held = self.final_discount * self.env.mean * trades
        return self.gamma ** jnp.asarray(time, float) * paid + held

    def wealth(self, state: Any, accumulated: Array) -> Array:
        """The wealth in a state of the environment."""
        return accumulated + self.final_discount * self.env.mean * state.inventory

    def reached(self, state: Any, accumulated: Array) -> Float[Array, " 3"]:
        """Inventory away from its start, wealth, and minus wealth: how far a policy goes."""
        wealth = self.wealth(state, accumulated)
        moved = jnp.abs(state.inventory - self.env.initial_inventory)
        return jnp.stack([moved, wealth, -wealth])

    def allowed(self, inventory: Array) -> Array:
        """Whether the inventory after a trade is one that the environment allows."""
        limit = self.env.inventory_limit
        if limit is None:
            return jnp.ones_like(inventory, dtype=bool)
        return jnp.abs(inventory) <= limit * (1 + 1e-5) + 1e-5


class TradingPolicy(eqx.Module):
    """The trade with the highest value after it, between grid points by lines."""

    grid: TradingGrid
    after_trade: Float[Array, "T P Q W"]
    """E[h(G)] once a trade is done, by time, price, inventory and wealth."""
    slopes: Float[Array, " 2"]
    """The steepest and the flattest slope of h: how the value goes on outside the wealths."""

    def __call__(self, state: Any, accumulated: Array, discount_so_far: Array) -> Int[Array, ""]:
        """The best trade, for the environment's state and the reward accumulated so far."""
        del discount_so_far  # it is gamma to the power of the time
        return jnp.argmax(self.scores(state, accumulated))

    def scores(self, state: Any, accumulated: Array) -> Float[Array, " A"]:
        """E[h(G)] of each trade."""
        grid, env = self.grid, self.grid.env
        time = jnp.minimum(state.time, env.periods - 1)
        count = grid.inventories.shape[0]
        unit = (grid.inventories[-1] - grid.inventories[0]) / max(count - 1, 1)
        held = jnp.round((state.inventory - grid.inventories[0]) / unit).astype(jnp.int32)
        half = (env.num_trades - 1) * grid.stride // 2
        bought = held + jnp.arange(env.num_trades) * grid.stride - half
        inside = (bought >= 0) & (bought < count)
        bought = jnp.clip(bought, 0, count - 1)
        inside = inside & grid.allowed(grid.inventories[bought])
        wealth = grid.wealth(state, accumulated) + grid.shift(state.price, time)

        rows = grid.prices.shape[0]
        price_step = (grid.prices[-1] - grid.prices[0]) / (rows - 1)
        row, across = cell_of(state.price - grid.expected(time), grid.prices[0], price_step, rows)
        last = grid.wealth_start + grid.wealth_step * (grid.wealth_count - 1)
        within = jnp.clip(wealth, grid.wealth_start, last)
        column, along = cell_of(within, grid.wealth_start, grid.wealth_step, grid.wealth_count)
        table = self.after_trade
        low = (1 - along) * table[time, row, bought, column]
        low = low + along * table[time, row, bought, column + 1]
        high = (1 - along) * table[time, row + 1, bought, column]
        high = high + along * table[time, row + 1, bought, column + 1]
        outside = jnp.where(wealth < within, self.slopes[0], self.slopes[1]) * (wealth - within)
        return jnp.where(inside, (1 - across) * low + across * high + outside, -jnp.inf)


def price_grid(env: MeanReversion, refine: float) -> Float[np.ndarray, " P"]:
    """How far from the expected price the price is likely to go, with 0 in the middle."""
    of_period, of_maturity = (
        ornstein_uhlenbeck_deviation(kappa=env.kappa, sigma=env.sigma, dt=time)
        for time in (env.dt, env.maturity)
    )
    spacing = of_period / (3.0 * refine)
    steps = math.ceil(_REACH * of_maturity / spacing)
    return spacing * np.arange(-steps, steps + 1)


def cell_of(point: Array, first: Array, spacing: Array, count: int) -> tuple[Array, Array]:
    """The cell of a uniform grid and the place in it; outside, the line of the last cell."""
    place = (point - first) / spacing
    cell = jnp.clip(jnp.floor(place), 0, count - 2)
    return cell.astype(jnp.int32), place - cell
