"""QR-iCVaR: the risk measure of the return still to come, anew at every step."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from downside.agents.algorithm import Goal
from downside.agents.memoryless import AbstractMemoryless
from downside.agents.settings import Settings
from downside.ops import mean_score, spectral_score
from downside.risk import AbstractSpectralRisk, Mean, Tabulated


class ICVaR(AbstractMemoryless):
    """Greedy in a fixed risk measure at each step (after Dabney et al., 2018b): time-inconsistent.

    Augmentation: none. Score: the risk measure of the quantiles. Outer step: none. With the mean
    it is QR-DQN, bit for bit.

    Differs: any spectrum, not only CVaR.
    """

    quantile_weights: Float[Array, " N"]
    """How much each of the sorted quantiles counts."""
    neutral: bool = eqx.field(static=True)
    """Whether the measure is the mean, for which there is nothing to sort."""

    name: ClassVar[str] = "QR-iCVaR"

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "ICVaR":
        """With the weights of its quantiles.

        Agents that are trained as one program say how many `levels` they share; there the mean is a
        measure like any other.
        """
        table = Tabulated.of(risk)
        table = table if levels is None else table.padded(levels)
        weights = jnp.asarray(risk.quantile_weights(settings.quantiles), dtype=float)
        return cls(table, settings.gamma, weights, levels is None and risk == Mean())

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], observation: Float[Array, " d"], goal: Goal
    ) -> Float[Array, " A"]:
        """The risk measure."""
        del observation, goal
        if self.neutral:
            return mean_score(quantiles)
        return spectral_score(quantiles, self.quantile_weights)
