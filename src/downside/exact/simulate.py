"""Running a policy on fresh noise: the honest value of a plan."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from downside.envs import AbstractJaxEnv

AugmentedPolicy = Callable[[Any, Float[Array, ""], Float[Array, ""]], Int[Array, ""]]
"""(state of the environment, accumulated reward s, discount so far c) -> action."""

_BATCH = 50_000


def simulate(
    env: AbstractJaxEnv,
    policy: AugmentedPolicy,
    *,
    gamma: float,
    episodes: int,
    key: Key[Array, ""],
    horizon: int | None = None,
    track: Callable[[Any, Float[Array, ""]], Float[Array, " m"]] | None = None,
) -> tuple[Float[np.ndarray, " episodes"], Float[np.ndarray, "episodes m"]]:
    """The discounted returns of independent episodes, in batches that fit into memory.

    With them come the largest values of `track` (of the state and the accumulated reward) along
    each episode. Episodes are cut after `horizon` steps: by default that of the environment.
    """
    track = _nothing if track is None else track
    horizon = env.horizon if horizon is None else horizon
    if horizon is None:
        raise ValueError("`env` must have a horizon to be simulated to its end, got None.")
    out = []
    for i, done in enumerate(range(0, episodes, _BATCH)):
        keys = jax.random.split(jax.random.fold_in(key, i), _BATCH)
        returns, largest = _batch(env, policy, gamma, horizon, track, keys)
        size = min(_BATCH, episodes - done)
        out.append((np.asarray(returns, float)[:size], np.asarray(largest, float)[:size]))
    returns, largest = zip(*out, strict=True)
    return np.concatenate(returns), np.concatenate(largest)


def _nothing(state: Any, accumulated: Array) -> Float[Array, " m"]:
    del state, accumulated
    return jnp.zeros(1)


@eqx.filter_jit
def _batch(
    env: AbstractJaxEnv,
    policy: Any,
    gamma: float,
    horizon: int,
    track: Callable[[Any, Array], Array],
    keys: Key[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, "n m"]]:
    def begin(key: Key[Array, ""]):
        state = env.initial_state(key)
        nothing = jnp.zeros(())
        return state, nothing, jnp.ones(()), jnp.ones((), bool), track(state, nothing)

    def step(carry: Any, key: Key[Array, ""]):
        state, accumulated, discount, alive, largest = carry
        action = policy(state, accumulated, discount)
        after = env.transition(state, action, env.sample_noise(key))
        accumulated = accumulated + jnp.where(alive, discount * after.reward, 0.0)
        seen = jnp.where(alive, track(after.state, accumulated), largest)
        largest = jnp.maximum(largest, seen)
        alive = alive & ~after.terminated & ~after.truncated
        return after.state, accumulated, gamma * discount, alive, largest

    by_time = jax.vmap(lambda key: jax.random.split(key, horizon), out_axes=1)(keys)
    carry, _ = jax.lax.scan(
        lambda carry, keys: (jax.vmap(step)(carry, keys), None), jax.vmap(begin)(keys), by_time
    )
    return carry[1], carry[4]
