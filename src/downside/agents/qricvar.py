"""QR-iCVaR: the risk measure of the return still to come, anew at every step."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from downside.agents.algorithm import AbstractAlgorithm, Goal
from downside.agents.qrdqn import WITHOUT_MEMORY
from downside.envs import AbstractJaxEnv
from downside.ops import spectral_score
from downside.risk import Tabulated


class ICVaR(AbstractAlgorithm):
    """Greedy in a fixed risk measure at each step (after Dabney et al., 2018b): time-inconsistent.

    Augmentation: none. Score: the risk measure of the quantiles. Outer step: none. With the mean
    it is QR-DQN, bit for bit.

    Differs: any spectrum, not only CVaR.
    """

    quantile_weights: Float[Array, " N"] | Float[np.ndarray, " N"]
    """How much each of the sorted quantiles counts."""

    name: ClassVar[str] = "QR-iCVaR"
    fixed: ClassVar[Mapping[str, Any]] = {"critic": "quantiles", "relabel": 0.0, "shifts": 1}
    preset: ClassVar[Mapping[str, Any]] = WITHOUT_MEMORY

    def __init__(
        self, objective: Tabulated, gamma: float, quantile_weights: Float[Array, " N"] | np.ndarray
    ):
        self.objective, self.gamma = objective, gamma
        self.quantile_weights = quantile_weights

    def wrap(self, env: AbstractJaxEnv, goal: Goal) -> AbstractJaxEnv:
        """As it is."""
        del goal
        return env

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], observation: Float[Array, " d"], goal: Goal
    ) -> Float[Array, " A"]:
        """The risk measure."""
        del observation, goal
        return spectral_score(quantiles, self.quantile_weights)

    def first_goal(self, returns: Float[Array, " n"]) -> Goal:
        """Nothing to update."""
        del returns
        return jnp.zeros(())
