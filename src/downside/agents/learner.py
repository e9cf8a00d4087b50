"""The protocol of learners: networks that learn from batches and decide.

A learner turns batches of transitions into networks and networks into actions. It does not know
where the transitions come from. Training state is a small immutable pytree.
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key

from downside.agents.algorithm import OuterVariable
from downside.envs import Memory


class Normalisation(eqx.Module):
    """What the warm-up shows of the size of numbers."""

    input_mean: Float[Array, " e"]
    input_spread: Float[Array, " e"]
    return_mean: Float[Array, ""]
    return_spread: Float[Array, ""]


class AbstractLearner(eqx.Module):
    """Networks that learn from batches and decide.

    Nothing here assumes discrete actions, quantiles or a maximum over actions. A batch is what the
    learner learns from: transitions, or the key of the episodes that it simulates.
    """

    algorithm: eqx.AbstractVar[Any]
    settings: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def init(self, key: Key[Array, ""], size: int, normalisation: Normalisation | None) -> Any:
        """The first training state, for inputs of this size. Its `networks` decide."""

    @abc.abstractmethod
    def act(
        self,
        networks: Any,
        observation: Float[Array, " d"],
        memory: Memory,
        mask: Bool[Array, " A"],
        outer: OuterVariable,
    ) -> Array:
        """The action of the policy."""

    @abc.abstractmethod
    def update(
        self, state: Any, batch: Any, outer: OuterVariable, unit: Float[Array, ""]
    ) -> tuple[Any, Float[Array, ""]]:
        """The training state after one gradient step, and the loss. Returns are in `unit`s."""
