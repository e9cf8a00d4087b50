"""QR-DQN: the mean of the return, from its quantiles."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from downside.agents.algorithm import AbstractAlgorithm, Goal
from downside.envs import AbstractJaxEnv
from downside.ops import mean_score
from downside.risk import AbstractSpectralRisk, Mean

WITHOUT_MEMORY: Mapping[str, Any] = {
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
"""Settings of agents that score quantiles: pairs of quantiles and targets are what costs."""


class DQN(AbstractAlgorithm):
    """Quantile regression DQN (Dabney et al., 2018): risk-neutral.

    Augmentation: none. Score: the mean of the quantiles. Outer step: none.
    """

    name: ClassVar[str] = "QR-DQN"
    fixed: ClassVar[Mapping[str, Any]] = {"critic": "quantiles", "relabel": 0.0, "shifts": 1}
    preset: ClassVar[Mapping[str, Any]] = WITHOUT_MEMORY

    @classmethod
    def check(cls, risk: AbstractSpectralRisk) -> None:
        """Only the mean."""
        if risk != Mean():
            raise ValueError(
                f"`risk` must be the mean for QR-DQN, got {risk}. Leave it out, or use QRSRM, "
                "which optimises any spectral risk measure."
            )

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

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], observation: Float[Array, " d"], goal: Goal
    ) -> Float[Array, " A"]:
        """The mean."""
        del observation, goal
        return mean_score(quantiles)

    def first_goal(self, returns: Float[Array, " n"]) -> Goal:
        """Nothing to update."""
        del returns
        return jnp.zeros(())
