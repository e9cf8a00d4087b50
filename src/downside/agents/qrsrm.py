"""QR-SRM: any static spectral risk measure of the return of the whole episode."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from downside.agents.algorithm import AbstractAlgorithm, Measured
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv, JaxReturnAware
from downside.ops import mean_score, utility_score, utility_target
from downside.risk import AbstractSpectralRisk, Utility

_ACCUMULATED, _DISCOUNT = -2, -1


class Aim(eqx.Module):
    r"""The utility of the outer step, as a shape and a place: $h(z) = l + u(z - l)$.

    The networks see the accumulated reward relative to $l$. So the knots can move together without
    anything having to be learned anew, and for a single CVaR $u$ never changes at all.
    """

    utility: Utility
    """u."""
    location: Float[Array, ""]
    """l."""

    def absolute(self) -> Utility:
        """The utility h itself, as a function of the return."""
        u, place = self.utility, self.location
        offset = u.offset + place * (1.0 - u.linear)
        return Utility(u.knots + place, u.drops, linear=u.linear, offset=offset)


class SRM(AbstractAlgorithm):
    r"""QR-SRM (section 4).

    Augmentation: (s, c). Score: $\mathbb{E}[h(s + c G)]$, learned as such (Lemma 1 of appendix B:
    $V(x, s, c, a) = \mathbb{E}[\max_{a'} V(x', s', c', a')]$, and $h(s')$ at the end) or as the
    mean of h over learned quantiles (Algorithm 2). Outer step: h from the return at the start.

    Differs: see docs/agents.md.
    """

    name: ClassVar[str] = "QR-SRM"
    lived_preset: ClassVar[Mapping[str, Any]] = {"past_steps": 1}

    discreet: bool = eqx.field(static=True, default=False)
    """Whether (s, c) is shown to the networks only once h bends."""
    tie_break: float = eqx.field(static=True, default=0.0)
    """The share of the mean in h."""

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "AbstractAlgorithm":
        """The algorithm for a measure."""
        made = super().make(risk, settings, levels)
        return dataclasses.replace(made, discreet=settings.discreet, tie_break=settings.tie_break)

    # --- augmentation -------------------------------------------------------------------------

    def wrap(self, env: AbstractJaxEnv, goal: Aim) -> AbstractJaxEnv:
        """With (s, c)."""
        del goal
        return JaxReturnAware(env, self.gamma)

    def remembered(
        self, accumulated: Float[Array, ""], discount_so_far: Float[Array, ""], goal: Aim
    ) -> Float[Array, " m"]:
        """(s, c)."""
        del goal
        return jnp.stack([accumulated, discount_so_far])

    def relabel(
        self,
        observation: Float[Array, " d"],
        next_observations: Float[Array, "b K d"],
        amount: Float[Array, ""],
    ) -> tuple[Float[Array, " d"], Float[Array, "b K d"]]:
        """Both s and s' = s + c r are larger by the amount."""
        return (
            observation.at[_ACCUMULATED].add(amount),
            next_observations.at[..., _ACCUMULATED].add(amount),
        )

    def view(self, observation: Float[Array, " d"], goal: Aim) -> Float[Array, " d"]:
        """With s relative to the place of h; without (s, c) where nobody asks for it."""
        seen = observation.at[_ACCUMULATED].add(-goal.location)
        if not self.discreet:
            return seen
        return seen.at[_ACCUMULATED:].multiply(_bends(goal).astype(seen.dtype))

    @property
    def hidden_at_first(self) -> int:
        """Two: s and c."""
        return 2 if self.discreet else 0

    # --- score --------------------------------------------------------------------------------

    def quantile_scores(
        self, quantiles: Float[Array, "A N"], observation: Float[Array, " d"], goal: Aim
    ) -> Float[Array, " A"]:
        """The mean of u(s - l + c θ).

        If `discreet`, of θ while h is a line: all else is the same for all actions, and the run is
        that of QR-DQN, but for rounding.
        """
        accumulated, discount = observation[_ACCUMULATED] - goal.location, observation[_DISCOUNT]
        if not self.discreet:
            return utility_score(quantiles, goal.utility, accumulated, discount)
        # Computed apart, or the compiler rounds the mean differently for every number of knots.
        apart = jax.lax.optimization_barrier(quantiles)
        scores = utility_score(apart, goal.utility, accumulated, discount)
        return jnp.where(_bends(goal), scores, mean_score(quantiles))

    def anchored(
        self, relative: Float[Array, " A"], observation: Float[Array, " d"], goal: Aim
    ) -> Float[Array, " A"]:
        r"""$u(s - l) + c\,f$.

        The recursion of the score itself has neither reward nor discount: any large enough constant
        obeys it, as never to end then costs nothing. That of $f$ has both,
        $f = \mathbb{E}[(u(s' - l) - u(s - l))/c + \gamma \max f']$, and hence one solution.
        """
        over = goal.utility(observation[_ACCUMULATED] - goal.location)
        return over + observation[_DISCOUNT] * relative

    def critic_target(
        self,
        next_observation: Float[Array, " d"],
        next_score: Float[Array, ""],
        terminated: Bool[Array, ""],
        discount: Float[Array, ""] | float,
        goal: Aim,
    ) -> Float[Array, ""]:
        """The best score of the next state; at the end u(s' - l)."""
        del discount
        accumulated = next_observation[_ACCUMULATED] - goal.location
        return utility_target(goal.utility, accumulated, next_score, terminated)

    def predicted_value(self, score: Float[Array, ""], goal: Aim) -> Float[Array, ""]:
        """J = E[h(G)] = l + E[u(G - l)]."""
        return goal.location + score

    # --- outer step ---------------------------------------------------------------------------

    def first_goal(self, returns: Float[Array, " n"]) -> Aim:
        """h(z) = z, with as many knots as there will be."""
        del returns
        flat = jnp.zeros_like(self.objective.drops)
        return Aim(Utility(flat, flat, linear=jnp.ones(())), jnp.zeros(()))

    def candidates(
        self,
        goal: Aim,
        spread: Float[Array, ""],
        settings: Settings,
        start_score: Callable[[Aim], Float[Array, ""]],
    ) -> Aim:
        """The same shape at several places."""
        del start_score
        steps = jnp.linspace(-1.0, 1.0, settings.shifts) * settings.shift_span * spread
        return jax.vmap(lambda step: Aim(goal.utility, goal.location + step))(steps)

    def outer_step(self, goal: Aim, measured: Measured, rate: float, first: Bool[Array, ""]) -> Aim:
        """The shape from the returns of the best candidate, the place where J is highest."""
        best = jnp.argmax(measured.values)
        place, knots = self._shape(self.objective.quantiles(measured.returns[best]))
        found = refined_maximum(measured.goals.location, measured.values)
        step = jnp.where(first, 1.0, rate)
        location = goal.location + step * (jnp.where(first, place, found) - goal.location)
        knots = goal.utility.knots + step * (knots - goal.utility.knots)
        return Aim(self._utility(knots), location)

    def lived_outer_step(
        self, goal: Aim, returns: Float[Array, " n"], rate: Float[Array, ""] | float
    ) -> Aim:
        """Both the shape and the place from the returns."""
        place, knots = self._shape(self.objective.quantiles(returns))
        knots = goal.utility.knots + rate * (knots - goal.utility.knots)
        location = goal.location + rate * (place - goal.location)
        return Aim(self._utility(knots), location)

    def learned_outer_step(
        self,
        goal: Aim,
        start: Float[Array, " n"],
        start_score: Callable[[Aim], Float[Array, ""]],
        rate: Float[Array, ""] | float,
    ) -> Aim:
        """The utility h from the learned return at the start, in place."""
        del start_score
        knots = goal.utility.knots + rate * (self.objective.quantiles(start) - goal.utility.knots)
        return Aim(self._utility(knots), jnp.zeros(()))

    def _utility(self, knots: Float[Array, " k"]) -> Utility:
        """h, with the share of the mean that breaks ties."""
        h, share = self.objective.utility(knots), self.tie_break
        return Utility(
            h.knots,
            (1.0 - share) * h.drops,
            linear=1.0 - (1.0 - share) * (1.0 - h.linear),  # exactly 1 for the mean
            offset=(1.0 - share) * h.offset,
        )

    def _shape(self, knots: Float[Array, " k"]) -> tuple[Float[Array, ""], Float[Array, " k"]]:
        """The place of knots, and the knots relative to it."""
        total = self.objective.drops.sum()
        place = jnp.where(
            total > 0, (self.objective.drops * knots).sum() / jnp.where(total > 0, total, 1.0), 0.0
        )
        return place, knots - place


def _bends(goal: Aim) -> Bool[Array, ""]:
    """Whether h is anything but a line."""
    return (goal.utility.drops != 0).any()


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
