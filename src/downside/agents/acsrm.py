r"""AC-SRM: an actor that maximises what lived episodes add to h."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from downside.agents.algorithm import AbstractAlgorithm
from downside.agents.settings import OnPolicySettings, Settings
from downside.envs import AbstractMemoryInput, Memory, ReturnInput
from downside.envs.memory import append
from downside.risk import AbstractSpectralRisk, Utility

_FARTHEST = 5.0
"""Inputs of the memory are clipped here, in standard deviations of the return."""
_LEAST_DISCOUNT = 1e-3


class LivedUtility(eqx.Module):
    """The outer variable: h, and what its inputs are measured in."""

    utility: Utility
    """h, with the share of the mean that holds at this time of the run."""
    spread: Float[Array, ""]
    """Standard deviation of the returns of the last episodes."""
    short: Float[Array, ""]
    """1 if episodes are so short that the networks see marks of the steps, else 0."""

    @property
    def location(self) -> Float[Array, ""]:
        """The mean of the knots, weighted by the slope that h loses there."""
        drops = self.utility.drops
        return (drops * self.utility.knots).sum() / jnp.maximum(drops.sum(), 1e-12)


class LivedSRM(AbstractAlgorithm):
    r"""AC-SRM: Algorithm 1 with some epochs of a policy gradient as its inner optimisation.

    Memory: (s, c). Decides: an actor network. Outer variable: h, in closed form from the returns
    of the last episodes. A transition pays $\tilde r = (h(s + c r) - h(s))/c$, and the discount is
    γ: times c, these increments add up to $h(G) - h(0)$. Where h is a line of slope 1,
    $\tilde r = r$ and the agent is PPO.

    Differs: lived episodes and an actor instead of learned return distributions
    (docs/algorithms/acsrm.md).
    """

    name: ClassVar[str] = "AC-SRM"
    has_clock: bool = eqx.field(static=True, default=False)
    """Whether the last number of an observation is the number of the step."""
    step_inputs: int = eqx.field(static=True, default=0)
    """Inputs that mark the step."""

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "LivedSRM":
        """The algorithm for a measure."""
        assert isinstance(settings, OnPolicySettings)
        made = super().make(risk, settings, levels)
        return cls(made.objective, made.gamma, settings.has_clock, settings.step_inputs)

    def memory_input(self, outer: Any) -> AbstractMemoryInput:
        """(s, c)."""
        del outer
        return ReturnInput()

    def network_input(
        self, observation: Float[Array, " d"], memory: Memory, outer: LivedUtility
    ) -> Float[Array, " e"]:
        """With s relative to the bends of h, in units of the spread; the bent part of h there; c;
        and s relative to the bends in units of what can still be earned.

        The critic learns what is added to h(s). The bends of h(s) are not in the expected utility,
        so that the critic has to take them away: easily, since it sees them. If only the mean
        counts there is nothing but the observation and, where episodes are short, the step.
        """
        accumulated, discount = memory
        steps = jnp.arange(self.step_inputs)
        number = observation[-1] if self.has_clock else self._steps_done(discount)
        marks = outer.short * (steps == jnp.round(number)).astype(float)
        observation = jnp.concatenate([observation.astype(float), marks])
        if not self.objective.levels.shape[0]:
            return observation
        h, unit = outer.utility, outer.spread
        above = (accumulated - outer.location) / unit
        bent = h(accumulated) - h.offset - h.linear * accumulated
        bent = bent / (unit * jnp.maximum(h.drops.sum(), 1e-12))
        still = jnp.clip(above / jnp.maximum(discount, _LEAST_DISCOUNT), -_FARTHEST, _FARTHEST)
        return append(observation, (above, bent, still, discount))

    def _steps_done(self, discount: Float[Array, ""]) -> Float[Array, ""]:
        """From the discount so far; nothing without a discount."""
        if self.gamma == 1.0:
            return jnp.asarray(-1.0)
        return jnp.log(jnp.maximum(discount, 1e-30)) / jnp.log(self.gamma)

    def initial_outer(self, returns: Float[Array, " n"]) -> LivedUtility:
        """The mean, with knots at the quantiles of the `returns`."""
        return self.lived(returns, jnp.ones(()))

    def lived(self, returns: Float[Array, " n"], mean_share: Float[Array, ""]) -> LivedUtility:
        """The closed form of h for these returns (Theorem 1), mixed with a share of the mean."""
        ordered, table = jnp.sort(returns), self.objective
        knots, risk_share = table.quantiles(ordered), 1.0 - mean_share
        utility = Utility(
            knots,
            risk_share * table.drops,
            linear=mean_share + risk_share * table.linear,
            offset=risk_share * (table.masses * knots).sum(),
        )
        return LivedUtility(utility, jnp.maximum(ordered.std(), 1e-6), jnp.zeros(()))

    def moved(self, old: LivedUtility, new: LivedUtility, rate: Float[Array, ""]) -> LivedUtility:
        """A share `rate` of the way from the old knots to the new ones; slopes are the new ones."""
        knots = old.utility.knots + rate * (new.utility.knots - old.utility.knots)
        shift = ((new.utility.knots - knots) * self.objective.masses).sum()
        utility = Utility(
            knots,
            new.utility.drops,
            linear=new.utility.linear,
            offset=new.utility.offset - shift,
        )
        spread = old.spread + rate * (new.spread - old.spread)
        return LivedUtility(utility, spread, old.short)

    def utility(self, outer: LivedUtility) -> Utility:
        """H."""
        return outer.utility

    def logged(self, outer: LivedUtility) -> Mapping[str, Float[Array, ""]]:
        """The lowest and the highest bend of h, and the share of the mean."""
        knots = outer.utility.knots
        if not knots.shape[0]:
            return {}
        return {"knot_low": knots[0], "knot_high": knots[-1], "slope_above": outer.utility.linear}
