r"""AC-SRM: an actor that maximises what lived episodes add to h."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from downside.agents.lived import FARTHEST, LEAST_DISCOUNT, AbstractLivedAlgorithm, table_of
from downside.agents.settings import OnPolicySettings, Settings
from downside.envs import Memory
from downside.envs.memory import append
from downside.risk import AbstractSpectralRisk, Utility


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


class LivedSRM(AbstractLivedAlgorithm):
    r"""AC-SRM: Algorithm 1 with some epochs of a policy gradient as its inner optimisation.

    Memory: (s, c). Decides: an actor network. Outer variable: h, in closed form from the returns
    of the last episodes. A transition pays $\tilde r = (h(s + c r) - h(s))/c$, and the discount is
    γ: times c, these increments add up to $h(G) - h(0)$. Where h is a line of slope 1,
    $\tilde r = r$ and the agent is PPO.

    Differs: lived episodes and an actor instead of learned return distributions
    (docs/algorithms/acsrm.md).
    """

    name: ClassVar[str] = "AC-SRM"

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "LivedSRM":
        """The algorithm for a measure."""
        assert isinstance(settings, OnPolicySettings)
        made = super().make(risk, settings, levels)
        return cls(made.objective, made.gamma, settings.has_clock, settings.step_inputs)

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
        observation = self.marked(observation, memory, outer.short)
        if not self.objective.levels.shape[0]:
            return observation
        h, unit = outer.utility, outer.spread
        above = (accumulated - outer.location) / unit
        bent = h(accumulated) - h.offset - h.linear * accumulated
        bent = bent / (unit * jnp.maximum(h.drops.sum(), 1e-12))
        still = jnp.clip(above / jnp.maximum(discount, LEAST_DISCOUNT), -FARTHEST, FARTHEST)
        return append(observation, (above, bent, still, discount))

    # --- one measure for all episodes ---------------------------------------------------------

    def positions(self, key: Key[Array, ""], count: int, outer: LivedUtility) -> None:
        """None: all episodes share one measure."""
        del key, count, outer

    def placed(self, outer: LivedUtility, position: None) -> LivedUtility:
        """The same."""
        del position
        return outer

    def emphasis(self, positions: None) -> Float[Array, ""]:
        """All count alike."""
        del positions
        return jnp.ones(())

    @property
    def recorded(self) -> int:
        """Nothing."""
        return 0

    def record(self, positions: None, count: int) -> Float[np.ndarray, "n 0"]:
        """Nothing."""
        del positions
        return np.zeros((count, 0))

    def utilities(self, accumulated: Any, positions: None, outer: LivedUtility) -> Any:
        """H, in 64 bits: c becomes small in long episodes."""
        del positions
        h = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), outer.utility)
        return h(accumulated)

    # --- the outer step -----------------------------------------------------------------------

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

    def summary(
        self, returns: Float[np.ndarray, " n"], records: Float[np.ndarray, "n 0"]
    ) -> Float[Array, " m"]:
        """Quantiles of the returns."""
        del records
        return table_of(returns)

    def next_outer(
        self,
        outer: LivedUtility,
        lived: Float[Array, " m"],
        mean_share: Float[Array, ""],
        rate: Float[Array, ""],
    ) -> LivedUtility:
        """H a share `rate` of the way to that of the last episodes."""
        return self.moved(outer, self.lived(lived, mean_share), rate)

    def judged(
        self, lived: Float[Array, " m"], count: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The measure of the returns."""
        error = self.objective.standard_error(lived) * jnp.sqrt(lived.shape[0] / count)
        return self.objective.value(lived), error

    def utility(self, outer: LivedUtility) -> Utility:
        """H."""
        return outer.utility

    def logged(self, outer: LivedUtility) -> Mapping[str, Float[Array, ""]]:
        """The lowest and the highest bend of h, and the share of the mean."""
        knots = outer.utility.knots
        if not knots.shape[0]:
            return {}
        return {"knot_low": knots[0], "knot_high": knots[-1], "slope_above": outer.utility.linear}
