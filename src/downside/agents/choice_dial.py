r"""The dial for unordered discrete actions: the expected utility of every action at every target.

With unordered actions there is no gradient to follow through an episode. Instead the actor's
outputs learn the utility that is to be expected of each action,
$Q(x, s - b, c;\ \kappa) = \mathbb{E}[u_\kappa(G - b)]$, by backward induction (`backward.py`), and
the policy takes the action with the highest. This needs no level α: the policy of every pair
(b, κ) is learned over the whole range of returns. Which b belongs to a measure is found afterwards
by playing the policies of many b.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import AbstractActorAlgorithm, AbstractDialAlgorithm
from downside.agents.dial_table import DialTable, check_sees_memory, interpolate, objective_of
from downside.agents.settings import Settings
from downside.envs import AbstractMemoryInput, Memory, ReturnInput
from downside.envs.memory import append
from downside.risk import AbstractSpectralRisk, Dial, Utility

_EVEN_TARGETS = 9
"""Targets that are played at an outer step, evenly over the range; and the table's for a CVaR."""
_ROOT_RATIOS = (0.0, 0.2, 0.4, 0.7, 1.0)
"""√κ of the policies that are played."""
_NEAR_TABLE = 0.3
"""Share of training positions near a target of the table; the others are spread over the range."""
_NEAR = 0.03
"""How near, as a share of the range."""
_NO_MEAN = 0.8
"""Share of the others with κ = 0."""
_TAIL, _MARGIN = 0.01, 0.01
"""The range reaches from this quantile of returns to the mirrored one, and a share beyond."""
_LEAST_SCALE = 0.05
"""The least scale of utilities, in `unit`s."""
_SCALES = (10.0, 100.0)
"""How much finer the distance to the target is also shown, on a logarithmic scale."""
_SEARCHED = 25
"""Targets at which the search for that of a measure begins."""


class ChoicePosition(eqx.Module):
    """Where the dial stands in an episode, or in each of several."""

    target: Float[Array, "*n"]
    """b: where the utility bends."""
    ratio: Float[Array, "*n"]
    """κ: its slope above the bend, as a share of the slope below."""
    unit: Float[Array, "*n"]
    """A quarter of the range of returns."""
    scale: Float[Array, "*n"]
    """About how much utilities differ: those of a low b less than those of a high one."""

    def utility(self, returns: Float[Array, "*n"]) -> Float[Array, "*n"]:
        r"""$u_\kappa(G - b) = \kappa\,(G - b) + (1 - \kappa) \min(G - b, 0)$."""
        beyond = returns - self.target
        return self.ratio * beyond + (1.0 - self.ratio) * jnp.minimum(beyond, 0.0)


class ChoiceVariable(eqx.Module):
    """The outer variable: where the dial stands, the targets of the family, the range of b."""

    position: ChoicePosition
    targets: Float[Array, "levels shares"]
    """b of each node of the table, by level and share of the mean."""
    low: Float[Array, ""]
    high: Float[Array, ""]
    """The range of returns."""
    played: Float[Array, " M"]
    """Targets that were played at the last outer step, in increasing order."""
    spreads: Float[Array, " M"]
    """The standard deviation of the utility of each, with κ = 0."""
    steps: Int[Array, ""]
    """Outer steps so far."""

    @property
    def unit(self) -> Float[Array, ""]:
        """A quarter of the range."""
        return (self.high - self.low) / 4.0

    def place(self, targets: Float[Array, "*n"], ratios: Float[Array, "*n"]) -> ChoicePosition:
        """A position with the scale of its utilities."""
        spread = jnp.interp(targets, self.played, self.spreads)
        scale = ratios * self.unit + (1.0 - ratios) * spread
        scale = jnp.maximum(scale, _LEAST_SCALE * self.unit)
        return ChoicePosition(targets, ratios, jnp.broadcast_to(self.unit, targets.shape), scale)


class ChoiceDial(AbstractActorAlgorithm, AbstractDialAlgorithm):
    """PG-SRM for all measures of a `Dial` at once, where discrete actions have no order.

    Memory: (s, c), seen as (s - b, c). Decides: the highest of the learned expected utilities.
    Outer variable: the range of returns, over which b is drawn in training, and a table of the best
    b over levels and shares, near which a part of it is drawn.
    """

    name: ClassVar[str] = "PG-SRM"
    preset: ClassVar[Mapping[str, Any]] = {
        "hidden_sizes": (64, 64),
        "batch_size": 4096,
        "updates": 4000,
        "final_batches": 1,
        "learning_rate": 0.005,
        "keep_best": False,
    }
    family: Dial = eqx.field(static=True, default_factory=Dial)

    @classmethod
    def make_family(
        cls, family: Dial, risk: AbstractSpectralRisk, settings: Settings
    ) -> "ChoiceDial":
        """The algorithm of a family, standing at one of its measures."""
        family.member(risk)
        check_sees_memory(settings)
        return cls(objective_of(risk), settings.gamma, family)

    def at(self, risk: AbstractSpectralRisk) -> "ChoiceDial":
        """The algorithm, standing at another measure of the family."""
        return type(self)(objective_of(risk), self.gamma, self.family)

    # --- memory -------------------------------------------------------------------------------

    def memory_input(self, outer: Any) -> AbstractMemoryInput:
        """(s, c): the target may change in the middle of an episode."""
        del outer
        return ReturnInput()

    @property
    def inputs_appended(self) -> int:
        """The distance s - b on several scales, c and κ."""
        return 4 + len(_SCALES)

    def network_input(
        self,
        observation: Float[Array, " d"],
        memory: Memory,
        outer: ChoiceVariable | ChoicePosition,
    ) -> Float[Array, " e"]:
        """The observation, s - b, c, and the root of κ.

        Near the target small distances decide, and far from it ratios do: s - b is shown in units,
        on two logarithmic scales and as a soft step.
        """
        position = _position(outer)
        distance = (memory.accumulated - position.target) / position.unit
        size = jnp.abs(distance)
        fine = (jnp.sign(distance) * jnp.log1p(scale * size) for scale in _SCALES)
        step = jnp.tanh(30.0 * distance)
        ratio = jnp.sqrt(position.ratio)
        return append(observation, (distance, *fine, step, memory.discount_so_far, ratio))

    # --- training -----------------------------------------------------------------------------

    def expected_utilities(
        self, outputs: Float[Array, " A"], memory: Memory, outer: ChoiceVariable | ChoicePosition
    ) -> Float[Array, " A"]:
        """What the outputs of the actor say: by how many units the utility will change from what it
        would be if nothing more were earned."""
        position = _position(outer)
        return position.utility(memory.accumulated) + position.unit * outputs

    def positions(self, key: Key[Array, ""], count: int, outer: ChoiceVariable) -> ChoicePosition:
        """For some episodes the target of a measure or one near it, and for the others any pair
        (b, κ)."""
        drawn = self._table.spread_evenly(stream(key, "measures"), count)
        width = outer.high - outer.low
        noise = _NEAR * width * jax.random.normal(stream(key, "targets"), (count,))
        near = interpolate(outer.targets, drawn) + noise
        # Densest at the low end, where what cautious measures need is small.
        anywhere = outer.low + width * jax.random.uniform(stream(key, "anywhere"), (count,)) ** 3
        root = jax.random.uniform(stream(key, "ratios"), (count,))
        ratio = (jnp.maximum(root - _NO_MEAN, 0.0) / (1.0 - _NO_MEAN)) ** 2
        is_near = jax.random.bernoulli(stream(key, "near"), _NEAR_TABLE, (count,))
        return outer.place(
            jnp.where(is_near, near, anywhere),
            jnp.where(is_near, self._table.position(drawn, near).ratio, ratio),
        )

    def batch_value(self, returns: Float[Array, " n"], positions: ChoicePosition) -> Array:
        """The mean utility."""
        return positions.utility(returns).mean()

    def utilities(
        self, returns: Float[Array, "n *A"], main: Float[Array, " m"], positions: ChoicePosition
    ) -> Float[Array, "n *A"]:
        r"""$u_\kappa(G - b)$ of each return."""
        del main
        if returns.ndim == 1:
            return positions.utility(returns)
        return jax.vmap(positions.utility, in_axes=1, out_axes=1)(returns)

    # --- the outer step -----------------------------------------------------------------------

    def initial_outer(self, returns: Float[Array, " n"]) -> ChoiceVariable:
        """The range of random play, and targets spread over it."""
        ordered = jnp.sort(returns)
        low, high = _with_margin(_rank(ordered, _TAIL), _rank(ordered, 1.0 - _TAIL))
        targets = low + self._table.grid().place * (high - low)
        played = self._played(low, high, targets)
        below = jnp.minimum(ordered - played[:, None], 0.0)
        steps = jnp.zeros((), jnp.int32)
        return self._standing(targets, low, high, played, below.std(axis=1), steps)

    @property
    def policies_measured(self) -> int:
        """Pairs (b, κ) that are played at an outer step."""
        return self._played_targets * len(_ROOT_RATIOS)

    def measuring_positions(self, outer: ChoiceVariable, count: int) -> ChoicePosition:
        """Each pair (b, κ), for an equal share of the episodes; the first one has what is left."""
        targets, roots = jnp.meshgrid(outer.played, jnp.asarray(_ROOT_RATIOS), indexing="ij")
        each = self._episodes_each(count)
        index = jnp.arange(count) // each
        index = jnp.where(index < targets.size, index, 0)
        return outer.place(targets.ravel()[index], roots.ravel()[index] ** 2)

    def measured(
        self, outer: ChoiceVariable, returns: Float[Array, " n"]
    ) -> tuple[Float[Array, ""], ChoiceVariable]:
        """The mean over the table of the best value of each measure; targets at the best b; and the
        range of the returns of the best policies."""
        played, levels = outer.played, self._table.nodes()[0]
        each = self._episodes_each(returns.shape[0])
        shape = (played.size, len(_ROOT_RATIOS), each)
        ordered = jnp.sort(returns[: shape[0] * shape[1] * each].reshape(shape), axis=-1)
        means = jnp.cumsum(ordered, axis=-1) / jnp.arange(1, each + 1)  # of the worst k
        worst = jnp.clip(jnp.round(levels[:, 0] * each).astype(jnp.int32), 1, each)
        tails = jnp.moveaxis(means[:, :, worst - 1], -1, 0)  # levels, b, κ
        grid = self._table.grid()
        shares = grid.share[0][:, None, None]
        values = (1.0 - shares) * tails[:, None] + shares * ordered.mean(axis=-1)
        # Of the policies, those whose κ is nearest to that of the measure.
        roots = jnp.sqrt(self._table.position(grid, grid.place).ratio)
        nearest = jnp.abs(roots[..., None] - jnp.asarray(_ROOT_RATIOS)).argmin(axis=-1)
        values = jnp.take_along_axis(values, nearest[..., None, None], axis=-1)[..., 0]
        best = values.argmax(axis=-1)
        targets = jnp.sort(played[best], axis=0)  # a higher level has a higher target
        chosen = ordered[best, nearest]
        low = _rank(chosen, _TAIL).min()
        low, high = _with_margin(low, _rank(chosen, 1.0 - _TAIL).max())
        rate = 5.0 / (outer.steps + 5.0)

        def moved(old: Array, new: Array) -> Array:
            return old + rate * (new - old)

        low, high = moved(outer.low, low), moved(outer.high, high)
        targets = moved(outer.targets, targets)
        below = jnp.minimum(ordered[:, 0] - played[:, None], 0.0)
        after = self._played(low, high, targets)
        spreads = jnp.interp(after, played, below.std(axis=1))
        after = self._standing(targets, low, high, after, spreads, outer.steps + 1)
        return values.max(axis=-1).mean(), after

    def utility(self, outer: ChoiceVariable) -> Utility:
        """H of the measure where the dial stands."""
        return self.objective.utility(outer.position.target[None])

    def logged(self, outer: ChoiceVariable) -> Mapping[str, Float[Array, ""]]:
        """The lowest and the highest target of the family."""
        return {"knot_low": outer.targets.min(), "knot_high": outer.targets.max()}

    # --- where the dial stands ----------------------------------------------------------------

    def bracket(self, outer: ChoiceVariable) -> tuple[float, float]:
        """The target of the present measure by the table, and the distance of those that are
        searched first."""
        mine = self._table.measure(self.objective)
        width = float(outer.high - outer.low)
        return float(interpolate(outer.targets, mine)), width / (_SEARCHED - 1)

    def first_targets(self, outer: ChoiceVariable) -> list[float]:
        """Over the whole range: the value may have several peaks."""
        return jnp.linspace(outer.low, outer.high, _SEARCHED).tolist()

    def standing(self, outer: ChoiceVariable, target: Float[Array, ""] | float) -> ChoiceVariable:
        """The outer variable with the present measure's target."""
        return self._standing(
            outer.targets,
            outer.low,
            outer.high,
            outer.played,
            outer.spreads,
            outer.steps,
            jnp.asarray(target, float),
        )

    def _standing(
        self,
        targets: Array,
        low: Array,
        high: Array,
        played: Array,
        spreads: Array,
        steps: Array,
        target: Float[Array, ""] | None = None,
    ) -> ChoiceVariable:
        mine = self._table.measure(self.objective)
        target = interpolate(targets, mine) if target is None else target
        ratio = self._table.position(mine, target).ratio
        nowhere = ChoicePosition(target, ratio, target, target)
        outer = ChoiceVariable(nowhere, targets, low, high, played, spreads, steps)
        return eqx.tree_at(lambda o: o.position, outer, outer.place(target, ratio))

    @property
    def _table(self) -> DialTable:
        return DialTable(self.family)

    @property
    def _played_targets(self) -> int:
        return _EVEN_TARGETS + self._table.grid().place.shape[0]

    def _played(self, low: Array, high: Array, targets: Array) -> Float[Array, " M"]:
        """What to play at the next outer step."""
        even = jnp.linspace(low, high, _EVEN_TARGETS)
        return jnp.sort(jnp.concatenate([even, targets[:, 0]]))

    def _episodes_each(self, count: int) -> int:
        if count < self.policies_measured:
            raise ValueError(
                f"`outer_episodes` must be at least {self.policies_measured} for a dial of "
                f"unordered actions, one for each policy that is compared; got {count}."
            )
        return count // self.policies_measured


def _position(outer: ChoiceVariable | ChoicePosition) -> ChoicePosition:
    return outer.position if isinstance(outer, ChoiceVariable) else outer


def _with_margin(low: Array, high: Array) -> tuple[Array, Array]:
    """A little more than this range, and never nothing."""
    margin = _MARGIN * (high - low) + 1e-6 * (1.0 + jnp.abs(low))
    return low - margin, high + margin


def _rank(ordered: Float[Array, "*k n"], rank: float) -> Float[Array, "*k"]:
    """A quantile of returns in increasing order."""
    count = ordered.shape[-1]
    return ordered[..., min(count - 1, int(rank * count))]
