"""QR-CVaR: one static CVaR, through the return that is still missing to a target."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from downside.agents.algorithm import AbstractAlgorithm, Measured
from downside.agents.qrsrm import refined_maximum
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv, JaxTargetAware
from downside.ops import shortfall_score, shortfall_target
from downside.risk import AbstractSpectralRisk

_TARGET = -1
_GRID = 65
"""Targets among which the search at the start state looks."""

Target = Float[Array, ""]


class StaticCVaR(AbstractAlgorithm):
    r"""QR-CVaR (Bellemare, Dabney and Rowland, 2023, section 7.8).

    Augmentation: b, with b' = (b - r)/γ. Score: $-\mathbb{E}[(b - G)^+] / \alpha$, learned as such
    ($W(x, b, a) = \gamma\, \mathbb{E}[\max_{a'} W(x', b', a')]$) or from learned quantiles. Outer
    step: $b = \arg\max_b\, b - \frac1\alpha \min_\pi \mathbb{E}[(b - G)^+]$ at the start, over the
    range of the returns that were seen.
    """

    name: ClassVar[str] = "QR-CVaR"
    lived_preset: ClassVar[Mapping[str, Any]] = {"past_steps": 1}

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

    # --- augmentation -------------------------------------------------------------------------

    def wrap(self, env: AbstractJaxEnv, goal: Target) -> AbstractJaxEnv:
        """With b."""
        return JaxTargetAware(env, self.gamma, goal)

    def remembered(
        self, accumulated: Float[Array, ""], discount_so_far: Float[Array, ""], goal: Target
    ) -> Float[Array, " m"]:
        """What is missing: b = (b_0 - s) / c."""
        return ((goal - accumulated) / discount_so_far)[None]

    def relabel(
        self,
        observation: Float[Array, " d"],
        next_observations: Float[Array, "b K d"],
        amount: Float[Array, ""],
    ) -> tuple[Float[Array, " d"], Float[Array, "b K d"]]:
        """The target b is larger by the amount, and so b' by the amount / γ."""
        return (
            observation.at[_TARGET].add(amount),
            next_observations.at[..., _TARGET].add(amount / self.gamma),
        )

    # --- score --------------------------------------------------------------------------------

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], observation: Float[Array, " d"], goal: Target
    ) -> Float[Array, " A"]:
        """Minus the mean of (b - θ)^+, in units of α."""
        del goal
        return shortfall_score(quantiles, observation[_TARGET]) / self.alpha

    def anchored(
        self, relative: Float[Array, " A"], observation: Float[Array, " d"], goal: Target
    ) -> Float[Array, " A"]:
        """-b^+ / α, and what the actions add: what there is to learn stays bounded as b grows."""
        del goal
        return relative - jnp.maximum(observation[_TARGET], 0.0) / self.alpha

    def critic_target(
        self,
        next_observation: Float[Array, " d"],
        next_score: Float[Array, ""],
        terminated: Bool[Array, ""],
        discount: Float[Array, ""] | float,
        goal: Target,
    ) -> Float[Array, ""]:
        """γ times the best score of the next state; at the end -γ (b')^+ / α."""
        del goal
        missing = next_observation[_TARGET] / self.alpha
        return shortfall_target(missing, next_score, gamma=discount, terminated=terminated)

    def predicted_value(self, score: Float[Array, ""], goal: Target) -> Float[Array, ""]:
        """The target b plus the score: b - E[(b - G)^+] / α."""
        return goal + score

    # --- outer step ---------------------------------------------------------------------------

    def first_goal(self, returns: Float[Array, " n"]) -> Target:
        """A target out of reach: then only the mean matters."""
        return returns.max() + returns.std()

    def candidates(
        self,
        goal: Target,
        spread: Float[Array, ""],
        settings: Settings,
        start_score: Callable[[Target], Float[Array, ""]],
    ) -> Float[Array, " m"]:
        """Targets around the present one."""
        del start_score
        return goal + jnp.linspace(-1.0, 1.0, settings.shifts) * settings.shift_span * spread

    def outer_step(
        self, goal: Target, measured: Measured, rate: float, first: Bool[Array, ""]
    ) -> Target:
        """The target whose policy has the highest CVaR; the first one is the α-quantile."""
        quantile = self._quantile(measured.returns[jnp.argmax(measured.values)])
        found = refined_maximum(measured.goals, measured.values)
        return jnp.where(first, quantile, goal + rate * (found - goal))

    def lived_outer_step(
        self, goal: Target, returns: Float[Array, " n"], rate: Float[Array, ""] | float
    ) -> Target:
        """The α-quantile of the returns."""
        return goal + rate * (self._quantile(returns) - goal)

    def _quantile(self, returns: Float[Array, " n"]) -> Float[Array, ""]:
        count = returns.shape[0]
        return returns[jnp.minimum(jnp.floor(self.alpha * count).astype(jnp.int32), count - 1)]

    def learned_outer_step(
        self,
        goal: Target,
        start: Float[Array, " n"],
        start_score: Callable[[Target], Float[Array, ""]],
        rate: Float[Array, ""] | float,
    ) -> Target:
        """The best target at the start, over the range of the learned returns there."""
        margin = 0.1 * (start[-1] - start[0])
        targets = jnp.linspace(start[0] - margin, start[-1] + margin, _GRID)
        values = jax.vmap(lambda b: self.predicted_value(start_score(b), b))(targets)
        return goal + rate * (targets[jnp.argmax(values)] - goal)
