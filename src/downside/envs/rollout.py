"""Episodes of a policy in JAX environments: the only loops over them that there are.

- `rollout`: any number of episodes, compiled.
- `unroll`: the same for a fixed number of steps, which can be differentiated; `unroll_segment`
  where they may go on after it.
- `simulate`: the returns of many episodes, in batches that fit into memory.

Each keeps the memory (s, c) of every episode. `gymnasium/rollout.py` has the same for Gymnasium
environments.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.envs.core import AbstractJaxEnv
from downside.envs.faults import named_faults, ready
from downside.envs.memory import Memory
from downside.envs.memory_env import initial_memory

Act = Callable[[Any, Memory, Int[Array, ""]], Any]
"""(states, memories, time) -> actions, of a whole batch of episodes."""


class Rollout(NamedTuple):
    """Where a batch of episodes ended."""

    memory: Memory
    """(s, c) of each episode after its last reward: s is its discounted return."""
    steps: Int[Array, ""]
    """Environment steps of all episodes together."""
    largest: Float[Array, "n m"] | None
    """The largest values of `track` along each episode."""


def rollout(
    env: AbstractJaxEnv,
    act: Act,
    states: Any,
    step_keys: Callable[[Int[Array, ""]], Key[Array, " n"]],
    *,
    gamma: float,
    horizon: int,
    track: Callable[[Any, Float[Array, ""]], Float[Array, " m"]] | None = None,
) -> Rollout:
    """Runs a batch of episodes on from `states` until all are over, or for `horizon` steps.

    Arguments:
        env: the environment.
        act: the policy, on the whole batch.
        states: where the episodes begin, stacked.
        step_keys: from the time to a key for the noise of each episode. Keys that depend on
            nothing else give two policies the same noise.
        gamma: the discount factor.
        horizon: the largest number of steps.
        track: of the state and the accumulated reward of one episode.
    """
    count = jax.tree.leaves(states)[0].shape[0]
    memory = jax.tree.map(lambda number: jnp.broadcast_to(number, (count,)), initial_memory())
    largest = None if track is None else jax.vmap(track)(states, memory.accumulated)

    def running(carry: tuple) -> Bool[Array, ""]:
        _, _, alive, _, _, time = carry
        return jnp.any(alive) & (time < horizon)

    def step(carry: tuple) -> tuple:
        states, memory, alive, steps, largest, time = carry
        actions = act(states, memory, time)
        result = jax.vmap(env.step)(step_keys(time), states, actions)
        after = memory.update(jnp.where(alive, result.reward, 0.0), jnp.where(alive, gamma, 1.0))
        if track is not None:
            tracked = jax.vmap(track)(result.state, after.accumulated)
            largest = jnp.where(alive[:, None], jnp.maximum(largest, tracked), largest)
        steps = steps + alive.sum()
        alive = alive & ~result.terminated & ~result.truncated
        return result.state, after, alive, steps, largest, time + 1

    zero = jnp.zeros((), jnp.int32)
    first = (states, memory, jnp.ones(count, bool), zero, largest, zero)
    _, memory, _, steps, largest, _ = jax.lax.while_loop(running, step, first)
    return Rollout(memory, steps, largest)


class Segment(NamedTuple):
    """A batch of episodes after some steps."""

    states: Any
    """Where they are; those that are over stand where they began."""
    memory: Memory
    """(s, c) of each."""
    running: Bool[Array, " n"]
    """Which ones are not over."""
    records: Any
    """What the policy recorded, stacked along the time."""
    were_running: Bool[Array, "T n"]
    """Which episodes were running at each time."""


def unroll(
    env: AbstractJaxEnv,
    act: Callable[[Any, Memory, Int[Array, ""]], tuple[Any, Any]],
    states: Any,
    noise: Callable[[Int[Array, ""]], Any],
    *,
    gamma: float,
    horizon: int,
    memory: Memory | None = None,
    running: Bool[Array, " n"] | None = None,
    remember: bool = True,
) -> tuple[Memory, Any, Bool[Array, "T n"]]:
    """Runs a batch of episodes for `horizon` steps; differentiable in the actions.

    An episode that ends earlier earns nothing more, and nothing flows back from after its end.

    Arguments:
        env: the environment.
        act: the policy, on the whole batch: actions, and what to record of this step.
        states: where the episodes begin, stacked.
        noise: from the time to the noise of each episode, stacked.
        gamma: the discount factor.
        horizon: the number of steps.
        memory: of each episode at the beginning; by default (0, 1).
        running: which episodes are still running then; by default all.
        remember: whether to keep what the gradient needs of each step. If not, it is computed
            again: less memory, a third more time.

    Returns:
        (s, c) of each episode at the end; the records, stacked along the time; and which episodes
        were running at each time.
    """
    segment = unroll_segment(
        env,
        act,
        states,
        noise,
        gamma=gamma,
        steps=horizon,
        memory=memory,
        running=running,
        remember=remember,
    )
    return segment.memory, segment.records, segment.were_running


def unroll_segment(
    env: AbstractJaxEnv,
    act: Callable[[Any, Memory, Int[Array, ""]], tuple[Any, Any]],
    states: Any,
    noise: Callable[[Int[Array, ""]], Any],
    *,
    gamma: float,
    steps: int,
    memory: Memory | None = None,
    running: Bool[Array, " n"] | None = None,
    remember: bool = True,
) -> Segment:
    """As `unroll`, for some `steps` of episodes that may go on after them."""
    count = jax.tree.leaves(states)[0].shape[0]
    start = jax.tree.map(lambda number: jnp.broadcast_to(number, (count,)), initial_memory())
    start = start if memory is None else memory
    running = jnp.ones(count, bool) if running is None else running

    def step(carry: tuple, time: Int[Array, ""]) -> tuple[tuple, Any]:
        now, memory, running = carry
        actions, record = act(now, memory, time)
        result = jax.vmap(env.transition)(now, actions, noise(time))
        memory = memory.update(
            jnp.where(running, result.reward, 0.0), jnp.where(running, gamma, 1.0)
        )
        goes_on = running & ~result.terminated & ~result.truncated
        # Beyond its end an episode stands at its start, where derivatives are finite.
        after = (where_rows(goes_on, result.state, states), memory, goes_on)
        return after, (record, running)

    body = step if remember else jax.checkpoint(step)
    first = (states, start, running)
    (now, final, goes_on), (records, were_running) = jax.lax.scan(body, first, jnp.arange(steps))
    return Segment(now, final, goes_on, records, were_running)


def where_rows(condition: Bool[Array, " n"], new: Any, old: Any) -> Any:
    """The new value of each row where the condition holds, and the old one elsewhere."""

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(condition.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(choose, new, old)


def mirrored_noises(env: AbstractJaxEnv, key: Key[Array, ""], count: int) -> Any:
    """The noise of so many episodes at one time step: in pairs that mirror each other if the
    environment has mirrored noise, otherwise independent."""
    half = (count + 1) // 2
    noise = jax.vmap(env.sample_noise)(jax.random.split(key, half))
    mirrored = jax.vmap(env.mirrored)(noise)
    if mirrored is None:
        return jax.vmap(env.sample_noise)(jax.random.split(key, count))
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b])[:count], noise, mirrored)


def play(
    env: AbstractJaxEnv,
    act: Act,
    *,
    gamma: float,
    horizon: int,
    episodes: int,
    key: Key[Array, ""],
) -> Rollout:
    """So many new episodes.

    The noise of an episode depends on the key and its number alone, not on what is done.
    """
    starts = jax.random.split(stream(key, "start"), episodes)
    return rollout(
        env,
        act,
        jax.vmap(env.initial_state)(starts),
        lambda time: jax.random.split(stream(key, "time", time), episodes),
        gamma=gamma,
        horizon=horizon,
    )


def random_legal(key: Key[Array, ""], masks: Bool[Array, "*batch A"]) -> Int[Array, "*batch"]:
    """A legal action at random, for each mask."""
    return jax.random.categorical(key, jnp.where(masks, 0.0, -jnp.inf), axis=-1)


def random_actions(env: AbstractJaxEnv, states: Any, key: Key[Array, ""]) -> Any:
    """A legal action at random in each state: of a box, uniformly."""
    if env.num_actions:
        masks = jax.vmap(env.action_mask)(states)
        return jax.vmap(random_legal)(jax.random.split(key, masks.shape[0]), masks)
    low, high = jax.vmap(env.action_bounds)(states)
    return low + (high - low) * jax.random.uniform(key, low.shape)


def random_episodes(
    env: AbstractJaxEnv, key: Key[Array, ""], *, gamma: float, horizon: int, episodes: int
) -> Rollout:
    """So many new episodes of random play."""

    def act(states: Any, memory: Memory, time: Int[Array, ""]) -> Any:
        del memory
        return random_actions(env, states, stream(key, "act", time))

    return play(env, act, gamma=gamma, horizon=horizon, episodes=episodes, key=key)


AugmentedPolicy = Callable[[Any, Float[Array, ""], Float[Array, ""]], Any]
"""(state of the environment, accumulated reward s, discount so far c) -> action."""

_BATCH, _SMALL_BATCH = 50_000, 10_000
"""Episodes that are simulated at a time; in all, two sizes are compiled."""


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

    With them come the largest values of `track` along each episode. Episodes are cut after
    `horizon` steps: by default that of the environment. Every episode has a key of its own.
    """
    horizon = env.horizon if horizon is None else horizon
    if horizon is None:
        raise ValueError("`env` must have a horizon to be simulated to its end, got None.")
    batches, most = [], _BATCH if episodes > _SMALL_BATCH else min(_BATCH, _SMALL_BATCH)
    for i, done in enumerate(range(0, episodes, most)):
        keys = jax.random.split(jax.random.fold_in(key, i), most)
        with named_faults():
            batch = _simulate_batch(env, policy, gamma, horizon, track, keys)
            returns, largest = ready(batch)
        size = min(most, episodes - done)
        batches.append((np.asarray(returns, float)[:size], np.asarray(largest, float)[:size]))
    returns, largest = zip(*batches, strict=True)
    return np.concatenate(returns), np.concatenate(largest)


@eqx.filter_jit
def _simulate_batch(
    env: AbstractJaxEnv,
    policy: Any,
    gamma: float,
    horizon: int,
    track: Any,
    keys: Key[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, "n m"]]:
    by_time = jax.vmap(lambda key: jax.random.split(key, horizon), out_axes=1)(keys)
    result = rollout(
        env,
        lambda states, memory, _: jax.vmap(policy)(states, *memory),
        jax.vmap(env.initial_state)(keys),
        lambda time: by_time[time],
        gamma=gamma,
        horizon=horizon,
        track=track,
    )
    largest = jnp.zeros((keys.shape[0], 1)) if result.largest is None else result.largest
    return result.memory.accumulated, largest
