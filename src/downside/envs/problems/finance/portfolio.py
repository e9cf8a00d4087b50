"""Spreading wealth over several assets."""

from typing import NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Key

from downside.envs._parameters import check_real, check_reals, check_whole, real, reals, whole
from downside.envs.actions import box, clip
from downside.envs.core import AbstractJaxEnv, Action, StepResult, real_array
from downside.envs.memory import LARGEST
from downside.envs.noise import check_count
from downside.envs.problems.finance.prices import geometric_brownian


class PortfolioState(NamedTuple):
    """What there is, and how it is spread."""

    wealth: Float[Array, ""]
    """Wealth in units of that at the start."""
    weights: Float[Array, " n"]
    """Share of the wealth in each asset; the rest is cash."""
    time: Int[Array, ""]
    """Number of periods that have passed."""


class Portfolio(AbstractJaxEnv[PortfolioState]):
    r"""Spread wealth over correlated assets and cash, and rebalance at a cost.

    ## Description
    At each time $t = 0, \dots, T-1$ (`periods` of them, equally spaced up to `maturity`) the agent
    chooses the share of its wealth that goes into each of several assets; the rest stays in cash,
    which earns nothing. Then prices move by correlated geometric Brownian motions
    $dP^i = \mu_i P^i\,dt + \sigma_i P^i\,dW^i$ ($\mu$ = `drifts`, $\sigma$ = `volatilities`; every
    two assets have the same `correlation`), sampled without discretisation error. Nothing is
    borrowed and nothing is sold short.

    The sum of the rewards is the return on the wealth, so the discount of an agent should be 1,
    which is this problem's `default_gamma`.

    ## Action Space
    `Box` of shape (n,) from 0 to 1 for n assets: the wanted weights $a$. They are divided by their
    sum where it is above 1, $w = a / \max(1, \sum_i a_i)$, so that every action is a point of the
    simplex (with cash), every point is an action, and corners are reached exactly.

    ## Observation Space
    `Box` of shape (n + 2,), float32:

    | index | what | range |
    | --- | --- | --- |
    | 0 | wealth $W_t$ | $[0, \infty)$ |
    | 1 | fraction of the periods that has passed, $t/T$ | [0, 1] |
    | 2, ..., n + 1 | weights before the trade | [0, 1] |

    ## Rewards
    The change of wealth, $r_t = W_{t+1} - W_t$, in units of the wealth at the start:
    $W_{t+1} = W_t\,(1 - c \sum_i |w_t^i - \tilde w_t^i|)\,(1 + \sum_i w_t^i R_t^i)$ with the
    weights $\tilde w$ before the trade, the returns $R$ of the assets and $c$ = `cost`. At the end
    wealth is counted without selling it.

    ## Starting State
    Wealth 1, all in cash.

    ## Episode End
    Terminates after `periods` decisions; never truncates.

    ## Arguments
    Every field below, for example `gym.make("downside/Portfolio-v0", correlation=0.6)`.
    """

    drifts: tuple[float, ...] = reals(0.03, 0.06, 0.1)
    """Expected growth μ of each asset per year."""
    volatilities: tuple[float, ...] = reals(0.06, 0.15, 0.3)
    """Volatility σ of each asset, at least 0; as many as `drifts`."""
    correlation: float = real(0.3)
    """Correlation of every two assets, above -1/(n - 1) and at most 1."""
    cost: float = real(0.002)
    """Proportional cost c, as a share of the value traded, at least 0 and below 1/2."""
    periods: int = whole(12)
    """Number of decisions T, at least 1."""
    maturity: float = real(1.0)
    """Time from the first decision to the end in years, above 0."""

    def __check_init__(self):
        check_reals("drifts", self.drifts, "One for each asset, such as (0.03, 0.06).")
        remedy = "One for each asset, as many as `drifts`."
        check_reals("volatilities", self.volatilities, remedy, count=len(self.drifts), least=0.0)
        others = max(1, len(self.drifts) - 1)
        remedy = "With less, no such assets exist."
        check_real("correlation", self.correlation, remedy, above=-1.0 / others, most=1.0)
        check_real("cost", self.cost, "0.002 is twenty basis points.", least=0.0, below=0.5)
        check_whole("periods", self.periods, "12 is once a month.", least=1)
        check_real("maturity", self.maturity, "1.0 is a year.", above=0.0)

    @property
    def num_assets(self) -> int:
        """Without cash."""
        return len(self.drifts)

    @property
    def dt(self) -> float:
        """Time between two decisions."""
        return self.maturity / self.periods

    @property
    def action_space(self) -> gym.spaces.Box:
        """The wanted weights."""
        return box(0.0, 1.0, self.num_assets)

    @property
    def horizon(self) -> int:
        """The number of decisions."""
        return self.periods

    @property
    def default_gamma(self) -> float:
        """1: changes of wealth are not discounted."""
        return 1.0

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Wealth, fraction of time and weights."""
        high = np.ones(self.num_assets + 2, np.float32)
        high[0] = LARGEST
        return gym.spaces.Box(np.zeros_like(high), high, dtype=np.float32)

    @property
    def mixing(self) -> Float[np.ndarray, "n n"]:
        """A root of the matrix of correlations: what mixes independent noise."""
        same = np.full((self.num_assets, self.num_assets), self.correlation)
        np.fill_diagonal(same, 1.0)
        values, vectors = np.linalg.eigh(same)
        return vectors * np.sqrt(np.maximum(values, 0.0))

    def initial_state(self, key: Key[Array, ""]) -> PortfolioState:
        """Always the same: wealth 1 in cash."""
        del key
        wealth = real_array(1.0)
        return PortfolioState(
            wealth, jnp.zeros(self.num_assets, wealth.dtype), jnp.zeros((), jnp.int32)
        )

    def sample_noise(self, key: Key[Array, ""]) -> Float[Array, " n"]:
        """Independent standard normal variables."""
        return jax.random.normal(key, (self.num_assets,))

    def sample_noises(self, key: Key[Array, ""], count: int) -> Float[Array, "m n"]:
        """In mirrored pairs."""
        check_count(count)
        first = jax.random.normal(key, ((count + 1) // 2, self.num_assets))
        return jnp.concatenate([first, -first])[:count]

    def mirrored(self, noise: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
        """All prices move the other way."""
        return -real_array(noise)

    def weights(self, action: Action) -> Float[Array, " n"]:
        """The point of the simplex that an action stands for."""
        wanted = clip(real_array(action), 0.0, 1.0)
        return wanted / jnp.maximum(wanted.sum(), 1.0)

    def growth(self, noise: Float[ArrayLike, " n"]) -> Float[Array, " n"]:
        """What a unit of each asset becomes in one period."""
        mixed = real_array(self.mixing) @ real_array(noise)
        unit = jnp.ones_like(mixed)
        drifts = real_array(np.array(self.drifts))
        volatilities = real_array(np.array(self.volatilities))
        return geometric_brownian(unit, mixed, drift=drifts, sigma=volatilities, dt=self.dt)

    def transition(
        self, state: PortfolioState, action: Action, noise: Float[ArrayLike, " n"]
    ) -> StepResult:
        """Trade; then prices move."""
        weights, growth = self.weights(action), self.growth(noise)
        paid = self.cost * jnp.abs(weights - state.weights).sum()
        factor = 1.0 + (weights * (growth - 1.0)).sum()
        wealth = state.wealth * (1.0 - paid) * factor
        # Rounding must not carry the weights out of the simplex.
        held = jnp.clip(weights * growth / factor, 0.0, 1.0)
        after = PortfolioState(wealth, held, state.time + 1)
        done = after.time >= self.periods
        return StepResult(after, wealth - state.wealth, done, jnp.zeros((), bool))

    def observe(self, state: PortfolioState) -> Float[Array, " d"]:
        """Wealth, fraction of time and weights."""
        first = jnp.stack([state.wealth, state.time / self.periods])
        return jnp.concatenate([first, state.weights]).astype(jnp.float32)
