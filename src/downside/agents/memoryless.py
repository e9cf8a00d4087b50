"""What agents have in common that look at nothing but the present observation."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from downside.agents.algorithm import AbstractAlgorithm, Goal
from downside.envs import AbstractJaxEnv


class AbstractMemoryless(AbstractAlgorithm):
    """No augmentation and no outer step: only the score of the quantiles is left to say."""

    fixed: ClassVar[Mapping[str, Any]] = {"critic": "quantiles", "relabel": 0.0, "shifts": 1}
    preset: ClassVar[Mapping[str, Any]] = {  # pairs of quantiles and targets are what costs
        "learning_rate": 0.005,
        "batch_size": 128,
        "near_greedy": 2,
        "random_actions": 1,
        "outcomes": 2,
        "updates_per_step": 2,
        "outer_interval": 500,
        "difference_weight": 1.0,
        "distribution_fraction": 0.0,
    }

    def wrap(self, env: AbstractJaxEnv, goal: Goal) -> AbstractJaxEnv:
        """As it is."""
        del goal
        return env

    def remembered(
        self, accumulated: Float[Array, ""], discount_so_far: Float[Array, ""], goal: Goal
    ) -> Float[Array, " m"]:
        """Nothing."""
        del accumulated, discount_so_far, goal
        return jnp.zeros(0)

    def first_goal(self, returns: Float[Array, " n"]) -> Goal:
        """Nothing to update."""
        del returns
        return jnp.zeros(())
