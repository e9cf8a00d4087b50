r"""The family of a dial as a table: a grid over levels α and shares λ; a target b at each node.

Shared by the dials of PG-SRM and AC-SRM (docs/algorithms/dial.md).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from downside._typing import Array
from downside.agents.settings import PathwiseSettings, Settings
from downside.risk import AbstractSpectralRisk, CVaRMixture, Dial

_LEVELS, _SHARES = 9, 6
"""Nodes of the table of targets."""
_CVAR_SHARE = 0.3
"""Share of training episodes whose measure is a CVaR alone."""
_SLOPE_POWER = 0.5
"""Episodes weigh as the steep slope of their measure to this power. With 0 cautious measures, whose
gradient is that of few episodes, are drowned; with 1 their noise drowns the others."""
HIGHEST_RANK = 0.995
"""The quantile of a level above this is that of this one."""


class Position(eqx.Module):
    """Where the dial stands in an episode, or in each of several."""

    target: Float[Array, "*n"]
    """b: where the utility bends."""
    ratio: Float[Array, "*n"]
    """κ: its slope above the bend, as a share of the slope below."""
    weight: Float[Array, "*n"]
    """Of the episode in training."""


class Measures(eqx.Module):
    """Measures of the family: where each is in the unit square of the table."""

    place: Float[Array, "*n"]
    """By level: 0 at the lowest, 1 at the highest."""
    share: Float[Array, "*n"]
    """λ."""


class DialTable(eqx.Module):
    """A grid over the levels and shares of a family."""

    family: Dial = eqx.field(static=True)

    def level(self, place: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The level at a place in [0, 1]: evenly by its root, so that low ones are dense."""
        low, high = (bound**0.5 for bound in self.family.levels)
        return (low + place * (high - low)) ** 2

    def nodes(self) -> tuple[Float[Array, "levels shares"], Float[Array, "levels shares"]]:
        """Level and share of each node."""
        grid = self.grid()
        return self.level(grid.place), grid.share

    def grid(self) -> Measures:
        """The measure of each node."""
        places, shares = jnp.linspace(0.0, 1.0, _LEVELS), jnp.linspace(0.0, 1.0, _SHARES)
        return Measures(*jnp.meshgrid(places, shares, indexing="ij"))

    def measure(self, objective: CVaRMixture) -> Measures:
        """Where a measure of the family is."""
        share = objective.linear
        low, high = (bound**0.5 for bound in self.family.levels)
        level = jnp.where(share < 1.0, objective.levels[0], ((low + high) / 2) ** 2)
        return Measures((jnp.sqrt(level) - low) / (high - low), share)

    def spread_evenly(
        self, key: Key[Array, ""], count: int, mean_fraction: float = 0.0
    ) -> Measures:
        """So many measures, spread evenly over the family; some are a CVaR alone, and a fraction
        the mean alone."""
        first, second = jax.random.uniform(key, (2,))
        place = (jnp.arange(count) + first) / count
        turn = (jnp.arange(count) * 0.6180339887 + second) % 1.0
        mixed = 1.0 - _CVAR_SHARE - mean_fraction
        return Measures(place, jnp.clip((turn - _CVAR_SHARE) / mixed, 0.0, 1.0))

    def position(self, measures: Measures, targets: Float[Array, "*n"]) -> Position:
        """With these targets, at these measures."""
        slope = self.slope(measures)
        return Position(targets, measures.share / slope, slope**_SLOPE_POWER)

    def slope(self, measures: Measures) -> Float[Array, "*n"]:
        r"""$\sigma = \lambda + (1 - \lambda)/\alpha$: the slope of h below its bend."""
        return measures.share + (1.0 - measures.share) / self.level(measures.place)


def check_sees_memory(settings: Settings) -> None:
    """Raises if the actor is not to see (s, c)."""
    if isinstance(settings, PathwiseSettings) and not settings.see_memory:
        raise ValueError(
            "`see_memory` must be True for a dial, got False: its actor sees how far the "
            "accumulated reward is from the target. Leave it out."
        )


def objective_of(risk: AbstractSpectralRisk) -> CVaRMixture:
    """With one level, also for the mean: one compiled program serves all measures."""
    return CVaRMixture.of(risk).padded(1)


def interpolate(table: Float[Array, "levels shares"], measures: Measures) -> Float[Array, "*n"]:
    """Between the four nodes around each measure."""
    rows, columns = (size - 1 for size in table.shape)
    x, y = (
        jnp.clip(part, 0.0, 1.0) * size
        for part, size in ((measures.place, rows), (measures.share, columns))
    )
    i = jnp.clip(x.astype(jnp.int32), 0, rows - 1)
    j = jnp.clip(y.astype(jnp.int32), 0, columns - 1)
    u, v = x - i, y - j
    low = (1.0 - v) * table[i, j] + v * table[i, j + 1]
    high = (1.0 - v) * table[i + 1, j] + v * table[i + 1, j + 1]
    return (1.0 - u) * low + u * high
