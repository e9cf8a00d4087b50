"""Hedging an option that was sold."""

import dataclasses
import math
from typing import Literal

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from downside.envs._parameters import choice, flag, real, whole
from downside.envs.actions import clip
from downside.envs.core import AbstractJaxEnv, Action, StepResult, real_array
from downside.envs.noise import check_count, mirrored_normals
from downside.envs.problems.finance import black_scholes
from downside.envs.problems.finance._hedging_parameters import check_hedging
from downside.envs.problems.finance.hedging_state import (
    HedgingState,
    observation_space,
    observe,
    recover,
)
from downside.envs.problems.finance.heston import Heston
from downside.envs.problems.finance.prices import geometric_brownian
from downside.risk import AbstractSpectralRisk, as_risk


class Hedging(AbstractJaxEnv[HedgingState]):
    r"""Sell an option and hedge it with the stock, day by day, at a cost.

    ## Description
    The agent has sold one option for a `premium`. At each time $t = 0, \dots, T-1$ (`periods` of
    them, equally spaced up to `maturity`) it chooses what to hold of each instrument until the next
    one: of the stock, and with `swap=True` of a variance swap too. At maturity everything is sold
    and the option is paid. The stock follows a geometric Brownian motion
    $dS = \sigma S\,dB$ (`model="gbm"`; $\sigma$ = `sigma`; sampled without discretisation error) or
    Heston's model $dS = \sqrt{V} S\,dB$, $dV = a(b - V)\,dt + \sigma_V \sqrt{V}\,dW$ with
    correlation $\rho$ (`model="heston"`; $a$ = `reversion`, $b$ = `long_variance`,
    $\sigma_V$ = `vol_of_vol`, $\rho$ = `correlation`, $V_0$ = `initial_variance`; Andersen's QE-M
    scheme, one step a period). There is neither interest nor drift. With
    `model="heston", swap=True, maturity=30/365, cost=0` and the other defaults this is the hedging
    problem of Buehler, Gonon, Teichmann and Wood (Deep Hedging, 2019, section 5.2).

    The sum of the rewards is the profit of the hedged position, so the discount of an agent should
    be 1, which is this problem's `default_gamma`.

    ## Action Space
    `Box` of shape (1,), or (2,) with the swap: the *position* in each instrument (not the trade),
    the stock between `min_position` and `max_position`, the swap between `-max_swaps` and
    `max_swaps`. With `num_positions` it is `Discrete(num_positions)`: positions in the stock,
    equally spaced.

    ## Observation Space
    `Box`, float32. Moneyness is in units of $\sigma\sqrt{T}$, the standard deviation of the log
    price until maturity ($\sqrt{b T}$ for Heston):

    | what | range | when |
    | --- | --- | --- |
    | moneyness $\ln(S_t/K)$ | $(-\infty, \infty)$ | always |
    | fraction of the periods that has passed | [0, 1] | always |
    | position in the stock | as the action | always |
    | moneyness of the highest price so far, $\ln(M_t/K)$ | $(-\infty, \infty)$ | lookback |
    | volatility relative to its long-run level, $\sqrt{V_t/b}$ | $[0, \infty)$ | Heston |
    | value of the swap relative to $b T$ | $[0, \infty)$ | swap |
    | position in the swap, over `max_swaps` | [-1, 1] | swap |

    ## Rewards
    $r_t = \delta_t \cdot (X_{t+1} - X_t) - \sum_i (c\, |\delta_t^i - \delta_{t-1}^i| X_t^i
    + f\, 1\{\delta_t^i \ne \delta_{t-1}^i\})$ with the prices $X$ of the instruments, the positions
    $\delta$ ($\delta_{-1} = 0$), $c$ = `cost` and $f$ = `fixed_cost`. The first reward also has the
    premium; the last one has minus the payoff, and the costs of closing all positions at $X_T$.

    The payoff is $\max(S_T - K, 0)$ for a call, $\max(K - S_T, 0)$ for a put, and
    $\max(\max_t S_t - K, 0)$ for a lookback, $t = 0, \dots, T$, with $K$ = `strike`.

    The variance swap is worth $\int_0^t V\,du + (V_t - b)/a\,(1 - e^{-a(T-t)}) + b\,(T - t)$ (with
    $t$ in units of time): what it pays at maturity, the integral of $V$, in expectation. That of
    the default parameters is worth about 0.003; hence the large number of them.

    A fixed cost is a jump: agents that follow derivatives do not see it, except in what they
    evaluate.

    ## Starting State
    The price is `initial_price`, the variance `initial_variance`, nothing is held.

    ## Episode End
    Terminates after `periods` decisions; never truncates.

    ## Arguments
    Every field below, for example `gym.make("downside/Hedging-v0", option="put", cost=0.002)`.
    """

    option: Literal["call", "put", "lookback"] = choice("call")
    """What was sold: "call", "put" or "lookback" (a call on the highest price)."""
    strike: float = real(100.0)
    """Strike price K, above 0."""
    initial_price: float = real(100.0)
    """Price of the stock at the start, above 0."""
    maturity: float = real(30 / 252)
    """Time until the option is paid in years, above 0."""
    periods: int = whole(30)
    """Number of decisions T, at least 1."""
    premium: float | None = real(None)
    """What the option was sold for. None is the Black-Scholes price for "gbm" (for a lookback that
    of daily prices, with the correction of Broadie, Glasserman and Kou), and 0 for "heston"."""
    cost: float = real(0.001)
    """Proportional cost c of a trade, as a share of its value, at least 0."""
    fixed_cost: float = real(0.0)
    """Fixed cost f of each trade in an instrument, at least 0."""
    min_position: float | None = real(None)
    """Lowest position in the stock. None is what a delta can be: 0, or -1 for a put; one less for
    "heston", where a hedge of the volatility is a part of it."""
    max_position: float | None = real(None)
    """Highest position in the stock. None is 1 for a call, 0 for a put, 2 for a lookback; one more
    for "heston"."""
    num_positions: int | None = whole(None)
    """Number of positions in the stock to choose from, at least 2; None for any."""
    model: Literal["gbm", "heston"] = choice("gbm")
    """How the price moves: "gbm" or "heston"."""
    sigma: float = real(0.2)
    """Volatility σ of "gbm", at least 0."""
    reversion: float = real(1.0)
    """Speed a at which the variance of "heston" returns to its mean, above 0."""
    long_variance: float = real(0.04)
    """Long-run mean b of the variance, above 0."""
    vol_of_vol: float = real(2.0)
    """Volatility σ_V of the variance, above 0."""
    correlation: float = real(-0.7)
    """Correlation ρ of price and variance, in [-1, 0]."""
    initial_variance: float = real(0.04)
    """Variance V at the start, at least 0."""
    swap: bool = flag(False)
    """Whether a variance swap can be held too; for "heston"."""
    max_swaps: float = real(5000.0)
    """Largest number of swaps, long or short, above 0."""

    def __check_init__(self):
        check_hedging(self, Hedging)

    # --- what follows from the parameters ---------------------------------------------------------

    @property
    def dt(self) -> float:
        """Time between two decisions."""
        return self.maturity / self.periods

    @property
    def position_range(self) -> tuple[float, float]:
        """The lowest and the highest position in the stock."""
        lowest, highest = {"call": (0.0, 1.0), "put": (-1.0, 0.0), "lookback": (0.0, 2.0)}[
            self.option
        ]
        beyond = 1.0 if self.model == "heston" else 0.0
        lowest = lowest - beyond if self.min_position is None else self.min_position
        return lowest, highest + beyond if self.max_position is None else self.max_position

    @property
    def positions(self) -> Float[np.ndarray, " A"]:
        """The position in the stock of each discrete action; empty if positions are continuous."""
        if self.num_positions is None:
            return np.zeros(0)
        return np.linspace(*self.position_range, self.num_positions)

    @property
    def annual_volatility(self) -> float:
        """σ, or the square root of the long-run variance."""
        return self.sigma if self.model == "gbm" else math.sqrt(self.long_variance)

    @property
    def typical_move(self) -> float:
        """The standard deviation of the log price at maturity, by which log prices are divided."""
        return self.annual_volatility * math.sqrt(self.maturity) or 1.0

    @property
    def received_premium(self) -> float:
        """What the option was sold for: `premium`, or what it stands for if it is None."""
        if self.premium is not None:
            return self.premium
        if self.model == "heston":
            return 0.0
        step = self.sigma * math.sqrt(self.dt)
        with jax.ensure_compile_time_eval():
            deviation = real_array(self.sigma * math.sqrt(self.maturity))
            spot = real_array(self.initial_price)
            value = black_scholes.price(self.option, spot, spot, self.strike, deviation, step)
            return float(value)

    def indifference_price(
        self, profits: Float[ArrayLike, " n"], risk: AbstractSpectralRisk | str
    ) -> float:
        r"""The premium at which selling and hedging is worth as much as doing nothing.

        With the `profits` $G$ of a hedge, which contain the premium $p$ of this problem, it is
        $p - \rho(G)$: a measure $\rho$ grows with each unit of money by one, and is 0 for nothing.
        """
        values = np.asarray(profits, dtype=float)
        return self.received_premium - float(as_risk(risk)(values))

    @property
    def _heston(self) -> Heston:
        return Heston(
            self.reversion, self.long_variance, self.vol_of_vol, self.correlation, self.dt
        )

    @property
    def num_instruments(self) -> int:
        """The stock, and the swap."""
        return 2 if self.swap else 1

    @property
    def num_actions(self) -> int:
        """The number of positions to choose from; 0 for any."""
        return self.num_positions or 0

    @property
    def action_space(self) -> gym.spaces.Discrete | gym.spaces.Box:
        """The numbers of the positions, or the positions themselves."""
        if self.num_positions is not None:
            return gym.spaces.Discrete(self.num_positions)
        bounds = [self.position_range, (-self.max_swaps, self.max_swaps)][: self.num_instruments]
        low, high = np.array(bounds, np.float32).T
        return gym.spaces.Box(low, high, dtype=np.float32)

    @property
    def relaxed(self) -> "tuple[Hedging, Float[Array, 'A 1']] | None":
        """The problem with any position, and the positions."""
        if self.num_positions is None:
            return None
        return dataclasses.replace(self, num_positions=None), real_array(self.positions)[:, None]

    @property
    def horizon(self) -> int:
        """The number of decisions."""
        return self.periods

    @property
    def default_gamma(self) -> float:
        """1: profits are not discounted."""
        return 1.0

    @property
    def observation_space(self) -> gym.spaces.Box:
        """See the class; unbounded sides end at the largest float32."""
        return observation_space(self)

    # --- an episode -------------------------------------------------------------------------------

    def initial_state(self, key: Key[Array, ""]) -> HedgingState:
        """Always the same: nothing is held."""
        del key
        price = real_array(self.initial_price)
        variance = self.sigma**2 if self.model == "gbm" else self.initial_variance
        return HedgingState(
            price,
            price,
            real_array(variance),
            real_array(0.0),
            jnp.zeros(self.num_instruments, price.dtype),
            jnp.zeros((), jnp.int32),
        )

    def sample_noise(self, key: Key[Array, ""]) -> Float[Array, " m"]:
        """Independent standard normal variables: one for the price, for Heston also one for the
        variance."""
        return jax.random.normal(key, (1 if self.model == "gbm" else 2,))

    def sample_noises(self, key: Key[Array, ""], count: int) -> Float[Array, "n m"]:
        """In mirrored pairs; for one variable also from equally likely ranges."""
        if self.model == "gbm":
            return mirrored_normals(key, count)[:, None]
        check_count(count)
        first = jax.random.normal(key, ((count + 1) // 2, 2))
        return jnp.concatenate([first, -first])[:count]

    def mirrored(self, noise: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
        """Price and variance move the other way."""
        return -real_array(noise)

    def time_left(self, state: HedgingState) -> Float[Array, ""]:
        """Time until maturity."""
        return self.dt * (self.periods - state.time)

    def expected_variance(self, state: HedgingState) -> Float[Array, ""]:
        """The expected integral of the variance until maturity."""
        left = self.time_left(state)
        if self.model == "gbm":
            return self.sigma**2 * left
        return self._heston.swap(jnp.zeros_like(state.variance), state.variance, left)

    def instrument_prices(self, state: HedgingState) -> Float[Array, " k"]:
        """What one unit of each instrument costs."""
        if not self.swap:
            return state.price[None]
        return jnp.stack([state.price, state.accrued + self.expected_variance(state)])

    def payoff(self, state: HedgingState) -> Float[Array, ""]:
        """What the option pays at maturity."""
        level = state.highest if self.option == "lookback" else state.price
        gain = self.strike - level if self.option == "put" else level - self.strike
        return jnp.maximum(gain, 0.0)

    def recover(self, observation: Float[Array, " d"]) -> HedgingState:
        """The state that is observed so; without a lookback or a swap, which need them, not its
        `highest` price and its `accrued` variance."""
        return recover(self, observation)

    def trading_cost(
        self, trades: Float[Array, " k"], prices: Float[Array, " k"]
    ) -> Float[Array, ""]:
        """What it costs to buy (or sell, if negative) these amounts."""
        amounts = jnp.abs(trades)
        # Rounding is not a trade.
        is_trade = amounts > 1e-6 * real_array(self._widths)
        return (self.cost * amounts * prices + jnp.where(is_trade, self.fixed_cost, 0.0)).sum()

    @property
    def _widths(self) -> Float[np.ndarray, " k"]:
        lowest, highest = self.position_range
        return np.array([highest - lowest, 2.0 * self.max_swaps][: self.num_instruments])

    def _target(self, state: HedgingState, action: Action) -> Float[Array, " k"]:
        if self.num_positions is not None:
            return real_array(self.positions)[jnp.asarray(action)][None]
        return clip(real_array(action), *self.action_bounds(state))

    def next_market(self, state: HedgingState, noise: Float[ArrayLike, " m"]) -> HedgingState:
        """The market one period later; positions stay."""
        noise = real_array(noise)
        if self.model == "gbm":
            variance = state.variance
            price = geometric_brownian(
                state.price, noise[0], drift=0.0, sigma=self.sigma, dt=self.dt
            )
            accrued = state.accrued + self.dt * variance
        else:
            heston = self._heston
            variance, log_expectation = heston.next_variance(state.variance, noise[1])
            price = heston.next_price(
                state.price, state.variance, variance, log_expectation, noise[0]
            )
            accrued = state.accrued + heston.accrued(state.variance, variance)
        highest = jnp.maximum(state.highest, price)
        return HedgingState(price, highest, variance, accrued, state.positions, state.time + 1)

    def transition(
        self, state: HedgingState, action: Action, noise: Float[ArrayLike, " m"]
    ) -> StepResult:
        """Trade at the current prices; then the market moves."""
        before = self.instrument_prices(state)
        target = self._target(state, action)
        after = self.next_market(state._replace(positions=target), noise)
        prices = self.instrument_prices(after)
        cost = self.trading_cost(target - state.positions, before)
        first = jnp.where(state.time == 0, self.received_premium, 0.0)
        done = after.time >= self.periods
        last = jnp.where(done, self.payoff(after) + self.trading_cost(target, prices), 0.0)
        reward = (target * (prices - before)).sum() - cost + first - last
        return StepResult(after, reward, done, jnp.zeros((), bool))

    def observe(self, state: HedgingState) -> Float[Array, " d"]:
        """See the class."""
        return observe(self, state)
