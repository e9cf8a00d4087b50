"""Mean-reversion trading, solved on a grid of price, inventory and wealth."""

import copy
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from downside.envs import MeanReversion
from downside.exact.problem import AbstractProblem, Solution
from downside.exact.simulate import simulate
from downside.exact.trading_grid import TradingGrid, TradingPolicy, price_grid
from downside.exact.trading_recursion import backward
from downside.risk import Distribution, Mean, Utility

_MOST_MEMORY = 2.2 * 2**30
"""Bytes that one policy may take."""
_FEWEST_WEALTHS = 120


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
        if env.continuous:
            raise ValueError(
                "`continuous` must be False for the planner, got True: it solves the problem with "
                f"{env.num_trades} trades. A large `num_trades` comes close to any amount."
            )
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
        self._prices = price_grid(self.env, refine)
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
        value, policy = backward(grid, utility, padding)
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
