"""Return distributions by simulation: the policy is run on from every time step many times."""

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.envs import AbstractJaxEnv, GymnasiumEnv, Memory
from downside.envs.gymnasium.rollout import Situation
from downside.envs.rollout import AugmentedPolicy, rollout, simulate
from downside.explanation.names import names_of
from downside.explanation.sources import JAX_COPIES, AbstractSource
from downside.explanation.trajectory import (
    Action,
    TimeStep,
    grid_through,
    legal_actions,
    plain_action,
    record_trajectories,
    simulate_trajectories,
)
from downside.risk import AbstractSpectralRisk, Distribution
from downside.train.backends.state import measuring_horizon

START_EPISODES = 50_000
"""Simulated episodes behind the return seen from the start."""
_CONTINUATIONS = 2_000
"""Simulated continuations of a time step."""
_START_VALUES = 2_000
_START_LEVELS = 200
"""Fewer for a continuous spectrum, which has a level for each value."""
CONTINUATIONS_AT_A_TIME = 100
_BATCH = 256
"""Time steps that are continued at a time: always as many, so that little is compiled."""
_FRESH_EPISODES = 20_000
_FRESH_SEED = 2_000_000
"""No other episodes use it."""
_CHOICES = 1_000_000
"""The noise of alternatives in the checks is numbered from here on."""


@final
class SimulatedSource(AbstractSource):
    """A policy in a JAX environment, run on from every time step many times.

    For plans on a grid, and for the true return distributions of an agent.
    """

    kind = "simulated"

    def __init__(
        self,
        env: AbstractJaxEnv,
        policy: AugmentedPolicy,
        returns: Float[np.ndarray, " n"],
        *,
        risk: AbstractSpectralRisk,
        gamma: float,
        label: str,
        note: str = "",
        predicted: Callable[[Sequence[TimeStep]], Distribution] | None = None,
    ):
        self._env, self._policy, self.label = env, policy, label
        self.risk, self.gamma, self.note = risk, gamma, note
        self._predicted = predicted
        self.names = names_of(env)
        self._copies = [GymnasiumEnv(core=env) for _ in range(JAX_COPIES)]
        self._returns = np.sort(np.asarray(returns, dtype=float))
        self.resolution = 1.0 / math.sqrt(len(self._returns))  # two standard errors of a level
        self._continuations, self._key = _CONTINUATIONS, stream(jax.random.key(0), "futures")
        self._horizon = measuring_horizon(env, gamma)

    def with_continuations(self, count: int) -> "SimulatedSource":
        """The same source with another number of continuations: a multiple of
        `CONTINUATIONS_AT_A_TIME`."""
        twin = copy.copy(self)
        twin._continuations = count
        return twin

    def trajectories(self, seeds: Sequence[int]) -> list[list[TimeStep]]:
        """Episodes of the policy."""
        return record_trajectories(
            self.copies(len(seeds)),
            seeds,
            self.act,
            lambda env, _: jax.device_get(env.unwrapped.state),  # pyright: ignore
            gamma=self.gamma,
            appended=0,
        )

    def checked_trajectories(self, seeds: Sequence[int]) -> list[list[TimeStep]]:
        """Compiled where episodes terminate."""
        if not self._env.bounded:
            return self.trajectories(seeds)
        key, count = jax.random.key(seeds[0]), len(seeds)
        return simulate_trajectories(self._env, self._policy, key, count, gamma=self.gamma)

    def copies(self, count: int) -> list[GymnasiumEnv]:
        """Environments to play so many episodes in, at most `JAX_COPIES`."""
        return self._copies[:count]

    def act(self, now: Situation, states: list[Any]) -> np.ndarray:
        """The actions of the policy."""
        rows = np.minimum(np.arange(JAX_COPIES), len(states) - 1)  # one shape is compiled
        memory = Memory(*(jnp.asarray(values[rows], float) for values in now.memory))
        stacked = _stack([states[row] for row in rows])
        return np.asarray(_actions(self._env, self._policy, stacked, memory))[: len(states)]

    def action_at(self, step: TimeStep) -> Action:
        """What the policy does at a step, which may be that of another policy."""
        states = _stack([step.state] * JAX_COPIES)
        memory = Memory(
            jnp.full(JAX_COPIES, step.accumulated, float),
            jnp.full(JAX_COPIES, step.discount_so_far, float),
        )
        actions = np.asarray(_actions(self._env, self._policy, states, memory))
        return plain_action(actions[0].tolist())

    def start_returns(self, first: Sequence[TimeStep]) -> Distribution:
        """Of many episodes; very many are summarised by equally likely quantiles."""
        del first
        most = _START_VALUES if self.risk.is_finite_mixture else _START_LEVELS
        returns = self._returns.astype(np.float32)  # as simulated: equal totals differ by rounding
        if len(returns) <= most:
            return Distribution(returns)
        ranks = (np.arange(most) + 0.5) / most
        return Distribution(np.quantile(returns, ranks, method="inverted_cdf"))

    def fresh_returns(self) -> Float[np.ndarray, " n"]:
        """Of other episodes than the ones behind the return seen from the start."""
        return simulated_returns(
            self._env, self._policy, gamma=self.gamma, episodes=_FRESH_EPISODES, seed=_FRESH_SEED
        )

    def predicted_returns(self, first: Sequence[TimeStep]) -> Distribution | None:
        """What an agent's networks say about the start."""
        return None if self._predicted is None else self._predicted(first)

    def returns(self, steps: Sequence[TimeStep]) -> Distribution:
        """Each step has separate noise, so that errors average out over steps."""
        nothing: Any = 0 if self._env.num_actions else (0.0,) * self._env.action_space.shape[0]  # pyright: ignore
        actions = [nothing if step.action is None else step.action for step in steps]
        returns = self._continue(steps, actions, np.arange(len(steps)))
        over = np.array([step.action is None for step in steps])
        return Distribution(np.where(over[:, None], 0.0, returns))

    def returns_by_action(self, step: TimeStep) -> tuple[list[Action], Distribution]:
        """Every action that is allowed, or a grid through a continuous one, under common noise."""
        actions = self._alternatives(step)
        returns = self._continue([step] * len(actions), actions, np.zeros(len(actions), int))
        return actions, Distribution(returns)

    def returns_of_alternatives(
        self, steps: Sequence[TimeStep]
    ) -> list[tuple[list[Action], Float[np.ndarray, "_ n"]]]:
        """As `returns_by_action`, of many steps at once, each with separate noise."""
        actions = [self._alternatives(step) for step in steps]
        sizes = [len(alternatives) for alternatives in actions]
        repeated = [step for step, size in zip(steps, sizes, strict=True) for _ in range(size)]
        numbers = np.repeat(_CHOICES + np.arange(len(steps)), sizes)
        returns = self._continue(repeated, list(itertools.chain(*actions)), numbers)
        parts = np.split(returns, np.cumsum(sizes)[:-1])
        return list(zip(actions, parts, strict=True))

    def _alternatives(self, step: TimeStep) -> list[Action]:
        """The actions to compare at a step, the one that is taken among them."""
        if isinstance(step.action, tuple):
            bounds = _bounds(self._env, step.state)
            low, high = (np.asarray(bound, dtype=float) for bound in bounds)
            return list[Action](grid_through(step.action, low, high))
        legal = np.ones(self._env.num_actions, bool) if step.legal is None else step.legal
        return [int(action) for action in np.flatnonzero(legal)]

    def _continue(
        self,
        steps: Sequence[TimeStep],
        actions: Sequence[Action],
        numbers: Int[np.ndarray, " m"],
    ) -> Float[np.ndarray, "m n"]:
        """The returns to come after an action at each step; equal numbers have common noise."""
        repeats = self._continuations // CONTINUATIONS_AT_A_TIME
        given = np.asarray(actions, np.int32 if self._env.num_actions else np.float32)
        pairs = np.array([(row, part) for row in range(len(steps)) for part in range(repeats)])
        batches = []
        for begin in range(0, len(pairs), _BATCH):
            rows, parts = pairs[np.minimum(np.arange(begin, begin + _BATCH), len(pairs) - 1)].T
            part = [steps[row] for row in rows]
            returns = _continuations(
                self._env,
                self._policy,
                self.gamma,
                self._horizon,
                CONTINUATIONS_AT_A_TIME,
                _stack([step.state for step in part]),
                Memory(
                    jnp.asarray([step.accumulated for step in part], float),
                    jnp.asarray([step.discount_so_far for step in part], float),
                ),
                jnp.asarray(given[rows]),
                self._key,
                jnp.asarray(np.stack([numbers[rows], parts], axis=1), jnp.int32),
            )
            batches.append(np.asarray(returns, dtype=float))
        return np.concatenate(batches)[: len(pairs)].reshape(len(steps), -1)


def simulated_returns(
    env: AbstractJaxEnv, policy: AugmentedPolicy, *, gamma: float, episodes: int, seed: int
) -> Float[np.ndarray, " n"]:
    """The discounted returns of new episodes of a policy."""
    returns, _ = simulate(
        env,
        policy,
        gamma=gamma,
        episodes=episodes,
        key=jax.random.key(seed),
        horizon=measuring_horizon(env, gamma),
    )
    return returns


def _stack(states: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


@eqx.filter_jit
def _actions(env: AbstractJaxEnv, policy: AugmentedPolicy, states: Any, memory: Memory) -> Array:
    return legal_actions(env, policy, states, memory)


@eqx.filter_jit
def _bounds(env: AbstractJaxEnv, state: Any) -> tuple[Array, Array]:
    return env.action_bounds(state)


@eqx.filter_jit
def _continuations(
    env: AbstractJaxEnv,
    policy: AugmentedPolicy,
    gamma: float,
    horizon: int,
    count: int,
    states: Any,
    memory: Memory,
    actions: Int[Array, " m"] | Float[Array, "m k"],
    key: Key[Array, ""],
    numbers: Int[Array, "m 2"],
) -> Float[Array, "m n"]:
    """The returns to come, discounted to each step, of taking its action and going on, under the
    noise of the key and the numbers."""
    repeat = lambda leaf: jnp.repeat(leaf, count, axis=0)  # noqa: E731
    first, before = repeat(actions), jax.tree.map(repeat, memory)

    def noises(pair: Int[Array, " 2"]) -> Key[Array, " n"]:
        first = jax.random.fold_in(jax.random.fold_in(key, pair[0]), pair[1])
        return jax.random.split(first, count)

    noise = jax.vmap(noises)(numbers).reshape(-1)
    by_time = jax.vmap(lambda key: jax.random.split(key, horizon), out_axes=1)(noise)

    def act(states: Any, since: Memory, time: Int[Array, ""]) -> Array:
        accumulated = before.accumulated + before.discount_so_far * since.accumulated
        discount = before.discount_so_far * since.discount_so_far
        return jnp.where(time == 0, first, jax.vmap(policy)(states, accumulated, discount))

    result = rollout(
        env,
        act,
        jax.tree.map(repeat, states),
        lambda time: by_time[time],
        gamma=gamma,
        horizon=horizon,
    )
    return result.memory.accumulated.reshape(-1, count)
