"""What policies do in the same episodes: their actions by step, and their worst episodes."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from downside._random import stream
from downside.agents.actor import ActionHead
from downside.envs import AbstractJaxEnv, Memory
from downside.envs.actions import clip
from downside.envs.rollout import unroll
from downside.explanation.names import Names, names_of
from downside.train import Agent
from downside.train.jax_backend import GreedyPolicy
from downside.train.state import measuring_horizon

EPISODES = 1_000
"""Episodes of each policy, under the same noise for all."""
_WORST = 5
_MOST_STEPS = 60
"""Steps of a chart; longer episodes are thinned out."""
_MOST_ACTIONS = 6
"""Kinds of an unordered action, and coordinates of a continuous one."""


class Played(NamedTuple):
    """Episodes of a policy, step by step."""

    accumulated: Float[np.ndarray, "S n"]
    """What was earned before each step, and at the end."""
    actions: np.ndarray
    """Numbers of discrete actions, or coordinates along the last axis."""
    running: Bool[np.ndarray, "T n"]


def play_together(agents: Sequence[Agent], seed: int) -> list[Played] | None:
    """The same episodes for each agent; None unless their environment is written in JAX."""
    played = []
    for agent in agents:
        env = agent.jax_env
        if env is None:
            return None
        policy = GreedyPolicy(agent.policy.learner, agent.networks, agent.outer_variable, env)
        gamma = agent.settings.gamma
        parts = _play(env, policy, gamma, measuring_horizon(env, gamma), jax.random.key(seed))
        before, final, actions, running = jax.device_get(parts)
        played.append(Played(np.concatenate([before, final[None]]), actions, running))
    return played


@eqx.filter_jit
def _play(env: AbstractJaxEnv, policy: Any, gamma: float, horizon: int, key: Any) -> tuple:
    def act(states: Any, memory: Memory, time: Int[Array, ""]) -> tuple[Array, Any]:
        del time
        actions = jax.vmap(policy)(states, *memory)
        if not env.num_actions:
            actions = clip(actions, *jax.vmap(env.action_bounds)(states))
        return actions, (memory.accumulated, actions)

    end, (accumulated, actions), running = unroll(
        env,
        act,
        jax.vmap(env.initial_state)(jax.random.split(stream(key, "start"), EPISODES)),
        lambda time: jax.vmap(env.sample_noise)(
            jax.random.split(stream(key, "time", time), EPISODES)
        ),
        gamma=gamma,
        horizon=horizon,
    )
    return accumulated, end.accumulated, actions, running


def deeds_data(agents: Sequence[Agent], seed: int = 0) -> list[dict[str, Any]] | None:
    """For the page: of each agent its actions by step and its worst episodes, with what the first
    and the last agent make of the same noise; None if the environment is not written in JAX."""
    played = play_together(agents, seed)
    if played is None:
        return None
    env = agents[0].jax_env
    assert env is not None
    names, (head, _) = names_of(env), ActionHead.of(env)
    points = None if head.grid is None else np.asarray(head.grid)
    first, last = played[0].accumulated[-1], played[-1].accumulated[-1]
    data = []
    for each in played:
        steps = int(each.running.any(axis=1).sum())
        places = np.linspace(0, steps - 1, min(steps, _MOST_STEPS)).tolist()
        kept = sorted({round(place) for place in places})
        times = [*kept, steps]
        totals = each.accumulated[-1]
        worst = np.argsort(totals, kind="stable")[:_WORST]
        data.append(
            {
                "times": times[:-1],
                **_actions(each, kept, points, env.num_actions, names),
                "worst": [
                    {
                        "number": int(i) + 1,
                        "total": _short(totals[i]),
                        "first": _short(first[i]),
                        "last": _short(last[i]),
                        "path": [[time, _short(each.accumulated[time, i])] for time in times],
                    }
                    for i in worst
                ],
                "episodes": EPISODES,
            }
        )
    return data


def _actions(
    played: Played, kept: list[int], points: np.ndarray | None, num_actions: int, names: Names
) -> dict[str, Any]:
    """The action by step: quantiles of each coordinate, or the share of each unordered action."""
    if num_actions and points is None:
        most = min(num_actions, _MOST_ACTIONS)
        shares = [
            [
                _short(float(np.mean(played.actions[time][played.running[time]] == action)))
                for action in range(most)
            ]
            for time in kept
        ]
        return {"shares": shares, "shareNames": [names.action(action) for action in range(most)]}
    values = played.actions if points is None else points[played.actions]
    size = min(values.shape[-1], _MOST_ACTIONS)
    coordinates = names.coordinates or tuple(f"action {i + 1}" for i in range(size))
    quantiles = [
        [
            [
                _short(quantile)
                for quantile in np.quantile(
                    values[time, played.running[time], i], [0.05, 0.25, 0.5, 0.75, 0.95]
                )
            ]
            for time in kept
        ]
        for i in range(size)
    ]
    return {"quantiles": quantiles, "quantileNames": [str(c) for c in coordinates[:size]]}


def _short(value: Any) -> float:
    number = float(value)
    return float(f"{number:.4g}") if math.isfinite(number) else 0.0
