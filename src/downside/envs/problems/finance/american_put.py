"""When to exercise an American option."""

from typing import Literal, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Key

from downside.envs._parameters import check_choice, check_real, check_whole, choice, real, whole
from downside.envs.core import AbstractJaxEnv, StepResult, real_array
from downside.envs.noise import mirrored_normals
from downside.envs.problems.finance.prices import geometric_brownian, ornstein_uhlenbeck

HOLD, EXERCISE = 0, 1


class OptionState(NamedTuple):
    """Where the market is."""

    price: Float[Array, ""]
    """Price of the underlying."""
    time: Int[Array, ""]
    """Number of periods that have passed."""


class AmericanPut(AbstractJaxEnv[OptionState]):
    r"""Hold or exercise an American option on a price that moves at random.

    ## Description
    The agent owns an option on an asset. At each of the decision times $t = 0, \dots, T-1$
    (`periods` of them, equally spaced up to `maturity`) it exercises the option or holds it. The
    price follows a geometric Brownian motion $dP = \zeta P\,dt + \sigma P\,dW$
    (`process="gbm"`; $\zeta$ = `drift`, $\sigma$ = `sigma`) or an Ornstein-Uhlenbeck process
    $dP = \kappa(\zeta - P)\,dt + \sigma\,dW$ (`process="ou"`; $\kappa$ = `kappa`,
    $\zeta$ = `mean`), both sampled without discretisation error. With the defaults this is the
    American put of the paper (appendix "Details of the Environments"). Rewards are not
    discounted here: that is the agent's business.

    ## Action Space
    `Discrete(2)`: 0 holds, 1 exercises.

    ## Observation Space
    `Box` of shape (2,), float32:

    | index | what | range |
    | --- | --- | --- |
    | 0 | price $P_t$ | $[0, \infty)$ for "gbm", $(-\infty, \infty)$ for "ou" |
    | 1 | fraction of the periods that has passed, $t/T$ | [0, 1] |

    ## Rewards
    Exercising pays $\max(K - P_t, 0)$ for a put and $\max(P_t - K, 0)$ for a call, with
    $K$ = `strike`. Holding pays nothing, except at the last decision time, $t = T-1$: an option
    that is still held at maturity is exercised there, and that step pays the payoff at $P_T$.

    ## Starting State
    The price is `initial_price`, the time 0.

    ## Episode End
    Terminates when the option is exercised or reaches maturity; never truncates. The price of the
    final observation is the one after the last move, also when the option was exercised before it.

    ## Arguments
    Every field below, for example `gym.make("downside/AmericanPut-v0", kind="call", sigma=0.5)`.
    """

    drift: float = real(-0.3)
    """Drift ζ of the geometric Brownian motion, per unit of time; of no use to "ou"."""
    sigma: float = real(0.3)
    """Volatility σ, at least 0; relative to the price for "gbm", absolute for "ou"."""
    strike: float = real(1.0)
    """Strike price K, above 0."""
    initial_price: float = real(1.0)
    """Price at the start; above 0 for "gbm"."""
    maturity: float = real(1.0)
    """Time until the option expires, above 0."""
    periods: int = whole(10)
    """Number of decision times T, at least 1."""
    kind: Literal["put", "call"] = choice("put")
    """Which option: "put" or "call"."""
    process: Literal["gbm", "ou"] = choice("gbm")
    """How the price moves: "gbm" or "ou"."""
    kappa: float = real(2.0)
    """Speed of reversion κ of "ou", at least 0; of no use to "gbm"."""
    mean: float = real(1.0)
    """Long-run mean ζ of "ou"; of no use to "gbm"."""

    def __check_init__(self):
        check_choice("kind", self.kind, ("put", "call"), "A put pays when the price is low.")
        check_choice("process", self.process, ("gbm", "ou"), "The paper's put uses 'gbm'.")
        check_real("drift", self.drift, "The paper's put uses -0.3.")
        check_real("sigma", self.sigma, "The paper's put uses 0.3.", least=0.0)
        check_real("strike", self.strike, "The paper's put uses 1.0.", above=0.0)
        check_real("maturity", self.maturity, "The paper's put uses 1.0.", above=0.0)
        check_whole("periods", self.periods, "The paper's put uses 10.", least=1)
        check_real("kappa", self.kappa, "0 stands for no reversion.", least=0.0)
        check_real("mean", self.mean, "1.0 is the default.")
        lowest = {"above": 0.0} if self.process == "gbm" else {}
        check_real("initial_price", self.initial_price, "1.0 is at the money.", **lowest)
        self._check_unused()

    def _check_unused(self) -> None:
        # A parameter that changes nothing is a mistake the caller would never see.
        default, unused = AmericanPut, ("kappa", "mean") if self.process == "gbm" else ("drift",)
        for name in unused:
            if getattr(self, name) != getattr(default, name):
                other = "ou" if self.process == "gbm" else "gbm"
                raise ValueError(
                    f"`{name}` must be left at {getattr(default, name)} with "
                    f"process={self.process!r}, which does not use it, got {getattr(self, name)}. "
                    f"Pass process={other!r} if that is the price you mean."
                )

    @property
    def num_actions(self) -> int:
        """Hold and exercise."""
        return 2

    @property
    def horizon(self) -> int:
        """The number of decision times."""
        return self.periods

    @property
    def dt(self) -> float:
        """Time between two decisions."""
        return self.maturity / self.periods

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Price and fraction of time; unbounded sides end at the largest float32."""
        largest = np.finfo(np.float32).max
        lowest = 0.0 if self.process == "gbm" else -largest
        return gym.spaces.Box(
            np.array([lowest, 0.0], np.float32), np.array([largest, 1.0], np.float32)
        )

    def initial_state(self, key: Key[Array, ""]) -> OptionState:
        """Always the same: `initial_price` at time 0."""
        del key
        return OptionState(real_array(self.initial_price), jnp.zeros((), jnp.int32))

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
        noise = real_array(noise)
        if self.process == "gbm":
            return geometric_brownian(price, noise, drift=self.drift, sigma=self.sigma, dt=self.dt)
        return ornstein_uhlenbeck(
            price, noise, kappa=self.kappa, mean=self.mean, sigma=self.sigma, dt=self.dt
        )

    def payoff(self, price: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """What exercising pays at a price."""
        gain = self.strike - price if self.kind == "put" else price - self.strike
        return jnp.maximum(gain, 0.0)

    def transition(
        self, state: OptionState, action: Int[ArrayLike, ""], noise: Float[ArrayLike, ""]
    ) -> StepResult:
        """Exercise or hold; the market moves on in either case."""
        exercised = jnp.asarray(action) == EXERCISE
        after = OptionState(self.next_price(state.price, noise), state.time + 1)
        matured = after.time >= self.periods
        held = jnp.where(matured, self.payoff(after.price), 0.0)
        reward = jnp.where(exercised, self.payoff(state.price), held)
        return StepResult(after, reward, exercised | matured, jnp.zeros((), bool))

    def observe(self, state: OptionState) -> Float[Array, " 2"]:
        """Price and fraction of the periods that has passed."""
        return jnp.stack([state.price, state.time / self.periods]).astype(jnp.float32)
