"""QR-iCVaR: the risk measure of the return still to come, anew at every step."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from downside.agents.algorithm import OuterVariable
from downside.agents.memoryless import AbstractMemoryless
from downside.agents.settings import QuantileSettings, Settings
from downside.envs import Memory
from downside.ops import mean_score, spectral_score
from downside.risk import AbstractSpectralRisk, CVaRMixture, Mean


class ICVaR(AbstractMemoryless):
    """Greedy in a fixed risk measure at each step (after Dabney et al., 2018b): time-inconsistent.

    Memory: none. Score: the risk measure of the quantiles. Outer step: none. With the mean
    it is QR-DQN, bit for bit.

    Differs: any spectrum, not only CVaR.
    """

    quantile_weights: Float[Array, " N"]
    """Weight of each of the sorted quantiles."""
    neutral: bool = eqx.field(static=True)
    """Whether the measure is the mean, which needs no sorting."""

    name: ClassVar[str] = "QR-iCVaR"
    static: ClassVar[bool] = False

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "ICVaR":
        """With the weights of its quantiles.

        Agents that are trained in one batch share the number of `levels`; there the mean is treated
        like any other measure.
        """
        assert isinstance(settings, QuantileSettings)
        table = CVaRMixture.of(risk)
        table = table if levels is None else table.padded(levels)
        weights = jnp.asarray(risk.quantile_weights(settings.quantiles), dtype=float)
        return cls(table, settings.gamma, weights, levels is None and risk == Mean())

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], memory: Memory, outer: OuterVariable
    ) -> Float[Array, " A"]:
        """The risk measure."""
        del memory, outer
        if self.neutral:
            return mean_score(quantiles)
        return spectral_score(quantiles, self.quantile_weights)
