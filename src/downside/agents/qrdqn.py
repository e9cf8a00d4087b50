"""QR-DQN: the mean of the return, from its quantiles."""

from typing import ClassVar

from jaxtyping import Array, Float

from downside.agents.algorithm import OuterVariable
from downside.agents.memoryless import AbstractMemoryless
from downside.envs import Memory
from downside.ops import mean_score
from downside.risk import AbstractSpectralRisk, Mean


class DQN(AbstractMemoryless):
    """Quantile regression DQN (Dabney et al., 2018): risk-neutral.

    Memory: none. Score: the mean of the quantiles. Outer step: none.
    """

    name: ClassVar[str] = "QR-DQN"
    default_risk: ClassVar[str | None] = "mean"

    @classmethod
    def check(cls, risk: AbstractSpectralRisk) -> None:
        """Only the mean."""
        if risk != Mean():
            raise ValueError(
                f"`risk` must be the mean for QR-DQN, got {risk}. Leave it out, or use QRSRM, "
                "which optimises any spectral risk measure."
            )

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], memory: Memory, outer: OuterVariable
    ) -> Float[Array, " A"]:
        """The mean."""
        del memory, outer
        return mean_score(quantiles)
