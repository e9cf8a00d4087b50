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
from downside.train.backends.jax.backend import GreedyPolicy
from downside.train.backends.state import measuring_horizon

EPISODES = 1_000
"""Episodes of each policy, under the same noise for all."""
_WORST = 5
_MOST_STEPS = 60
"""Steps of a chart; longer episodes are thinned out."""
_MOST_ACTIONS = 6
"""Kinds of an unordered action, and coordinates of a continuous one."""


class PlayedEpisodes(NamedTuple):
    """Episodes of a policy, step by step."""

    accumulated: Float[np.ndarray, "S n"]
    """What was earned before each step, and at the end."""
    actions: np.ndarray
    """Numbers of discrete actions, or coordinates along the last axis."""
    running: Bool[np.ndarray, "T n"]


def play_together(agents: Sequence[Agent], seed: int) -> list[PlayedEpisodes] | None:
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
        played.append(PlayedEpisodes(np.concatenate([before, final[None]]), actions, running))
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
    kinds = _kinds(played, env.num_actions) if env.num_actions and points is None else None
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
                **(
                    _quantiles(each, kept, points, names)
                    if kinds is None
                    else _shares(each, kept, kinds, names, env.num_actions)
                ),
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


def _kinds(played: Sequence[PlayedEpisodes], num_actions: int) -> list[int]:
    """The actions that are taken most, of all policies together; the others have one share."""
    taken = np.concatenate([each.actions[each.running] for each in played])
    counts = np.bincount(taken, minlength=num_actions)
    most = num_actions if num_actions <= _MOST_ACTIONS else _MOST_ACTIONS - 1
    return sorted(np.argsort(-counts, kind="stable")[:most].tolist())


def _shares(
    played: PlayedEpisodes, kept: list[int], kinds: list[int], names: Names, num_actions: int
) -> dict[str, Any]:
    """The share of each unordered action by step."""
    rows = []
    for time in kept:
        taken = played.actions[time][played.running[time]]
        rows.append([_short(np.mean(taken == action)) for action in kinds])
    shown = [names.action(action) for action in kinds]
    if len(kinds) < num_actions:
        rows = [[*row, _short(max(0.0, 1.0 - sum(row)))] for row in rows]
        shown.append("other actions")
    return {"shares": rows, "shareNames": shown}


def _quantiles(
    played: PlayedEpisodes, kept: list[int], points: np.ndarray | None, names: Names
) -> dict[str, Any]:
    """Quantiles of each coordinate of an action by step."""
    values = played.actions if points is None else points[played.actions]
    size = min(values.shape[-1], _MOST_ACTIONS)
    coordinates = names.coordinates or tuple(f"action {i + 1}" for i in range(size))
    ranks = [0.05, 0.25, 0.5, 0.75, 0.95]
    quantiles = [
        [
            [_short(q) for q in np.quantile(values[time, played.running[time], i], ranks)]
            for time in kept
        ]
        for i in range(size)
    ]
    return {"quantiles": quantiles, "quantileNames": [str(name) for name in coordinates[:size]]}


def _short(value: Any) -> float:
    number = float(value)
    return float(f"{number:.4g}") if math.isfinite(number) else 0.0
