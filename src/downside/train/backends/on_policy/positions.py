"""Where the dial stands in each episode: drawn when it begins, held until it ends."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key

from downside._random import stream
from downside.agents.actor_critic_learner import ActorCriticLearner
from downside.agents.algorithm import OuterVariable
from downside.agents.lived import AbstractLivedAlgorithm
from downside.envs import Memory
from downside.train.backends.gymnasium.program import ArrayStructure, flat_arrays


def begun(
    algorithm: AbstractLivedAlgorithm,
    outer: OuterVariable,
    before: Any,
    started: Bool[np.ndarray, " n"],
    key: Key[Array, ""],
    step: int,
) -> Any:
    """The positions of the episodes in all copies at a step: new ones where an episode has
    `started`."""
    if not algorithm.recorded or not (started.any() or before is None):
        return before
    drawn = jax.tree.map(np.asarray, _drawn(algorithm, outer, key, jnp.asarray(step), len(started)))
    if before is None:
        return drawn
    return jax.tree.map(lambda new, old: np.where(started, new, old), drawn, before)


@eqx.filter_jit
def _drawn(
    algorithm: AbstractLivedAlgorithm, outer: OuterVariable, key: Any, step: Any, count: int
) -> Any:
    return algorithm.positions(stream(key, "step", step), count, outer)


class FinalPolicy:
    """Acts as the policy does, in episodes of all its positions."""

    def __init__(
        self,
        learner: ActorCriticLearner,
        networks: Any,
        outer: OuterVariable,
        key: Key[Array, ""],
    ):
        self._algorithm, self._outer = learner.algorithm, outer
        self._key = stream(key, "final positions")
        self._leaves, structure = flat_arrays((learner, networks, outer))
        self._compiled = _compiled_choice(structure)
        self._positions: Any = None
        self._steps = 0

    def __call__(self, rollout: Any) -> tuple[Any, Any]:
        """The actions of all environments, and the positions of their episodes."""
        self._positions = begun(
            self._algorithm, self._outer, self._positions, rollout.started, self._key, self._steps
        )
        self._steps += 1
        memory = tuple(part.astype(np.float32) for part in rollout.memory)
        actions = self._compiled(
            self._leaves, self._positions, rollout.observations, *memory, rollout.masks
        )
        return np.asarray(actions), self._positions


@functools.lru_cache(maxsize=16)
def _compiled_choice(structure: ArrayStructure) -> Any:
    @jax.jit
    def choose(leaves: list[Array], positions: Any, *situation: Array) -> Array:
        learner, networks, outer = structure.whole(leaves)

        def alone(position: Any, x: Array, s: Array, c: Array, mask: Array) -> Array:
            placed = learner.algorithm.placed(outer, position)
            return learner.act(networks, x, Memory(s, c), mask, placed)

        return jax.vmap(alone)(positions, *situation)

    return choose
