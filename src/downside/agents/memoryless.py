"""What agents have in common that look at nothing but the present observation."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from downside.agents.algorithm import AbstractQuantileAlgorithm, OuterVariable
from downside.envs import AbstractMemoryInput, NoMemoryInput


class AbstractMemoryless(AbstractQuantileAlgorithm):
    """No memory and no outer step: a subclass adds the score of the quantiles."""

    fixed: ClassVar[Mapping[str, Any]] = {"critic": "quantiles", "memory_noise": 0.0, "shifts": 1}
    preset: ClassVar[Mapping[str, Any]] = {  # pairs of quantiles and targets are what costs
        "learning_rate": 0.005,
        "batch_size": 128,
        "top_actions": 2,
        "random_actions": 1,
        "samples_per_action": 2,
        "updates_per_step": 2,
        "outer_interval": 500,
        "advantage_weight": 1.0,
        "evaluation_fraction": 0.0,
    }

    def memory_input(self, outer: OuterVariable) -> AbstractMemoryInput:
        """Nothing."""
        del outer
        return NoMemoryInput()

    def initial_outer(self, returns: Float[Array, " n"]) -> OuterVariable:
        """Nothing to update."""
        del returns
        return jnp.zeros(())
