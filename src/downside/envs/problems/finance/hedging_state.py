"""What changes while an option is hedged, and what the agent sees of it."""

from typing import Any, NamedTuple

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from downside.envs.core import real_array
from downside.envs.memory import LARGEST


class HedgingState(NamedTuple):
    """Where the market is, and what is held against the option."""

    price: Float[Array, ""]
    """Price S of the stock."""
    highest: Float[Array, ""]
    """The highest price so far."""
    variance: Float[Array, ""]
    """Variance V of Heston's model; σ² for a geometric Brownian motion."""
    accrued: Float[Array, ""]
    """Integral of the variance so far."""
    positions: Float[Array, " k"]
    """What is held of each instrument."""
    time: Int[Array, ""]
    """Number of periods that have passed."""


def observation_space(env: Any) -> gym.spaces.Box:
    """The observations of a `Hedging` problem; unbounded sides end at the largest float32."""
    bounds = [(-LARGEST, LARGEST), (0.0, 1.0), env.position_range]
    bounds += [(-LARGEST, LARGEST)] if env.option == "lookback" else []
    bounds += [(0.0, LARGEST)] if env.model == "heston" else []
    bounds += [(0.0, LARGEST), (-1.0, 1.0)] if env.swap else []
    low, high = np.array(bounds, np.float32).T
    return gym.spaces.Box(low, high, dtype=np.float32)


def observe(env: Any, state: HedgingState) -> Float[Array, " d"]:
    """What is seen of a state, in the order of the table in `Hedging`."""
    length = env.typical_move
    parts: list[Any] = [
        jnp.log(state.price / env.strike) / length,
        state.time / env.periods,
        state.positions[0],
    ]
    if env.option == "lookback":
        parts.append(jnp.log(state.highest / env.strike) / length)
    if env.model == "heston":
        parts.append(jnp.sqrt(state.variance / env.long_variance))
    if env.swap:
        expected = env.long_variance * env.maturity
        parts.append(env.instrument_prices(state)[1] / expected)
        parts.append(state.positions[1] / env.max_swaps)
    return jnp.stack(parts).astype(jnp.float32)


def recover(env: Any, observation: Float[Array, " d"]) -> HedgingState:
    """The state that is observed so, as `Hedging.recover` says."""
    length = env.typical_move
    shown = iter(real_array(observation))
    price = env.strike * jnp.exp(length * next(shown))
    time = jnp.round(next(shown) * env.periods).astype(jnp.int32)
    positions = [next(shown)]
    value, accrued = real_array(0.0), real_array(0.0)
    highest, variance = price, real_array(env.annual_volatility**2)
    if env.option == "lookback":
        highest = env.strike * jnp.exp(length * next(shown))
    if env.model == "heston":
        variance = env.long_variance * next(shown) ** 2
    if env.swap:
        value = next(shown) * env.long_variance * env.maturity
        positions.append(next(shown) * env.max_swaps)
    state = HedgingState(price, highest, variance, accrued, jnp.stack(positions), time)
    return state._replace(accrued=value - env.expected_variance(state)) if env.swap else state
