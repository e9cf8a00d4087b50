"""QR-iCVaR: the risk measure of the return still to come, anew at every step."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from downside.agents.algorithm import AbstractAlgorithm, Goal
from downside.agents.qrdqn import WITHOUT_MEMORY
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv
from downside.ops import spectral_score
from downside.risk import AbstractSpectralRisk, Tabulated


class ICVaR(AbstractAlgorithm):
    """Greedy in a fixed risk measure at each step (after Dabney et al., 2018b): time-inconsistent.

    Augmentation: none. Score: the risk measure of the quantiles. Outer step: none. With the mean
    it is QR-DQN, bit for bit.

    Differs: any spectrum, not only CVaR.
    """

    quantile_weights: Float[Array, " N"]
    """How much each of the sorted quantiles counts."""

    name: ClassVar[str] = "QR-iCVaR"
    fixed: ClassVar[Mapping[str, Any]] = {"critic": "quantiles", "relabel": 0.0, "shifts": 1}
    preset: ClassVar[Mapping[str, Any]] = WITHOUT_MEMORY

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "ICVaR":
        """With the weights of its quantiles."""
        table = Tabulated.of(risk)
        table = table if levels is None else table.padded(levels)
        weights = jnp.asarray(risk.quantile_weights(settings.quantiles), dtype=float)
        return cls(table, settings.gamma, weights)

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
        """The risk measure."""
        del observation, goal
        return spectral_score(quantiles, self.quantile_weights)

    def first_goal(self, returns: Float[Array, " n"]) -> Goal:
        """Nothing to update."""
        del returns
        return jnp.zeros(())
