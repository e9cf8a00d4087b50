r"""The dial from lived episodes: AC-SRM for every mixture of the mean and one CVaR at once.

Every episode has a position: a measure of the family and a target b. A transition pays
$\tilde r = (u(s + c r - b) - u(s - b))/c$ with $u(x) = \kappa x + (1 - \kappa) \min(x, 0)$
(docs/algorithms/dial.md).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from downside._random import stream
from downside.agents.algorithm import AbstractDialAlgorithm
from downside.agents.dial_table import (
    HIGHEST_RANK,
    DialTable,
    Measures,
    Position,
    interpolate,
    objective_of,
)
from downside.agents.lived import FARTHEST, LEAST_DISCOUNT, AbstractLivedAlgorithm
from downside.agents.settings import OnPolicySettings, Settings
from downside.envs import Memory
from downside.envs.memory import append
from downside.risk import AbstractSpectralRisk, Dial, Utility

_MEAN_FRACTION = 0.1
"""Share of the episodes whose measure is the mean alone: it is at the edge of the family, and there
are far fewer episodes than where they are simulated."""
_OFF_CURVE = 0.3
"""Share of the episodes whose target is not that of a measure but near it."""
_NOISE = 0.5
"""How near, in standard deviations of the returns."""
_SPREAD_POWER = 1.0
"""What is worth less spreads less. Episodes weigh as the inverse of the spread of their returns to
this power."""
_EPISODES = 4096
"""How many of the last episodes the table comes from at most."""
_WIDTHS = (0.09, 0.12)
"""How far episodes count for a node of the table, by place and share, if there are `_MANY`; further
if there are fewer."""
_MANY, _FEWER = 2000.0, 0.25
_FLOOR = 1e-3
"""What all other episodes count."""


class EpisodePositions(eqx.Module):
    """Of each of several episodes."""

    position: Position
    measures: Measures
    on_curve: Float[Array, " n"]
    """1 if the target is that of the measure, 0 if it is one near it."""


class LivedDial(eqx.Module):
    """The outer variable: where the dial stands, the targets of the whole family."""

    position: Position
    targets: Float[Array, "levels shares"]
    """b of each node of the table, by level and share of the mean."""
    spreads: Float[Array, "levels shares"]
    """The standard deviation of the returns there."""
    mean_share: Float[Array, ""]
    """The share of the mean in all utilities at this time of the run."""
    short: Float[Array, ""]
    """1 if episodes are so short that the networks see marks of the steps, else 0."""

    @property
    def spread(self) -> Float[Array, ""]:
        """Standard deviation of returns, about."""
        return self.spreads.mean()


class FamilyEpisodes(NamedTuple):
    """The last episodes of the whole family, in arrays of one size."""

    returns: Float[Array, " n"]
    """In increasing order."""
    measures: Measures
    weights: Float[Array, " n"]
    """1 where there is an episode that counts, else 0."""


class LivedDialSRM(AbstractLivedAlgorithm, AbstractDialAlgorithm):
    r"""AC-SRM for all measures of a `Dial` at once.

    Memory: (s, c), seen as (s - b, c). Decides: an actor network, which sees κ too. Outer
    variable: a table of b over levels and shares, moved to the quantiles of the returns of the last
    episodes around each node.
    """

    name: ClassVar[str] = "AC-SRM"
    family: Dial = eqx.field(static=True, default_factory=Dial)

    @classmethod
    def make_family(
        cls, family: Dial, risk: AbstractSpectralRisk, settings: Settings
    ) -> "LivedDialSRM":
        """The algorithm of a family, standing at one of its measures."""
        assert isinstance(settings, OnPolicySettings)
        family.member(risk)
        clock, steps = settings.has_clock, settings.step_inputs
        return cls(objective_of(risk), settings.gamma, clock, steps, family)

    def at(self, risk: AbstractSpectralRisk) -> "LivedDialSRM":
        """The algorithm, standing at another measure of the family."""
        objective = objective_of(risk)
        return type(self)(objective, self.gamma, self.has_clock, self.step_inputs, self.family)

    def network_input(
        self, observation: Float[Array, " d"], memory: Memory, outer: LivedDial
    ) -> Float[Array, " e"]:
        """As for one measure: the distance from the target, the bent part of the utility there, the
        distance in units of what can still be earned, c. And the root of κ."""
        accumulated, discount = memory
        observation = self.marked(observation, memory, outer.short)
        target, ratio = outer.position.target, outer.position.ratio
        above = (accumulated - target) / outer.spread
        bent = (1.0 - ratio) * jnp.minimum(above, 0.0)
        still = jnp.clip(above / jnp.maximum(discount, LEAST_DISCOUNT), -FARTHEST, FARTHEST)
        return append(observation, (above, bent, still, discount, jnp.sqrt(ratio)))

    # --- positions ----------------------------------------------------------------------------

    def positions(self, key: Key[Array, ""], count: int, outer: LivedDial) -> EpisodePositions:
        """Measures spread evenly over the family, in any order, each with the target of its policy
        or one near it."""
        drawn = self._table.spread_evenly(stream(key, "measures"), count, _MEAN_FRACTION)
        order = jax.random.permutation(stream(key, "order"), count)
        drawn = jax.tree.map(lambda leaf: leaf[order], drawn)
        target, spread = (interpolate(table, drawn) for table in (outer.targets, outer.spreads))
        noise = _NOISE * jax.random.normal(stream(key, "targets"), (count,))
        off = jax.random.bernoulli(stream(key, "off"), _OFF_CURVE, (count,))
        position = self._table.position(drawn, target + jnp.where(off, noise * spread, 0.0))
        weight = position.weight / spread**_SPREAD_POWER
        position = Position(position.target, position.ratio, weight)
        return EpisodePositions(position, drawn, 1.0 - off)

    def placed(self, outer: LivedDial, position: EpisodePositions | None) -> LivedDial:
        """With the dial where it stands in an episode."""
        if position is None:
            return outer
        return eqx.tree_at(lambda o: o.position, outer, position.position)

    def emphasis(self, positions: EpisodePositions) -> Float[Array, "*n"]:
        """The weight."""
        return positions.position.weight

    @property
    def recorded(self) -> int:
        """Place and share of the measure, and whether the target was on the curve."""
        return 3

    def record(self, positions: EpisodePositions | None, count: int) -> Float[np.ndarray, "n 3"]:
        """Place and share of the measure, and whether the target was on the curve."""
        assert positions is not None
        del count
        measures = positions.measures
        return np.stack([measures.place, measures.share, positions.on_curve], axis=-1)

    def utilities(self, accumulated: Any, positions: EpisodePositions, outer: LivedDial) -> Any:
        r"""$u(s - b)$, with a share of the mean for all."""
        measures = positions.measures
        share = np.asarray(measures.share, np.float64)
        slope = np.asarray(self._table.slope(measures), np.float64)
        mean = float(outer.mean_share)
        ratio = (mean + (1.0 - mean) * share) / (mean + (1.0 - mean) * slope)
        beyond = accumulated - np.asarray(positions.position.target, np.float64)
        return ratio * beyond + (1.0 - ratio) * np.minimum(beyond, 0.0)

    # --- the outer step -----------------------------------------------------------------------

    def initial_outer(self, returns: Float[Array, " n"]) -> LivedDial:
        """The mean, with targets at the quantiles of the `returns`."""
        levels, _ = self._table.nodes()
        rank = jnp.minimum(levels, HIGHEST_RANK) * returns.shape[0]
        targets = jnp.sort(returns)[rank.astype(jnp.int32)]
        spreads = jnp.full_like(targets, jnp.maximum(returns.std(), 1e-6))
        return self._standing(targets, spreads, jnp.ones(()), jnp.zeros(()))

    def summary(
        self, returns: Float[np.ndarray, " n"], records: Float[np.ndarray, "n 3"]
    ) -> FamilyEpisodes:
        """The last episodes on the curve, sorted."""
        returns, records = returns[-_EPISODES:], records[-_EPISODES:]
        if records[:, 2].any():
            returns, records = returns[records[:, 2] > 0], records[records[:, 2] > 0]
        order = np.argsort(returns, kind="stable")
        rows = np.zeros((_EPISODES, 4), np.float32)
        rows[: len(order)] = np.column_stack([returns, records])[order]
        rows[: len(order), 3], rows[len(order) :, 0] = 1.0, returns[order[-1]]
        ordered, place, share, weight = (jnp.asarray(column) for column in rows.T)
        return FamilyEpisodes(ordered, Measures(place, share), weight)

    def next_outer(
        self,
        outer: LivedDial,
        lived: FamilyEpisodes,
        mean_share: Float[Array, ""],
        rate: Float[Array, ""],
    ) -> LivedDial:
        """Targets and spreads a share `rate` of the way to those of the last episodes."""
        quantiles, spreads, _ = self._around_nodes(lived)
        targets = outer.targets + rate * (quantiles - outer.targets)
        targets = jnp.sort(targets, axis=0)  # a higher level has a higher quantile
        spreads = outer.spreads + rate * (spreads - outer.spreads)
        return self._standing(targets, spreads, mean_share, outer.short)

    def _around_nodes(self, lived: FamilyEpisodes) -> tuple[Array, Array, Array]:
        """Of the episodes around each node: the quantile of its level, the standard deviation, the
        value of its measure."""
        grid, (levels, shares) = self._table.grid(), self._table.nodes()
        wider = jnp.clip((_MANY / lived.weights.sum()) ** _FEWER, 1.0)
        apart = (
            (grid.place[..., None] - lived.measures.place) / (wider * _WIDTHS[0]),
            (grid.share[..., None] - lived.measures.share) / (wider * _WIDTHS[1]),
        )
        near = jnp.exp(-0.5 * (apart[0] ** 2 + apart[1] ** 2)) + _FLOOR
        weights = near * lived.weights
        weights = weights / weights.sum(axis=-1, keepdims=True)
        below = jnp.cumsum(weights, axis=-1) < jnp.minimum(levels, HIGHEST_RANK)[..., None]
        index = jnp.minimum(below.sum(axis=-1), lived.returns.shape[0] - 1)
        quantiles = lived.returns[index]
        means = (weights * lived.returns).sum(axis=-1)
        spreads = jnp.sqrt((weights * (lived.returns - means[..., None]) ** 2).sum(axis=-1))
        tails = (weights * jnp.minimum(lived.returns - quantiles[..., None], 0.0)).sum(axis=-1)
        values = shares * means + (1.0 - shares) * (quantiles + tails / levels)
        return quantiles, jnp.maximum(spreads, 1e-6), values

    def judged(
        self, lived: FamilyEpisodes, count: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean value over the nodes. Nothing is known of its error, so that the last policy is
        kept."""
        del count
        return self._around_nodes(lived)[2].mean(), jnp.asarray(jnp.inf)

    def utility(self, outer: LivedDial) -> Utility:
        """H of the measure where the dial stands."""
        return self.objective.utility(outer.position.target[None])

    def logged(self, outer: LivedDial) -> Mapping[str, Float[Array, ""]]:
        """The lowest and the highest target of the family."""
        return {"knot_low": outer.targets.min(), "knot_high": outer.targets.max()}

    # --- where the dial stands ----------------------------------------------------------------

    def bracket(self, outer: LivedDial) -> tuple[float, float]:
        """The target of the present measure by the table, and the standard deviation of the returns
        there."""
        mine = self._table.measure(self.objective)
        target, spread = (float(interpolate(t, mine)) for t in (outer.targets, outer.spreads))
        return target, spread

    def standing(self, outer: LivedDial, target: Float[Array, ""] | float) -> LivedDial:
        """The outer variable with the present measure's target."""
        position = self._table.position(
            self._table.measure(self.objective), jnp.asarray(target, float)
        )
        return eqx.tree_at(lambda o: o.position, outer, position)

    def _standing(self, targets: Array, spreads: Array, mean_share: Array, short: Array) -> Any:
        mine = self._table.measure(self.objective)
        position = self._table.position(mine, interpolate(targets, mine))
        return LivedDial(position, targets, spreads, mean_share, short)

    @property
    def _table(self) -> DialTable:
        return DialTable(self.family)
