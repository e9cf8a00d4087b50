"""Episodes of a policy as lists of time steps.

A time step holds what Theorem 2 needs: the accumulated reward s, the discount so far c, and the
state by which a source looks up the return distribution.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.envs import AbstractJaxEnv, Memory
from downside.envs.actions import clip
from downside.envs.gymnasium.rollout import Situation, play_episodes
from downside.envs.rollout import AugmentedPolicy, unroll

MAX_STEPS = 5_000
"""Steps after which an episode is cut."""

_GRID = 11
"""Points of a grid of continuous actions in one dimension."""
_MOST_ALTERNATIVES = 30
"""Of a continuous action of several dimensions, about."""

Action = int | tuple[float, ...]
"""The number of a discrete action, or the coordinates of a continuous one."""


class TimeStep(NamedTuple):
    """One time step of an episode."""

    time: int
    """Number of decisions before it."""
    observation: Float[np.ndarray, " d"]
    """What the environment shows, flattened."""
    accumulated: float
    """s: the discounted reward so far."""
    discount_so_far: float
    """c: the discount of the next reward."""
    action: Action | None
    """What the policy does; None where the episode has terminated."""
    reward: float | None
    """The reward of that action; None at the end of an episode."""
    legal: Bool[np.ndarray, " A"] | None
    """Which discrete actions are allowed; None for all of them."""
    state: Any
    """By which the source looks up the return distribution."""


def record_trajectories(
    envs: Sequence[gym.Env],
    seeds: Sequence[int],
    act: Callable[[Situation, list[Any]], Any],
    state_of: Callable[[gym.Env, Any], Any],
    *,
    gamma: float,
    appended: int,
) -> list[list[TimeStep]]:
    """Plays one episode for each seed, side by side in copies of an environment.

    Arguments:
        envs: copies of the environment, as the policy wants to see it.
        seeds: of the episodes.
        act: the action of each copy, from the situation and the states.
        state_of: from a copy and its observation to the state of the time step.
        gamma: the discount factor.
        appended: how many numbers at the end of an observation come from the agent's memory.
    """
    trajectories: list[list[TimeStep]] = []
    for begin in range(0, len(seeds), len(envs)):
        part = seeds[begin : begin + len(envs)]
        recorder = _Recorder(envs, len(part), act, state_of, appended)
        play_episodes(envs, part, recorder.act, recorder.visit, gamma=gamma, max_steps=MAX_STEPS)
        trajectories += recorder.trajectories
    return trajectories


class _Recorder:
    """Collects the time steps of episodes that are played side by side."""

    def __init__(self, envs: Sequence[gym.Env], count: int, act: Any, state_of: Any, appended: int):
        self.trajectories: list[list[TimeStep]] = [[] for _ in range(count)]
        self._envs, self._act, self._state_of = envs, act, state_of
        self._appended = appended
        self._states: list[Any] = []
        self._open = np.ones(count, bool)
        """Which episodes still lack their last time step."""

    def act(self, now: Situation) -> list[Any]:
        """The actions of all copies, as environments take them."""
        self._states = [
            self._state_of(env, observation)
            for env, observation in zip(self._envs, now.observations, strict=False)
        ]
        actions = np.asarray(self._act(now, self._states))
        return actions.tolist() if actions.ndim == 1 else list(actions)

    def visit(self, now: Situation, actions: list[Any] | None) -> None:
        """Adds a time step to each episode, and its reward to the one before."""
        if actions is None:  # a truncated episode would go on, so its last action counts
            actions = self.act(now)
        for i in np.flatnonzero(self._open).tolist():
            steps = self.trajectories[i]
            if steps:
                steps[-1] = steps[-1]._replace(reward=float(now.rewards[i]))
            flat = np.asarray(now.observations[i], dtype=float).ravel()
            steps.append(
                TimeStep(
                    time=now.time,
                    observation=flat[: flat.size - self._appended],
                    accumulated=float(now.memory.accumulated[i]),
                    discount_so_far=float(now.memory.discount_so_far[i]),
                    action=None if now.terminated[i] else plain_action(actions[i]),
                    reward=None,
                    legal=None if now.masks is None else now.masks[i],
                    state=self._states[i],
                )
            )
        self._open = now.running


def simulate_trajectories(
    env: AbstractJaxEnv,
    policy: AugmentedPolicy,
    key: Key[Array, ""],
    count: int,
    *,
    gamma: float,
) -> list[list[TimeStep]]:
    """So many episodes of a JAX environment whose episodes all terminate, compiled: for checks,
    which need no rewards. What the environment shows at the end is left as it was before."""
    record = jax.device_get(_simulated(env, policy, key, count, gamma))
    states, memory, actions, masks, observations, end, running = record
    lengths = running.sum(axis=0)
    trajectories = []
    for i, length in enumerate(lengths.tolist()):
        steps = []
        for time in range(length + 1):
            over, last = time == length, min(time, length - 1)
            now = [values[i] for values in end] if over else [rows[time, i] for rows in memory]
            steps.append(
                TimeStep(
                    time=time,
                    observation=np.asarray(observations[last, i], dtype=float),
                    accumulated=float(now[0]),
                    discount_so_far=float(now[1]),
                    action=None if over else plain_action(actions[time, i].tolist()),
                    reward=None,
                    legal=masks[last, i] if env.num_actions else None,
                    state=jax.tree.map(lambda leaf, t=last, i=i: leaf[t, i], states),
                )
            )
        trajectories.append(steps)
    return trajectories


@eqx.filter_jit
def _simulated(
    env: AbstractJaxEnv, policy: AugmentedPolicy, key: Key[Array, ""], count: int, gamma: float
) -> tuple:
    assert env.horizon is not None

    def act(states: Any, memory: Memory, time: Int[Array, ""]) -> tuple[Array, Any]:
        del time
        actions = legal_actions(env, policy, states, memory)
        masks, observations = jax.vmap(env.action_mask)(states), jax.vmap(env.observe)(states)
        return actions, (states, memory, actions, masks, observations)

    end, records, running = unroll(
        env,
        act,
        jax.vmap(env.initial_state)(jax.random.split(stream(key, "start"), count)),
        lambda time: jax.vmap(env.sample_noise)(jax.random.split(stream(key, "time", time), count)),
        gamma=gamma,
        horizon=env.horizon,
    )
    return (*records, end, running)


def legal_actions(
    env: AbstractJaxEnv, policy: AugmentedPolicy, states: Any, memory: Memory
) -> Array:
    """What the policy does; of continuous actions, the legal one that comes of it."""
    actions = jax.vmap(policy)(states, *memory)
    if env.num_actions:
        return actions
    return clip(actions, *jax.vmap(env.action_bounds)(states))


def plain_action(action: Any) -> Action:
    """An action in plain types."""
    return action if isinstance(action, int) else tuple(np.asarray(action, float).tolist())


def grid_through(
    action: tuple[float, ...], low: Float[np.ndarray, " k"], high: Float[np.ndarray, " k"]
) -> list[tuple[float, ...]]:
    """The action, and along each dimension points from the lowest to the highest legal one, with
    the other dimensions held. In one dimension in order; otherwise the action comes first."""
    size = len(action)
    count = _GRID if size == 1 else max(3, min(7, _MOST_ALTERNATIVES // size))
    grid: list[tuple[float, ...]] = []
    for i, (bottom, top) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        near = 0.25 * (top - bottom) / (count - 1)
        for point in np.linspace(bottom, top, count).tolist():
            if top > bottom and abs(point - action[i]) > near:
                grid.append((*action[:i], point, *action[i + 1 :]))
    return sorted([action, *grid]) if size == 1 else [action, *grid]
