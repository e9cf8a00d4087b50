"""Hedges from textbooks, as policies that can be evaluated and compared like agents."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from downside.envs._parameters import check_real, real
from downside.envs.actions import clip
from downside.envs.problems.finance import black_scholes
from downside.envs.problems.finance.hedging import Hedging, HedgingState
from downside.envs.registry import make_jax
from downside.envs.rollout import simulate
from downside.risk import AbstractSpectralRisk


def _hedging(env: Any) -> Hedging:
    core = make_jax(env)
    if not isinstance(core, Hedging):
        raise TypeError(
            f"`env` must be the hedging problem, got {env!r}. Pass 'downside/Hedging-v0' or "
            "downside.envs.Hedging(...)."
        )
    return core


class AbstractHedge(eqx.Module):
    """A hedge with the stock that is known in closed form; swaps are not held.

    It has what `ds.evaluate`, `ds.compare` and `ds.evaluate_policy` ask for, and plays the same
    episodes as an agent that is evaluated with the same seed. Positions outside of the limits are
    cut to them; where there are only a few to choose from, the nearest one is taken.
    """

    env: Hedging = eqx.field(converter=_hedging)
    """The problem: a `Hedging`, its id, or a Gymnasium environment over it."""

    @property
    def aligned(self) -> bool:
        """True: the noise of an episode depends on the seed and its number alone."""
        return True

    @abc.abstractmethod
    def position(self, state: HedgingState) -> Float[Array, ""]:
        """The position in the stock."""

    def __call__(
        self, state: HedgingState, accumulated: Any = None, discount: Any = None
    ) -> Float[Array, " k"] | Array:
        """The action in a state of the environment; the memory does not matter."""
        del accumulated, discount
        stock = clip(self.position(state), *self.env.position_range)
        if self.env.num_positions is not None:
            return jnp.argmin(jnp.abs(jnp.asarray(self.env.positions) - stock))
        return jnp.zeros(self.env.num_instruments, stock.dtype).at[0].set(stock)

    def simulate_returns(self, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """The profits of so many episodes, not discounted."""
        key = jax.random.key(seed)
        return simulate(self.env, self, gamma=1.0, episodes=episodes, key=key)[0]

    def price(
        self, risk: AbstractSpectralRisk | str, *, episodes: int = 100_000, seed: int = 1
    ) -> float:
        """The premium at which the seller who hedges like this is indifferent between selling and
        doing nothing, by a risk measure: as `agent.price`."""
        return self.env.indifference_price(self.simulate_returns(episodes, seed), risk)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """The action for an observation or for each of several, as stable-baselines3 returns it."""
        del episode_start, deterministic, action_masks
        observations = np.asarray(observation, np.float32)
        shape = self.env.observation_space.shape
        if observations.shape[-1:] != shape or observations.ndim > 2:
            raise ValueError(
                f"`observation` must have shape {shape} or (n, {shape[0]}), got "
                f"{observations.shape}. It is an observation of the hedging problem."
            )
        rows = np.atleast_2d(observations)
        actions = np.asarray(_actions(self, rows))
        return (actions[0] if observations.ndim == 1 else actions), state


@jax.jit
def _actions(hedge: AbstractHedge, rows: Float[Array, "n d"]) -> Array:
    return jax.vmap(lambda row: hedge(hedge.env.recover(row)))(rows)


class NoHedge(AbstractHedge):
    """Holds nothing."""

    def position(self, state: HedgingState) -> Float[Array, ""]:
        """0."""
        return jnp.zeros_like(state.price)


class BlackScholesDelta(AbstractHedge):
    r"""Holds the delta of Black and Scholes, $\partial C/\partial S$, as if trading were free.

    The variance until maturity is $\sigma^2 (T - t)$; in Heston's model it is its expectation.
    """

    def position(self, state: HedgingState) -> Float[Array, ""]:
        """The delta."""
        return _delta(self.env, state, state.price)


class LelandDelta(AbstractHedge):
    r"""Holds the delta at Leland's volatility, which contains the costs of following it.

    $\hat\sigma^2 = \sigma^2 (1 + \sqrt{8/\pi}\, c / (\sigma\sqrt{\Delta t}))$ with the cost $c$ of
    one trade per value traded and the time $\Delta t$ between trades (Leland 1985, with his $k$,
    the cost of buying and selling, equal to $2c$). The fixed cost is left out.
    """

    def position(self, state: HedgingState) -> Float[Array, ""]:
        """The delta at the higher volatility."""
        env = self.env
        step = env.annual_volatility * math.sqrt(env.dt)
        more = 1.0 + math.sqrt(8.0 / math.pi) * env.cost / step if step else 1.0
        return _delta(env, state, state.price, math.sqrt(more))


class DeltaBand(AbstractHedge):
    """Leaves the position alone within a band around the delta, and goes to its edge from outside.

    With a half-width of 0 it is the delta itself.
    """

    half_width: float = real(0.02)
    """Half of the width of the band, at least 0."""

    def __check_init__(self):
        check_real("half_width", self.half_width, "It is in units of the stock.", least=0.0)

    def position(self, state: HedgingState) -> Float[Array, ""]:
        """The position that is nearest to the one held."""
        delta = _delta(self.env, state, state.price)
        return clip(state.positions[0], delta - self.half_width, delta + self.half_width)


class WhalleyWilmottBand(AbstractHedge):
    r"""A band around the delta that is as wide as small costs are worth to an exponential utility.

    $\Delta \pm (\tfrac{3}{2}\, c\, S\, \Gamma^2 / \lambda)^{1/3}$ with the cost $c$ per value
    traded and $\lambda$ = `risk_aversion` (Whalley and Wilmott 1997, without interest). Outside of
    the band it goes to its edge.
    """

    risk_aversion: float = real(1.0)
    """Risk aversion λ of the utility -exp(-λ x), above 0."""

    def __check_init__(self):
        check_real("risk_aversion", self.risk_aversion, "Larger is a narrower band.", above=0.0)

    def position(self, state: HedgingState) -> Float[Array, ""]:
        """The position that is nearest to the one held."""
        price = state.price
        delta, gamma = jax.value_and_grad(lambda spot: _delta(self.env, state, spot))(price)
        width = jnp.cbrt(1.5 * self.env.cost * price * gamma**2 / self.risk_aversion)
        return clip(state.positions[0], delta - width, delta + width)


def _delta(
    env: Hedging, state: HedgingState, spot: Float[Array, ""], factor: float = 1.0
) -> Float[Array, ""]:
    """With a volatility that is so many times that of the problem."""
    step = factor * env.annual_volatility * math.sqrt(env.dt)
    deviation = factor * jnp.sqrt(env.expected_variance(state))
    return black_scholes.delta(env.option, spot, state.highest, env.strike, deviation, step)
