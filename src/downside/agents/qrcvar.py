"""QR-CVaR: one static CVaR, through the return that is still missing to a target."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from downside.agents.algorithm import AbstractQuantileAlgorithm, CandidateReturns
from downside.agents.qrsrm import refined_maximum
from downside.envs import AbstractMemoryInput, Memory, TargetInput
from downside.ops import shortfall_score, shortfall_target
from downside.risk import AbstractSpectralRisk

_GRID = 65
"""Candidates of the search for the target at the start state."""

Target = Float[Array, ""]


class StaticCVaR(AbstractQuantileAlgorithm):
    r"""QR-CVaR (Bellemare, Dabney and Rowland, 2023, section 7.8).

    Memory: b, with b' = (b - r)/γ. Score: $-\mathbb{E}[(b - G)^+] / \alpha$, learned as such
    ($W(x, b, a) = \gamma\, \mathbb{E}[\max_{a'} W(x', b', a')]$) or from learned quantiles. Outer
    step: $b = \arg\max_b\, b - \frac1\alpha \min_\pi \mathbb{E}[(b - G)^+]$ at the start, over the
    range of the returns.
    """

    name: ClassVar[str] = "QR-CVaR"
    gymnasium_preset: ClassVar[Mapping[str, Any]] = {"history_length": 1}

    @classmethod
    def check(cls, risk: AbstractSpectralRisk) -> None:
        """One CVaR, or the mean."""
        if not risk.is_finite_mixture or len(risk.atoms) != 1:
            raise ValueError(
                f"`risk` must be a single CVaR for QR-CVaR, such as cvar(0.2), got {risk}. Use "
                "QRSRM, which optimises any spectral risk measure."
            )

    @property
    def alpha(self) -> Float[Array, ""]:
        """The level of the CVaR; the mean is the one at 1."""
        weights = self.objective.masses
        return (weights * self.objective.levels).sum() + self.objective.linear

    def _missing(self, memory: Memory, outer: Target) -> Float[Array, ""]:
        """B: the return that is still missing to the target."""
        return TargetInput(outer).show(memory)[0]

    # --- memory -------------------------------------------------------------------------------

    def memory_input(self, outer: Target) -> AbstractMemoryInput:
        """The return that is still missing."""
        return TargetInput(outer)

    def memory_shift(self, memory: Memory, amount: Float[Array, ""]) -> Float[Array, ""]:
        """So much that b grows by `amount`: -c times as much."""
        return -memory.discount_so_far * amount

    # --- score --------------------------------------------------------------------------------

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], memory: Memory, outer: Target
    ) -> Float[Array, " A"]:
        """Minus the mean of (b - θ)^+, in units of α."""
        return shortfall_score(quantiles, self._missing(memory, outer)) / self.alpha

    def anchored(
        self, relative: Float[Array, " A"], memory: Memory, outer: Target
    ) -> Float[Array, " A"]:
        """-b^+ / α, and what the actions add: this stays bounded as b grows."""
        return relative - jnp.maximum(self._missing(memory, outer), 0.0) / self.alpha

    def critic_target(
        self,
        next_memory: Memory,
        next_score: Float[Array, ""],
        terminated: Bool[Array, ""],
        discount: Float[Array, ""] | float,
        outer: Target,
    ) -> Float[Array, ""]:
        """γ times the best score of the next state; at the end -γ (b')^+ / α."""
        missing = self._missing(next_memory, outer) / self.alpha
        return shortfall_target(missing, next_score, gamma=discount, terminated=terminated)

    def predicted_value(self, score: Float[Array, ""], outer: Target) -> Float[Array, ""]:
        """The target b plus the score: b - E[(b - G)^+] / α."""
        return outer + score

    # --- outer step ---------------------------------------------------------------------------

    def initial_outer(self, returns: Float[Array, " n"]) -> Target:
        """A target out of reach: then only the mean matters."""
        return returns.max() + returns.std()

    def logged(self, outer: Target) -> Mapping[str, Float[Array, ""]]:
        """The target."""
        return {"location": outer}

    def candidates(
        self, outer: Target, spread: Float[Array, ""], settings: Any
    ) -> Float[Array, " m"]:
        """Targets around the present one."""
        span = settings.shift_span * (settings.shifts > 1)  # a single candidate is not shifted
        return outer + jnp.linspace(-1.0, 1.0, settings.shifts) * span * spread

    def outer_step(
        self, outer: Target, measured: CandidateReturns, rate: float, first: Bool[Array, ""]
    ) -> Target:
        """The target whose policy has the highest CVaR; the first one is the α-quantile."""
        quantile = self._quantile(measured.returns[jnp.argmax(measured.values)])
        best = refined_maximum(measured.candidates, measured.values)
        return jnp.where(first, quantile, outer + rate * (best - outer))

    def _quantile(self, returns: Float[Array, " n"]) -> Float[Array, ""]:
        count = returns.shape[0]
        return returns[jnp.minimum(jnp.floor(self.alpha * count).astype(jnp.int32), count - 1)]

    def lived_outer_step(
        self, outer: Target, returns: Float[Array, " n"], rate: Float[Array, ""] | float
    ) -> Target:
        """The α-quantile of the returns."""
        return outer + rate * (self._quantile(returns) - outer)

    def learned_outer_step(
        self,
        outer: Target,
        start: Float[Array, " n"],
        start_value: Callable[[Target], Float[Array, ""]],
        rate: Float[Array, ""] | float,
    ) -> Target:
        """The best target at the start, over the range of the learned returns there."""
        margin = 0.1 * (start[-1] - start[0])
        targets = jnp.linspace(start[0] - margin, start[-1] + margin, _GRID)
        values = jax.vmap(start_value)(targets)
        return outer + rate * (targets[jnp.argmax(values)] - outer)
