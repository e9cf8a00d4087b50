"""Episodes of a policy, many at a time, until all of them are over."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.envs import AbstractJaxEnv

Act = Callable[[Float[Array, " d"], Bool[Array, " A"], Key[Array, ""]], Int[Array, ""]]
"""(observation, legal actions, key) -> action."""


def greedy_returns(
    env: AbstractJaxEnv,
    act: Act,
    *,
    gamma: float,
    horizon: int,
    episodes: int,
    key: Key[Array, ""],
) -> Float[Array, " n"]:
    """The discounted returns of so many episodes.

    The noise of an episode depends on the key and its number alone, not on what is done: two
    policies with one key meet the same noise, episode by episode.
    """
    starts = jax.random.split(stream(key, "start"), episodes)
    states = jax.vmap(env.initial_state)(starts)

    def running(carry: tuple) -> Bool[Array, ""]:
        _, _, alive, time = carry
        return jnp.any(alive) & (time < horizon)

    def step(carry: tuple) -> tuple:
        states, returns, alive, time = carry
        keys = jax.random.split(stream(key, "time", time), episodes)
        action_keys = jax.random.split(stream(key, "act", time), episodes)
        masks = jax.vmap(env.action_mask)(states)
        actions = jax.vmap(act)(jax.vmap(env.observe)(states), masks, action_keys)
        after = jax.vmap(env.step)(keys, states, actions)
        returns = returns + jnp.where(alive, gamma**time * after.reward, 0.0)
        alive = alive & ~after.terminated & ~after.truncated
        return after.state, returns, alive, time + 1

    first = (states, jnp.zeros(episodes), jnp.ones(episodes, bool), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(running, step, first)[1]


def random_legal(key: Key[Array, ""], masks: Bool[Array, "*batch A"]) -> Int[Array, "*batch"]:
    """A legal action at random, for each mask."""
    return jax.random.categorical(key, jnp.where(masks, 0.0, -jnp.inf), axis=-1)
