"""Mean-reversion trading, solved on a grid of price, inventory and wealth."""

import copy
import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from downside.envs import MeanReversion
from downside.envs.prices import ornstein_uhlenbeck_deviation
from downside.exact.problem import AbstractProblem, Solution
from downside.exact.simulate import simulate
from downside.risk import Distribution, Mean, Utility

_REACH = 5.2
"""Half the width of the price grid, in standard deviations of the price."""
_TERMINAL_CELLS = 8192
_MOST_MEMORY = 2.2 * 2**30
"""Bytes that one policy may take."""
_FEWEST_WEALTHS = 120
_FORBIDDEN = -1e30
"""The value of what is not allowed: finite, so that lines between two of them are, too."""


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
        row, across = _cell(state.price - grid.expected(time), grid.prices[0], price_step, rows)
        last = grid.wealth_start + grid.wealth_step * (grid.wealth_count - 1)
        within = jnp.clip(wealth, grid.wealth_start, last)
        column, along = _cell(within, grid.wealth_start, grid.wealth_step, grid.wealth_count)
        table = self.after_trade
        low = (1 - along) * table[time, row, bought, column]
        low = low + along * table[time, row, bought, column + 1]
        high = (1 - along) * table[time, row + 1, bought, column]
        high = high + along * table[time, row + 1, bought, column + 1]
        outside = jnp.where(wealth < within, self.slopes[0], self.slopes[1]) * (wealth - within)
        return jnp.where(inside, (1 - across) * low + across * high + outside, -jnp.inf)


class TradingProblem(AbstractProblem):
    r"""What to trade, for a fixed utility h.

    With $U_t(P, q, w) = \mathbb{E}[V_{t+1}(P', q, w) \mid P]$ the value after a trade,
    $V_t(P, q, w) = \max_a U_t(P, q + a, w + \mathrm{shift}_t(P, a))$. The expectation is one matrix
    product along the price axis, the trapezoidal rule with three points to a deviation of the
    noise. The shift is a cubic interpolation along the wealth axis. Below its first point the value
    falls with the steepest slope of h and above the last it rises with the flattest: all slopes of
    the value lie between the two, so that nothing outside the grid is ever valued too highly.
    Before the last move the return is normal given (P, q, w), so the expectation of the
    piecewise-linear h has a closed form.

    Arguments:
        env: the problem, with noise.
        gamma: the discount factor.
        refine: how fine the grids of price and wealth are, relative to the default.
        episodes: how many episodes `returns` simulates.
        seed: of their noise.

    A policy takes 4 bytes for each of periods x prices x inventories x wealths values (`memory`),
    about 300 MB for the paper's problem.
    """

    def __init__(
        self,
        env: MeanReversion,
        *,
        gamma: float,
        refine: float = 1.0,
        episodes: int = 50_000,
        seed: int = 0,
    ):
        if env.sigma <= 0:
            raise ValueError(
                f"`sigma` must be above 0 for the planner, got {env.sigma}. Without noise there is "
                "no risk to plan for."
            )
        self.env, self.gamma = env, gamma
        self.episodes, self.key = episodes, jax.random.fold_in(jax.random.key(seed), 1)
        self._unit = 2 * env.max_trade / (env.num_trades - 1) / (1 if env.num_trades % 2 else 2)
        least = math.ceil((1.5 * abs(env.initial_inventory) + 2 * env.max_trade) / self._unit)
        self._reach = min(least, self._furthest_inventory())
        self._set_resolution(refine)  # what can never fit is refused here, before any work

        # While h is a line, two wealths tell everything: the best policy for the mean comes cheap.
        # It has the least reason to hold back, so what it reaches bounds the grids for the others;
        # `widened` is there for those who go further.
        self._reach = self._furthest_inventory()
        per_unit = 2 * 4 * 2 * env.periods * len(self._prices)
        self._reach = min(self._reach, int(0.25 * _MOST_MEMORY / per_unit))
        pilot = self._grid(-1.0, 1.0, 2)
        neutral = self._solve_on(pilot, Mean().utility(jnp.zeros(1)))
        returns, furthest = simulate(
            env,
            neutral.policy,
            gamma=gamma,
            episodes=episodes,
            key=self.key,
            track=pilot.reached,
        )
        # Others may want to get rid of what they start with, which it has no reason to.
        inventory = max(
            float(np.quantile(furthest[:, 0], 0.9999)), 1.5 * abs(env.initial_inventory)
        )
        self._reach = min(self._reach, math.ceil((inventory + 2 * env.max_trade) / self._unit))
        # If doing nothing is best the returns have no spread, but the grid needs some.
        one_trade = env.max_trade * pilot.deviation
        self._spread = max(float(returns.std()), 0.1 * one_trade)
        self._range = float(np.quantile(returns, 0.001)), float(np.quantile(returns, 0.999))
        richest, poorest = np.quantile(furthest[:, 1:], 0.999, axis=0)
        self._wealth_range = (
            min(self._range[0], -float(poorest)) - self._spread,
            max(self._range[1], float(richest)) + self._spread,
        )
        self._set_resolution(refine)

    def _set_resolution(self, refine: float) -> None:
        self._refine = refine
        self._prices = _price_grid(self.env, refine)
        wanted = round(1000 * refine)
        others = 4 * self.env.periods * len(self._prices) * (2 * self._reach + 1)
        self._wealths = min(wanted, int(_MOST_MEMORY / others))
        if self._wealths < min(wanted, _FEWEST_WEALTHS):
            raise ValueError(
                f"`env` is too large for the planner: {self.env.periods} periods, "
                f"{len(self._prices)} prices and {2 * self._reach + 1} inventories leave room for "
                f"{self._wealths} wealths in {_MOST_MEMORY / 2**30:g} GiB, at least "
                f"{_FEWEST_WEALTHS} are needed. Use fewer periods or trades, an `inventory_limit`, "
                "or a smaller `refine`."
            )

    def coarse(self) -> "TradingProblem":
        """The same problem at half the resolution, but not below half the default."""
        twin = copy.copy(self)
        twin._set_resolution(max(0.5 * self._refine, min(self._refine, 0.5)))
        return twin

    def covers(self, policy: TradingPolicy) -> bool:
        """Whether hardly any episode comes close to the end of the inventories."""
        if self._reach >= self._furthest_inventory():
            return True
        _, furthest = simulate(
            self.env,
            policy,
            gamma=self.gamma,
            episodes=self.episodes,
            key=self.key,
            track=policy.grid.reached,
        )
        edge = self._reach * self._unit - 0.5 * self.env.max_trade
        return bool(np.mean(furthest[:, 0] > edge) < 1e-3)

    def widened(self) -> "TradingProblem":
        """The same problem with inventories half as far again."""
        twin = copy.copy(self)
        twin._reach = min(math.ceil(1.5 * self._reach), self._furthest_inventory())
        twin._set_resolution(self._refine)
        return twin

    def _furthest_inventory(self) -> int:
        """How many units an episode can move the inventory away from where it starts."""
        env = self.env
        furthest = env.periods * env.max_trade
        if env.inventory_limit is not None:
            furthest = min(furthest, env.inventory_limit + abs(env.initial_inventory))
        return math.floor(furthest / self._unit + 1e-6)

    def _grid(self, low: float, high: float, count: int) -> TradingGrid:
        steps = np.arange(-self._reach, self._reach + 1)
        return TradingGrid(
            env=self.env,
            gamma=self.gamma,
            prices=jnp.asarray(self._prices, dtype=float),
            inventories=jnp.asarray(self.env.initial_inventory + self._unit * steps, dtype=float),
            wealth_start=jnp.asarray(low, dtype=float),
            wealth_step=jnp.asarray((high - low) / (count - 1), dtype=float),
            wealth_count=count,
            stride=1 if self.env.num_trades % 2 else 2,
        )

    @property
    def memory(self) -> int:
        """Bytes that one policy takes."""
        inventories = 2 * self._reach + 1
        return 4 * self.env.periods * len(self._prices) * inventories * self._wealths

    def solve(self, utility: Utility) -> Solution:
        """Backward recursion over the grid; wealth spans the knots and what is still to come."""
        if utility.knots.shape[0] == 0:
            return self._solve_on(self._grid(-1.0, 1.0, 2), utility)
        low, high = self._wealth_range
        low = min(low, float(utility.knots[0]) - 0.05 * (high - low))
        high = max(high, float(utility.knots[-1]) + 0.05 * (high - low))
        # Without inventory the value bends as h does: put a grid point on the sharpest bend.
        sharpest = float(utility.knots[int(np.argmax(np.asarray(utility.drops)))])
        step = (high - low) / (self._wealths - 2)
        low = sharpest - math.ceil((sharpest - low) / step) * step
        high = low + step * (self._wealths - 1)
        return self._solve_on(self._grid(low, high, self._wealths), utility)

    def _solve_on(self, grid: TradingGrid, utility: Utility) -> Solution:
        knots, drops = (jnp.asarray(part, dtype=float) for part in (utility.knots, utility.drops))
        utility = Utility(knots, drops, linear=utility.linear, offset=utility.offset)
        times = jnp.arange(self.env.periods)
        shifts = jax.vmap(lambda time: grid.shift(grid.expected(time) + grid.prices, time))(times)
        furthest = float(jnp.max(jnp.abs(shifts)) / grid.wealth_step)
        unit = 64 if furthest > 64 else 8  # rounded up, so that few shapes are compiled
        padding = math.ceil(furthest / unit + 0.1) * unit + 2
        value, policy = _backward(grid, utility, padding)
        return Solution(float(value), policy)

    def returns(self, policy: TradingPolicy) -> Distribution:
        """The returns of `episodes` simulated episodes, always under the same noise."""
        return Distribution.from_samples(self._simulate(policy, self.episodes, self.key))

    def simulate(self, policy: TradingPolicy, episodes: int, seed: int) -> np.ndarray:
        """Returns under fresh noise."""
        return self._simulate(policy, episodes, jax.random.key(seed))

    def _simulate(self, policy: TradingPolicy, episodes: int, key: Array) -> np.ndarray:
        returns, _ = simulate(self.env, policy, gamma=self.gamma, episodes=episodes, key=key)
        return returns

    @property
    def return_range(self) -> tuple[float, float]:
        """All but one in a thousand returns of the risk-neutral policy, to both sides."""
        return self._range


def _price_grid(env: MeanReversion, refine: float) -> Float[np.ndarray, " P"]:
    """How far from the expected price the price is likely to go, with 0 in the middle."""
    one, all_of_them = (
        ornstein_uhlenbeck_deviation(kappa=env.kappa, sigma=env.sigma, dt=time)
        for time in (env.dt, env.maturity)
    )
    spacing = one / (3.0 * refine)
    steps = math.ceil(_REACH * all_of_them / spacing)
    return spacing * np.arange(-steps, steps + 1)


def _cell(point: Array, first: Array, spacing: Array, count: int) -> tuple[Array, Array]:
    """The cell of a uniform grid and the place in it; outside, the line of the last cell."""
    place = (point - first) / spacing
    cell = jnp.clip(jnp.floor(place), 0, count - 2)
    return cell.astype(jnp.int32), place - cell


@partial(jax.jit, static_argnums=2)
def _backward(
    grid: TradingGrid, utility: Utility, padding: int
) -> tuple[Float[Array, ""], TradingPolicy]:
    gaps = (grid.prices - grid.decay * grid.prices[:, None]) / grid.deviation
    kernel = jnp.exp(-0.5 * gaps**2)
    kernel = kernel / kernel.sum(axis=1, keepdims=True)

    last = _before_last_move(grid, utility)
    times = jnp.arange(grid.env.periods)

    slopes = jnp.stack([utility.linear + utility.drops.sum(), utility.linear])

    def step(after_trade: Array, time: Array):
        before_trade = _best_trade(grid, after_trade, slopes, time, padding)
        return jnp.einsum("ij,jqw->iqw", kernel, before_trade), after_trade

    # Time 0 is worked out like the others and dropped: stacking the outputs then copies nothing.
    _, after_trade = jax.lax.scan(step, last, times, reverse=True)
    policy = TradingPolicy(grid, after_trade, slopes)
    start = grid.env.initial_state(jax.random.key(0))
    return jnp.max(policy.scores(start, jnp.zeros(()))), policy


def _before_last_move(grid: TradingGrid, utility: Utility) -> Float[Array, "P Q W"]:
    r"""$\mathbb{E}[h(w + \gamma^{T-1}(q (P_T - m) - \psi q^2)) \mid P]$ in closed form.

    The argument is normal with a mean that depends on everything and a deviation that depends on
    |q| alone, so a table over (q, mean) serves for all prices and wealths.
    """
    env, final = grid.env, grid.final_discount
    pull = grid.expected(env.periods) + grid.decay * grid.prices - env.mean
    q = grid.inventories
    worth = final * (q * pull[:, None] - env.terminal_penalty * q**2)  # (P, Q)
    wealth = grid.wealth_start + grid.wealth_step * jnp.arange(grid.wealth_count)
    low, high = worth.min() + wealth[0], worth.max() + wealth[-1]
    step = (high - low) / (_TERMINAL_CELLS - 2)
    if utility.knots.shape[0]:  # without inventory there is no noise: a cell must end at the bend
        sharpest = utility.knots[jnp.argmax(utility.drops)]
        low = sharpest - jnp.ceil((sharpest - low) / step) * step
    means = low + step * jnp.arange(_TERMINAL_CELLS)
    deviations = final * jnp.abs(q) * grid.deviation

    def expected(deviation: Array) -> Array:
        scale = jnp.maximum(deviation, 1e-6)

        def add(total: Array, bend: tuple[Array, Array]):
            knot, drop = bend
            z = (knot - means) / scale
            return total - drop * scale * (z * norm.cdf(z) + norm.pdf(z)), None

        straight = utility.offset + utility.linear * means
        total, _ = jax.lax.scan(add, straight, (utility.knots, utility.drops))
        return total

    table = jax.lax.map(expected, deviations)  # (Q, cells)

    def at_price(row: Array) -> Array:
        cell, place = _cell(row[:, None] + wealth, low, step, _TERMINAL_CELLS)
        left = jnp.take_along_axis(table, cell, axis=1)
        right = jnp.take_along_axis(table, cell + 1, axis=1)
        return (1 - place) * left + place * right

    return jax.lax.map(at_price, worth)


def _between(before: Array, left: Array, right: Array, after: Array, place: Array) -> Array:
    """The value at `place` between `left` and `right`: the cubic through all four, held in check.

    A concave function lies above its chord and below the lines that its neighbours continue. Where
    it bends sharply a cubic overshoots both, and a maximum over trades would pick that up.
    """
    back, rest, far = place + 1, place - 1, place - 2
    cubic = (
        -place * rest * far / 6 * before
        + back * rest * far / 2 * left
        - back * place * far / 2 * right
        + back * place * rest / 6 * after
    )
    chord = left + place * (right - left)
    lines = jnp.minimum(left + place * (left - before), right + rest * (after - right))
    return jnp.clip(cubic, chord, jnp.maximum(lines, chord))


def _best_trade(
    grid: TradingGrid,
    after_trade: Float[Array, "P Q W"],
    slopes: Float[Array, " 2"],
    time: Array,
    padding: int,
) -> Float[Array, "P Q W"]:
    count, wide = grid.inventories.shape[0], grid.wealth_count
    shifts = grid.shift(grid.expected(time) + grid.prices, time) / grid.wealth_step
    whole = jnp.floor(shifts)
    half = (grid.env.num_trades - 1) * grid.stride // 2
    allowed = jnp.where(grid.allowed(grid.inventories), 0.0, _FORBIDDEN)[:, None]

    def at_price(row: tuple[Array, Array, Array]) -> Array:
        values, whole, part = row
        away = grid.wealth_step * jnp.arange(1, padding + 1)
        lower = values[:, :1] - slopes[0] * away[::-1]
        upper = values[:, -1:] + slopes[1] * away
        table = jnp.concatenate([lower, values, upper], axis=1) + allowed
        table = jnp.pad(table, ((half, half), (0, 0)), constant_values=_FORBIDDEN)

        best = jnp.full((count, wide), _FORBIDDEN)
        for action in range(grid.env.num_trades):  # unrolled: one pass over memory for all trades
            first_row, column = action * grid.stride, padding + whole[action]
            before, left, right, after = (
                jax.lax.dynamic_slice(table, (first_row, column + offset), (count, wide))
                for offset in (-1, 0, 1, 2)
            )
            value = _between(before, left, right, after, part[action])
            best = jnp.maximum(best, value)
        return best

    return jax.lax.map(at_price, (after_trade, whole.astype(jnp.int32), shifts - whole))
