"""What AC-SRM remembers of the last episodes, and what they say of policies."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from downside.agents.lived import AbstractLivedAlgorithm
from downside.train.backends.on_policy.program import RECENT, WINDOW, OnPolicySpec, OnPolicyState
from downside.train.backends.state import BestPolicy

_LEAST_EPISODES = 200
"""So many decide about h at least; those of the last iterations, if they are more."""
_JUDGED = 0.5
"""Share of the run after which policies are judged by their episodes."""
_CLEARLY = 3.0
"""Standard errors by which a policy is clearly worse than the best so far."""


def last_episodes(state: OnPolicyState) -> Float[np.ndarray, "n r"]:
    """The episodes that tell what the present policy earns."""
    count = max(_LEAST_EPISODES, int(state.recent.sum()))
    return (
        state.episodes[-min(count, int(state.ended), WINDOW) :]
        if int(state.ended)
        else (state.episodes[:0])
    )


def add_episodes(state: OnPolicyState, rows: Float[np.ndarray, "k r"]) -> OnPolicyState:
    """With the episodes of one more iteration."""
    episodes = np.concatenate([state.episodes, rows])[-WINDOW:]
    recent = np.append(state.recent, len(rows))[-RECENT:]
    ended = np.asarray(state.ended + len(rows))
    return dataclasses.replace(state, episodes=episodes, ended=ended, recent=recent)


def judged(
    spec: OnPolicySpec, algorithm: AbstractLivedAlgorithm, episodes: Float[np.ndarray, "n r"]
) -> tuple[float, float]:
    """The value of the policy in these episodes, and its standard error."""
    # Episodes of one seed share their market: at worst they count as one.
    count = len(episodes) / spec.settings.episodes_per_seed
    lived = algorithm.summary(episodes[:, 0], episodes[:, 3:])
    value, error = _judged(algorithm, lived, jnp.asarray(count))
    return float(value), float(error)


@eqx.filter_jit
def _judged(algorithm: AbstractLivedAlgorithm, lived: Any, count: Float[Array, ""]) -> Any:
    return algorithm.judged(lived, count)


def policy_to_keep(
    spec: OnPolicySpec,
    algorithm: AbstractLivedAlgorithm,
    state: OnPolicyState,
    learner: Any,
    done: int,
) -> BestPolicy:
    """The later policy after so many iterations, unless its last episodes are clearly worse."""
    best, progress = state.best, done / spec.iterations
    episodes = last_episodes(state)
    candidate = BestPolicy(learner.average, state.outer, jnp.asarray(-jnp.inf))
    if progress <= _JUDGED or not len(episodes):
        return candidate
    value, error = judged(spec, algorithm, episodes)
    if spec.settings.keep_best:
        if value < best.value - _CLEARLY * error:
            return best
        value = max(value, float(best.value))
    return dataclasses.replace(candidate, value=jnp.asarray(value, jnp.float32))
