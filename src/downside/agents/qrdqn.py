"""QR-DQN: the mean of the return, from its quantiles."""

from typing import ClassVar

from jaxtyping import Array, Float

from downside.agents.algorithm import Goal
from downside.agents.memoryless import AbstractMemoryless
from downside.ops import mean_score
from downside.risk import AbstractSpectralRisk, Mean


class DQN(AbstractMemoryless):
    """Quantile regression DQN (Dabney et al., 2018): risk-neutral.

    Augmentation: none. Score: the mean of the quantiles. Outer step: none.
    """

    name: ClassVar[str] = "QR-DQN"

    @classmethod
    def check(cls, risk: AbstractSpectralRisk) -> None:
        """Only the mean."""
        if risk != Mean():
            raise ValueError(
                f"`risk` must be the mean for QR-DQN, got {risk}. Leave it out, or use QRSRM, "
                "which optimises any spectral risk measure."
            )

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], observation: Float[Array, " d"], goal: Goal
    ) -> Float[Array, " A"]:
        """The mean."""
        del observation, goal
        return mean_score(quantiles)
