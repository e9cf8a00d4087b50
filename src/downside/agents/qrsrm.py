"""QR-SRM: any static spectral risk measure of the return of the whole episode."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from downside.agents.algorithm import (
    AbstractAlgorithm,
    AbstractQuantileAlgorithm,
    CandidateReturns,
)
from downside.agents.settings import GymnasiumSettings, QuantileSettings, Settings
from downside.envs import AbstractMemoryInput, Memory, ReturnInput
from downside.ops import mean_score, utility_score, utility_target
from downside.risk import AbstractSpectralRisk, Utility


class ShiftedUtility(eqx.Module):
    r"""The utility of the outer step, as a shape and a location: $h(z) = l + u(z - l)$.

    The networks see the accumulated reward relative to $l$. So the knots can move together and
    nothing has to be learned anew; for a single CVaR $u$ never changes.
    """

    utility: Utility
    """u."""
    location: Float[Array, ""]
    """l."""

    def absolute(self) -> Utility:
        """The utility h itself, as a function of the return."""
        u, location = self.utility, self.location
        offset = u.offset + location * (1.0 - u.linear)
        return Utility(u.knots + location, u.drops, linear=u.linear, offset=offset)


class SRM(AbstractQuantileAlgorithm):
    r"""QR-SRM (section 4).

    Memory: (s, c). Score: $\mathbb{E}[h(s + c G)]$, learned as such (Lemma 1 of appendix B:
    $V(x, s, c, a) = \mathbb{E}[\max_{a'} V(x', s', c', a')]$, and $h(s')$ at the end) or as the
    mean of h over learned quantiles (Algorithm 2). Outer step: h from the return at the start.

    Differs: see docs/explanation/agents.md.
    """

    name: ClassVar[str] = "QR-SRM"
    gymnasium_preset: ClassVar[Mapping[str, Any]] = {"history_length": 1}

    hide_memory_until_risk: bool = eqx.field(static=True, default=False)
    """Whether the networks see (s, c) only once h bends."""
    mean_weight: float = eqx.field(static=True, default=0.0)
    """The share of the mean in h."""

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "AbstractAlgorithm":
        """The algorithm for a measure."""
        assert isinstance(settings, QuantileSettings)
        made = super().make(risk, settings, levels)
        # A critic learns s + c G while h is a line: it must see s.
        lived = isinstance(settings, GymnasiumSettings)
        hide = lived and settings.hide_memory_until_risk and settings.critic == "quantiles"
        return dataclasses.replace(
            made, hide_memory_until_risk=hide, mean_weight=settings.mean_weight
        )

    # --- memory -------------------------------------------------------------------------------

    def memory_input(self, outer: ShiftedUtility) -> AbstractMemoryInput:
        """(s, c)."""
        del outer
        return ReturnInput()

    def network_input(
        self, observation: Float[Array, " d"], memory: Memory, outer: ShiftedUtility
    ) -> Float[Array, " e"]:
        """With s relative to the location of h; without (s, c) while it does not matter."""
        relative = super().network_input(observation, memory.relabel(-outer.location), outer)
        if not self.hide_memory_until_risk:
            return relative
        shown = _bends(outer).astype(relative.dtype)
        return jnp.concatenate([relative[:-2], shown * relative[-2:]])

    @property
    def inputs_hidden_at_first(self) -> int:
        """Two: s and c."""
        return 2 if self.hide_memory_until_risk else 0

    # --- score --------------------------------------------------------------------------------

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], memory: Memory, outer: ShiftedUtility
    ) -> Float[Array, " A"]:
        """The mean of u(s - l + c θ).

        With `hide_memory_until_risk`, the mean of θ while h is a line: the rest is the same for all
        actions, and the run is that of QR-DQN, up to rounding.
        """
        accumulated, discount = memory.relabel(-outer.location)
        if not self.hide_memory_until_risk:
            return utility_score(quantiles, outer.utility, accumulated, discount)
        # Computed apart, or the compiler rounds the mean differently for every number of knots.
        apart = jax.lax.optimization_barrier(quantiles)
        scores = utility_score(apart, outer.utility, accumulated, discount)
        return jnp.where(_bends(outer), scores, mean_score(quantiles))

    def anchored(
        self, relative: Float[Array, " A"], memory: Memory, outer: ShiftedUtility
    ) -> Float[Array, " A"]:
        r"""$u(s - l) + c\,f$.

        The recursion of the score itself has neither reward nor discount, so that any large enough
        constant solves it where episodes need not end. That of $f$ has both,
        $f = \mathbb{E}[(u(s' - l) - u(s - l))/c + \gamma \max f']$, and hence one solution.
        """
        over = outer.utility(memory.accumulated - outer.location)
        return over + memory.discount_so_far * relative

    def critic_target(
        self,
        next_memory: Memory,
        next_score: Float[Array, ""],
        terminated: Bool[Array, ""],
        discount: Float[Array, ""] | float,
        outer: ShiftedUtility,
    ) -> Float[Array, ""]:
        """The best score of the next state; at the end u(s' - l)."""
        del discount
        accumulated = next_memory.accumulated - outer.location
        return utility_target(outer.utility, accumulated, next_score, terminated)

    def predicted_value(self, score: Float[Array, ""], outer: ShiftedUtility) -> Float[Array, ""]:
        """J = E[h(G)] = l + E[u(G - l)]."""
        return outer.location + score

    # --- outer step ---------------------------------------------------------------------------

    def initial_outer(self, returns: Float[Array, " n"]) -> ShiftedUtility:
        """h(z) = z, with as many knots as there will be."""
        del returns
        flat = jnp.zeros_like(self.objective.drops)
        return ShiftedUtility(Utility(flat, flat, linear=jnp.ones(())), jnp.zeros(()))

    def utility(self, outer: ShiftedUtility) -> Utility:
        """H as a function of the return."""
        return outer.absolute()

    def logged(self, outer: ShiftedUtility) -> Mapping[str, Float[Array, ""]]:
        """Where h is."""
        return {"location": outer.location}

    def candidates(
        self, outer: ShiftedUtility, spread: Float[Array, ""], settings: Any
    ) -> ShiftedUtility:
        """The same shape at several locations."""
        span = settings.shift_span * (settings.shifts > 1)  # a single candidate is not shifted
        steps = jnp.linspace(-1.0, 1.0, settings.shifts) * span * spread
        return jax.vmap(lambda step: ShiftedUtility(outer.utility, outer.location + step))(steps)

    def outer_step(
        self, outer: ShiftedUtility, measured: CandidateReturns, rate: float, first: Bool[Array, ""]
    ) -> ShiftedUtility:
        """The shape from the returns of the best candidate, the location where J is highest."""
        best = jnp.argmax(measured.values)
        location, knots = self._shape(self.objective.quantiles(measured.returns[best]))
        refined = refined_maximum(measured.candidates.location, measured.values)
        step = jnp.where(first, 1.0, rate)
        target = jnp.where(first, location, refined)
        location = outer.location + step * (target - outer.location)
        knots = outer.utility.knots + step * (knots - outer.utility.knots)
        return ShiftedUtility(self._utility(knots), location)

    def learned_outer_step(
        self,
        outer: ShiftedUtility,
        start: Float[Array, " n"],
        start_value: Callable[[ShiftedUtility], Float[Array, ""]],
        rate: Float[Array, ""] | float,
    ) -> ShiftedUtility:
        """The utility h from the learned return at the start, in place."""
        del start_value
        knots = outer.utility.knots + rate * (self.objective.quantiles(start) - outer.utility.knots)
        return ShiftedUtility(self._utility(knots), jnp.zeros(()))

    def lived_outer_step(
        self, outer: ShiftedUtility, returns: Float[Array, " n"], rate: Float[Array, ""] | float
    ) -> ShiftedUtility:
        """Shape and location from the returns of the present policy."""
        location, knots = self._shape(self.objective.quantiles(returns))
        location = outer.location + rate * (location - outer.location)
        knots = outer.utility.knots + rate * (knots - outer.utility.knots)
        return ShiftedUtility(self._utility(knots), location)

    def _utility(self, knots: Float[Array, " k"]) -> Utility:
        """h, with the share of the mean."""
        h, share = self.objective.utility(knots), self.mean_weight
        return Utility(
            h.knots,
            (1.0 - share) * h.drops,
            linear=1.0 - (1.0 - share) * (1.0 - h.linear),  # exactly 1 for the mean
            offset=(1.0 - share) * h.offset,
        )

    def _shape(self, knots: Float[Array, " k"]) -> tuple[Float[Array, ""], Float[Array, " k"]]:
        """The location of knots, and the knots relative to it."""
        total = self.objective.drops.sum()
        location = jnp.where(
            total > 0, (self.objective.drops * knots).sum() / jnp.where(total > 0, total, 1.0), 0.0
        )
        return location, knots - location


def _bends(outer: ShiftedUtility) -> Bool[Array, ""]:
    """Whether h is anything but a line."""
    return (outer.utility.drops != 0).any()


def refined_maximum(points: Float[Array, " m"], values: Float[Array, " m"]) -> Float[Array, ""]:
    """Where a function is largest: the best of equally spaced points (of several, the one nearest
    to the middle), or the top of the parabola through it and its neighbours."""
    count = points.shape[0]
    from_middle = jnp.abs(jnp.arange(count) - (count - 1) / 2)
    best = jnp.argmin(jnp.where(values >= values.max(), from_middle, jnp.inf))
    if count < 3:
        return points[best]
    middle = jnp.clip(best, 1, count - 2)
    left, centre, right = values[middle - 1], values[middle], values[middle + 1]
    bend = left - 2.0 * centre + right
    offset = jnp.where(bend < 0.0, 0.5 * (left - right) / jnp.where(bend < 0.0, bend, 1.0), 0.0)
    inner = points[middle] + jnp.clip(offset, -1.0, 1.0) * (points[1] - points[0])
    return jnp.where((best != middle) | (bend >= 0.0), points[best], inner)
