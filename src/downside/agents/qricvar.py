"""QR-iCVaR: the risk measure of the return still to come, anew at every step."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from downside.agents.algorithm import Goal
from downside.agents.memoryless import AbstractMemoryless
from downside.agents.settings import Settings
from downside.ops import spectral_score
from downside.risk import AbstractSpectralRisk, Tabulated


class ICVaR(AbstractMemoryless):
    """Greedy in a fixed risk measure at each step (after Dabney et al., 2018b): time-inconsistent.

    Augmentation: none. Score: the risk measure of the quantiles. Outer step: none. With the mean
    it is QR-DQN, bit for bit.

    Differs: any spectrum, not only CVaR.
    """

    quantile_weights: Float[Array, " N"]
    """How much each of the sorted quantiles counts."""

    name: ClassVar[str] = "QR-iCVaR"

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "ICVaR":
        """With the weights of its quantiles."""
        table = Tabulated.of(risk)
        table = table if levels is None else table.padded(levels)
        weights = jnp.asarray(risk.quantile_weights(settings.quantiles), dtype=float)
        return cls(table, settings.gamma, weights)

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], observation: Float[Array, " d"], goal: Goal
    ) -> Float[Array, " A"]:
        """The risk measure."""
        del observation, goal
        return spectral_score(quantiles, self.quantile_weights)
