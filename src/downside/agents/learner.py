"""The protocol of learners: networks that learn from batches and decide.

A learner turns batches of transitions into networks and networks into actions. It does not know
where the transitions come from. Training state is a small immutable pytree.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from downside.agents.algorithm import OuterVariable
from downside.envs import Memory

_NO_SPREAD = 1e-6
"""Returns that differ by less, as a share of their size, differ by rounding alone."""


class Normalisation(eqx.Module):
    """What the warm-up shows of the size of numbers."""

    input_mean: Float[Array, " e"]
    input_spread: Float[Array, " e"]
    return_mean: Float[Array, ""]
    return_spread: Float[Array, ""]
    """0 if all returns are equal."""
    return_size: Float[Array, ""]
    """The unit of the outputs."""


def is_constant(returns: Any) -> Any:
    """Whether all returns are equal, but for rounding."""
    return returns.std() <= _NO_SPREAD * (1.0 + abs(returns).max())


def return_scale(returns: Any) -> tuple[Any, Any]:
    """How far returns spread, and how large the outputs of a network should be: the same, or where
    all returns are equal 0 and their size. For NumPy and JAX."""
    spread, size = returns.std(), abs(returns).max().clip(1.0)
    where = np.where if isinstance(returns, np.ndarray) else jnp.where
    constant = is_constant(returns)
    return where(constant, 0.0, spread), where(constant, size, spread)


def next_spread(before: Float[Array, ""], returns: Float[Array, " n"]) -> Float[Array, ""]:
    """The spread of the present returns; 0 only where returns have never had any."""
    spread = jnp.maximum(returns.std(), _NO_SPREAD)
    return jnp.where((before == 0.0) & is_constant(returns), 0.0, spread)


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
    ) -> tuple[Any, Any]:
        """The training state after the gradient steps on a batch, and the loss, or several numbers
        for the log. Returns are in `unit`s, the spread of the present ones; 0 if they have none."""
