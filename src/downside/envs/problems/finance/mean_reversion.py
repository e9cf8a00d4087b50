"""Trading an asset whose price returns to its mean."""

import dataclasses
from typing import NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key

from downside.envs._parameters import check_flag, check_real, check_whole, flag, real, whole
from downside.envs.actions import box, clip
from downside.envs.core import AbstractJaxEnv, Action, StepResult, real_array
from downside.envs.noise import mirrored_normals
from downside.envs.problems.finance.prices import ornstein_uhlenbeck


class TradingState(NamedTuple):
    """Where the market is, and what the agent holds."""

    price: Float[Array, ""]
    """Price of the asset."""
    inventory: Float[Array, ""]
    """Units held; negative when short."""
    time: Int[Array, ""]
    """Number of periods that have passed."""


class MeanReversion(AbstractJaxEnv[TradingState]):
    r"""Buy and sell an asset whose price returns to its mean, and end with little of it.

    ## Description
    At each time $t = 0, \dots, T-1$ (`periods` of them, equally spaced up to `maturity`) the
    agent buys or sells an amount $a_t$, after which the price moves by an Ornstein-Uhlenbeck
    process $dP = \kappa(\zeta - P)\,dt + \sigma\,dW$ ($\kappa$ = `kappa`, $\zeta$ = `mean`,
    $\sigma$ = `sigma`), sampled without discretisation error. With the defaults this is the
    mean-reversion trading of the paper (appendix "Details of the Environments"). Rewards are not
    discounted here: that is the agent's business.

    Differs: the paper's text limits the inventory to $|q| \le 5$, its printed figures belong to no
    limit. So `inventory_limit` is off unless asked for. The price that values the last inventory
    is $P_T$, the one after the last move (the text's $P_t$ at that place can only mean this one).

    ## Action Space
    With `continuous=True`: `Box` of shape (1,), the amount from `-max_trade` (sell) to `max_trade`
    (buy). An `inventory_limit` narrows it to `action_bounds`; a trade beyond them is cut to them.

    Otherwise `Discrete(num_trades)`: action $i$ trades the $i$-th of `num_trades` amounts equally
    spaced from `-max_trade` (sell) to `max_trade` (buy). With an `inventory_limit` the trades that
    would break it are illegal: `action_mask`, and `info["action_mask"]` of the Gymnasium
    environment, are zero there, and an illegal trade that is asked for anyway is replaced by the
    nearest legal one.

    ## Observation Space
    `Box` of shape (3,), float32:

    | index | what | range |
    | --- | --- | --- |
    | 0 | price $P_t$ | $(-\infty, \infty)$ |
    | 1 | inventory $q_t$ | what `periods` trades, or the limit, allow |
    | 2 | fraction of the periods that has passed, $t/T$ | [0, 1] |

    ## Rewards
    $r_t = -a_t P_t - \varphi a_t^2$ with $\varphi$ = `cost`; the last trade, $t = T-1$, also
    receives $q_T P_T - \psi q_T^2$ with $\psi$ = `terminal_penalty`, where $q_T$ is the
    inventory after that trade and $P_T$ the price after the last move.

    ## Starting State
    The price is `initial_price`, the inventory `initial_inventory`, the time 0.

    ## Episode End
    Terminates after `periods` trades; never truncates.

    ## Arguments
    Every field below, for example `gym.make("downside/MeanReversion-v0", sigma=0.5)`.
    """

    sigma: float = real(1.0)
    """Volatility σ of the price, at least 0."""
    kappa: float = real(2.0)
    """Speed of reversion κ, at least 0; 0 is a Brownian motion."""
    mean: float = real(1.0)
    """Long-run mean ζ of the price."""
    initial_price: float = real(1.0)
    """Price at the start."""
    max_trade: float = real(2.0)
    """Largest amount of one trade, above 0."""
    num_trades: int = whole(21)
    """Number of amounts to choose from, at least 2; an odd number includes doing nothing."""
    cost: float = real(0.005)
    """Transaction cost φ per squared amount, at least 0."""
    terminal_penalty: float = real(0.5)
    """Penalty ψ per squared unit of inventory at the end, at least 0."""
    periods: int = whole(10)
    """Number of trades T, at least 1."""
    maturity: float = real(1.0)
    """Time from the first trade to the end, above 0."""
    initial_inventory: float = real(0.0)
    """Units held at the start."""
    inventory_limit: float | None = real(None)
    """Largest absolute inventory, or None for no limit."""
    continuous: bool = flag(False)
    """Whether any amount can be traded; `num_trades` then changes nothing."""

    def __check_init__(self):
        check_real("sigma", self.sigma, "The paper uses 1.0.", least=0.0)
        check_real("kappa", self.kappa, "The paper uses 2.0.", least=0.0)
        check_real("mean", self.mean, "The paper uses 1.0.")
        check_real("initial_price", self.initial_price, "The paper uses 1.0.")
        check_real("max_trade", self.max_trade, "The paper uses 2.0.", above=0.0)
        check_whole("num_trades", self.num_trades, "The paper uses 21.", least=2)
        check_real("cost", self.cost, "The paper uses 0.005.", least=0.0)
        check_real("terminal_penalty", self.terminal_penalty, "The paper uses 0.5.", least=0.0)
        check_whole("periods", self.periods, "The paper uses 10.", least=1)
        check_real("maturity", self.maturity, "The paper uses 1.0.", above=0.0)
        check_real("initial_inventory", self.initial_inventory, "The paper uses 0.")
        check_flag("continuous", self.continuous)
        if self.inventory_limit is not None:
            # Below these there would be states without a single legal trade.
            smallest = 0.0 if self.continuous else float(np.abs(self.trades).min())
            check_real(
                "inventory_limit",
                self.inventory_limit,
                "It must leave room for `initial_inventory` and the smallest trade; pass None for "
                "no limit.",
                above=0.0,
                least=max(abs(self.initial_inventory), smallest),
            )

    @property
    def trades(self) -> Float[np.ndarray, " A"]:
        """The amount that each action trades, from selling to buying."""
        return np.linspace(-self.max_trade, self.max_trade, self.num_trades)

    @property
    def largest_inventory(self) -> float:
        """The largest absolute inventory an episode can reach."""
        if self.inventory_limit is not None:
            return self.inventory_limit
        return abs(self.initial_inventory) + self.periods * self.max_trade

    @property
    def num_actions(self) -> int:
        """The number of amounts; 0 if any amount can be traded."""
        return 0 if self.continuous else self.num_trades

    @property
    def action_space(self) -> gym.spaces.Discrete | gym.spaces.Box:
        """The numbers of the amounts, or the amounts themselves."""
        if self.continuous:
            return box(-self.max_trade, self.max_trade, 1)
        return gym.spaces.Discrete(self.num_trades)

    @property
    def relaxed(self) -> "tuple[MeanReversion, Float[Array, 'A 1']] | None":
        """The problem with `continuous` trades, and the amounts."""
        if self.continuous:
            return None
        return dataclasses.replace(self, continuous=True), real_array(self.trades)[:, None]

    @property
    def horizon(self) -> int:
        """The number of trades."""
        return self.periods

    @property
    def dt(self) -> float:
        """Time between two trades."""
        return self.maturity / self.periods

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Price, inventory and fraction of time; unbounded sides end at the largest float32."""
        high = np.array([np.finfo(np.float32).max, self.largest_inventory, 1.0], np.float32)
        return gym.spaces.Box(high * np.array([-1.0, -1.0, 0.0], np.float32), high)

    def initial_state(self, key: Key[Array, ""]) -> TradingState:
        """Always the same: `initial_price` and `initial_inventory` at time 0."""
        del key
        return TradingState(
            real_array(self.initial_price),
            real_array(self.initial_inventory),
            jnp.zeros((), jnp.int32),
        )

    def sample_noise(self, key: Key[Array, ""]) -> Float[Array, ""]:
        """A standard normal variable."""
        return jax.random.normal(key)

    def sample_noises(self, key: Key[Array, ""], count: int) -> Float[Array, " n"]:
        """Standard normal variables, one from each of `count` equally likely ranges."""
        return mirrored_normals(key, count)

    def mirrored(self, noise: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
        """The price moves the other way."""
        return -real_array(noise)

    def next_price(
        self, price: Float[Array, "*shape"], noise: Float[ArrayLike, "*shape"]
    ) -> Float[Array, "*shape"]:
        """The price one period later."""
        return ornstein_uhlenbeck(
            price,
            real_array(noise),
            kappa=self.kappa,
            mean=self.mean,
            sigma=self.sigma,
            dt=self.dt,
        )

    def action_mask(self, state: TradingState) -> Bool[Array, " A"]:
        """The trades that keep the inventory within `inventory_limit`."""
        if self.continuous:
            return jnp.ones(0, dtype=bool)
        trades = real_array(self.trades)
        if self.inventory_limit is None:
            return jnp.ones_like(trades, dtype=bool)
        # Inventories are sums of rounded trades: forgive what is far below one trade's spacing.
        spacing = 2.0 * self.max_trade / (self.num_trades - 1)
        return jnp.abs(state.inventory + trades) <= self.inventory_limit + 1e-3 * spacing

    def action_bounds(self, state: TradingState) -> tuple[Float[Array, " 1"], Float[Array, " 1"]]:
        """The amounts that keep the inventory within `inventory_limit`."""
        low, high = super().action_bounds(state)
        if self.inventory_limit is None:
            return low, high
        sell = -self.inventory_limit - state.inventory
        buy = self.inventory_limit - state.inventory
        return clip(sell[None], low, high), clip(buy[None], low, high)

    def _nearest_legal(self, state: TradingState, action: Int[ArrayLike, ""]) -> Int[Array, ""]:
        # The legal trades are neighbours, so the nearest one is at one of their two ends.
        legal = self.action_mask(state)
        last = self.num_actions - 1 - jnp.argmax(legal[::-1])
        return jnp.clip(jnp.asarray(action), jnp.argmax(legal), last)

    def _amount(self, state: TradingState, action: Action) -> Float[Array, ""]:
        if self.continuous:
            return clip(real_array(action), *self.action_bounds(state))[0]
        if self.inventory_limit is not None:
            action = self._nearest_legal(state, action)
        return real_array(self.trades)[jnp.asarray(action)]

    def transition(
        self, state: TradingState, action: Action, noise: Float[ArrayLike, ""]
    ) -> StepResult:
        """Trade at the current price; then the price moves."""
        trade = self._amount(state, action)
        # Only rounding can carry the sum outside.
        bound = self.largest_inventory
        inventory = clip(state.inventory + trade, -bound, bound)
        after = TradingState(self.next_price(state.price, noise), inventory, state.time + 1)
        done = after.time >= self.periods
        worth = inventory * after.price - self.terminal_penalty * inventory**2
        reward = -trade * state.price - self.cost * trade**2 + jnp.where(done, worth, 0.0)
        return StepResult(after, reward, done, jnp.zeros((), bool))

    def observe(self, state: TradingState) -> Float[Array, " 3"]:
        """Price, inventory and fraction of the periods that has passed."""
        parts = [state.price, state.inventory, state.time / self.periods]
        return jnp.stack(parts).astype(jnp.float32)
