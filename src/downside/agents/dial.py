r"""The dial: one actor for every mixture of the mean and one CVaR.

For $\lambda\,\mathbb{E} + (1 - \lambda)\,\mathrm{CVaR}_\alpha$ the utility h has one bend b and two
slopes. Divided by the slope below the bend and shifted by b it is
$u(G) = \kappa\,(G - b) + (1 - \kappa) \min(G - b, 0)$, a function of $G - b$ and of $\kappa$ alone.
So the best action depends on the accumulated reward only through $s - b$, and on $\kappa$: an actor
that sees both holds the whole family (docs/algorithms/dial.md).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from downside._random import stream
from downside.agents.actor import ActionHead
from downside.agents.algorithm import AbstractActorAlgorithm, AbstractDialAlgorithm
from downside.agents.choice_dial import ChoiceDial
from downside.agents.dial_table import (
    HIGHEST_RANK,
    DialTable,
    Position,
    check_sees_memory,
    interpolate,
    objective_of,
)
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv, AbstractMemoryInput, Memory, ReturnInput
from downside.envs.memory import append
from downside.risk import AbstractSpectralRisk, Dial, Utility

_OFF_CURVE = 0.5
"""Share of training episodes whose target is not that of a measure but near it."""
_NOISE = 0.5
"""How near, in standard deviations of the returns."""
_TARGET_RATE = 0.5
"""How far targets move towards the quantiles at an outer step."""


class DialVariable(eqx.Module):
    """The outer variable: where the dial stands, and the targets of the whole family."""

    position: Position
    targets: Float[Array, "levels shares"]
    """b of each node of the table, by level and share of the mean."""
    spreads: Float[Array, "levels shares"]
    """The standard deviation of the returns of its policy."""


class DialSRM(AbstractActorAlgorithm, AbstractDialAlgorithm):
    r"""PG-SRM for all measures of a `Dial` at once.

    Memory: (s, c), seen as (s - b, c). Decides: an actor network, which sees κ too. Outer
    variable: a table of b over levels and shares, moved to the quantiles of the returns of each
    node's policy. In training every pair of mirrored episodes has a measure of its own.
    """

    name: ClassVar[str] = "PG-SRM"
    preset: ClassVar[Mapping[str, Any]] = {
        "hidden_sizes": (64, 64),
        "batch_size": 6144,
        "updates": 4000,
        "final_batches": 1,
        "rounding_fraction": 0.5,
        "rounding_noise": 0.0,
    }
    """Larger networks and batches than for one measure, and as many episodes in all. Rounding as in
    docs/algorithms/dial.md; with noise and from the start it was not measured for a dial."""
    family: Dial = eqx.field(static=True, default_factory=Dial)

    @classmethod
    def make_family(cls, family: Dial, risk: AbstractSpectralRisk, settings: Settings) -> "DialSRM":
        """The algorithm of a family, standing at one of its measures."""
        family.member(risk)
        check_sees_memory(settings)
        return cls(objective_of(risk), settings.gamma, family)

    @classmethod
    def fitting(cls, env: AbstractJaxEnv) -> type[AbstractDialAlgorithm]:
        """Itself where there is a gradient to follow."""
        return ChoiceDial if ActionHead.of(env)[0].low is None else cls

    def at(self, risk: AbstractSpectralRisk) -> "DialSRM":
        """The algorithm, standing at another measure of the family."""
        return type(self)(objective_of(risk), self.gamma, self.family)

    # --- memory -------------------------------------------------------------------------------

    def memory_input(self, outer: Any) -> AbstractMemoryInput:
        """(s, c): the target may change in the middle of an episode."""
        del outer
        return ReturnInput()

    @property
    def inputs_appended(self) -> int:
        """The distance s - b, c and κ."""
        return 3

    def network_input(
        self, observation: Float[Array, " d"], memory: Memory, outer: DialVariable | Position
    ) -> Float[Array, " e"]:
        """The observation, s - b, c, and the root of κ, whose small values differ most."""
        position = outer.position if isinstance(outer, DialVariable) else outer
        distance = memory.accumulated - position.target
        return append(observation, (distance, memory.discount_so_far, jnp.sqrt(position.ratio)))

    # --- training -----------------------------------------------------------------------------

    def positions(self, key: Key[Array, ""], count: int, outer: DialVariable) -> Position:
        """A measure for each pair of mirrored episodes, spread evenly over the family, with the
        target of its policy or one near it."""
        half = (count + 1) // 2
        drawn = self._table.spread_evenly(stream(key, "measures"), half)
        target, spread = (interpolate(table, drawn) for table in (outer.targets, outer.spreads))
        noise = _NOISE * jax.random.normal(stream(key, "targets"), (half,))
        off = jax.random.bernoulli(stream(key, "off"), _OFF_CURVE, (half,))
        drawn = self._table.position(drawn, target + jnp.where(off, noise * spread, 0.0))
        weight = drawn.weight / drawn.weight.mean()
        drawn = Position(drawn.target, drawn.ratio, weight)
        return jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf])[:count], drawn)

    def batch_value(self, returns: Float[Array, " n"], positions: Position) -> Float[Array, ""]:
        """The weighted mean utility."""
        return (positions.weight * self.utilities(returns, returns, positions)).mean()

    def utilities(
        self, returns: Float[Array, "n *A"], main: Float[Array, " m"], positions: Position
    ) -> Float[Array, "n *A"]:
        r"""$\kappa\,(G - b) + (1 - \kappa) \min(G - b, 0)$ of each return."""
        del main
        shape = (-1, *[1] * (returns.ndim - 1))
        ratio, target = positions.ratio.reshape(shape), positions.target.reshape(shape)
        beyond = returns - target
        return ratio * beyond + (1.0 - ratio) * jnp.minimum(beyond, 0.0)

    # --- the outer step -----------------------------------------------------------------------

    def initial_outer(self, returns: Float[Array, " n"]) -> DialVariable:
        """The targets at the quantiles of the `returns`."""
        levels, _ = self._table.nodes()
        targets = _quantile(jnp.sort(returns)[None, None], levels)
        return self._standing(targets, jnp.full_like(targets, returns.std()))

    def measuring_positions(self, outer: DialVariable, count: int) -> Position:
        """Each node of the table, for an equal share of the episodes; the first one has what is
        left over."""
        nodes = self._table.position(self._table.grid(), outer.targets)
        nodes = jax.tree.map(jnp.ravel, nodes)
        index = jnp.arange(count) // self._episodes_per_node(count)
        index = jnp.where(index < nodes.target.size, index, 0)
        return jax.tree.map(lambda leaf: leaf[index], nodes)

    def measured(
        self, outer: DialVariable, returns: Float[Array, " n"]
    ) -> tuple[Float[Array, ""], DialVariable]:
        """The mean value over the nodes, and the targets nearer to the quantiles."""
        levels, shares = self._table.nodes()
        each = self._episodes_per_node(returns.shape[0])
        ordered = jnp.sort(returns[: each * levels.size].reshape(*levels.shape, each), axis=-1)
        quantiles = _quantile(ordered, levels)
        below = jnp.minimum(ordered - quantiles[..., None], 0.0).mean(axis=-1)
        values = shares * ordered.mean(axis=-1) + (1.0 - shares) * (quantiles + below / levels)
        targets = outer.targets + _TARGET_RATE * (quantiles - outer.targets)
        targets = jnp.sort(targets, axis=0)  # a higher level has a higher quantile
        return values.mean(), self._standing(targets, ordered.std(axis=-1))

    def utility(self, outer: DialVariable) -> Utility:
        """H of the measure where the dial stands."""
        return self.objective.utility(outer.position.target[None])

    def logged(self, outer: DialVariable) -> Mapping[str, Float[Array, ""]]:
        """The lowest and the highest target of the family."""
        return {"knot_low": outer.targets.min(), "knot_high": outer.targets.max()}

    # --- where the dial stands ----------------------------------------------------------------

    def bracket(self, outer: DialVariable) -> tuple[float, float]:
        """The target of the present measure by the table, and the standard deviation of the returns
        of its policy."""
        mine = self._table.measure(self.objective)
        target, spread = (float(interpolate(t, mine)) for t in (outer.targets, outer.spreads))
        return target, spread

    def standing(self, outer: DialVariable, target: Float[Array, ""] | float) -> DialVariable:
        """The outer variable with the present measure's target."""
        return self._standing(outer.targets, outer.spreads, jnp.asarray(target, float))

    def _standing(
        self, targets: Array, spreads: Array, target: Float[Array, ""] | None = None
    ) -> DialVariable:
        mine = self._table.measure(self.objective)
        target = interpolate(targets, mine) if target is None else target
        return DialVariable(self._table.position(mine, target), targets, spreads)

    @property
    def _table(self) -> DialTable:
        return DialTable(self.family)

    def _episodes_per_node(self, count: int) -> int:
        nodes = self._table.grid().share.size
        if count < nodes:
            raise ValueError(
                f"`outer_episodes` must be at least {nodes} for a dial, one for each "
                f"measure of its table; got {count}."
            )
        return count // nodes


def _quantile(
    ordered: Float[Array, "*node n"], levels: Float[Array, "levels shares"]
) -> Float[Array, "levels shares"]:
    """The return that the share `levels` lies below, of returns in increasing order."""
    count = ordered.shape[-1]
    index = jnp.floor(jnp.minimum(levels, HIGHEST_RANK) * count).astype(jnp.int32)
    ordered = jnp.broadcast_to(ordered, (*levels.shape, count))
    return jnp.take_along_axis(ordered, index[..., None], axis=-1)[..., 0]
