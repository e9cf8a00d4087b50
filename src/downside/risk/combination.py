"""Sums of risk measures."""

import math
from collections.abc import Iterable
from typing import Any

import equinox as eqx

from downside._arrays import real
from downside._typing import Array
from downside.risk.base import AbstractSpectralRisk, join
from downside.risk.measures import number


class WeightedSum(AbstractSpectralRisk):
    r"""A weighted sum of risk measures, as `0.5 * Mean() + 0.5 * CVaR(0.2)` makes it.

    $\phi = \sum_i w_i \phi_i$. The weights must be non-negative and sum to 1. While a sum is being
    written they need not (`0.5 * Mean()` is half a measure), so the total is checked on use.
    """

    parts: tuple[tuple[float, AbstractSpectralRisk], ...] = eqx.field(static=True)
    """The measures with their weights."""

    def __init__(self, parts: Iterable[tuple[float, AbstractSpectralRisk]]):
        flat: list[tuple[float, AbstractSpectralRisk]] = []
        for weight, part in parts:
            if not isinstance(part, AbstractSpectralRisk):
                raise TypeError(f"`parts` must be weights with risk measures, got {part!r}.")
            weight = real(weight, "weight")
            inner = part.parts if isinstance(part, WeightedSum) else ((1.0, part),)
            flat += [(weight * share, term) for share, term in inner]
        self.parts = tuple(flat)
        for weight, part in self.parts:
            if not 0.0 <= weight < math.inf:
                raise ValueError(
                    f"The weight of a risk measure must be non-negative, got {weight:g} for {part}."
                )

    @property
    def terms(self) -> tuple[tuple[float, AbstractSpectralRisk], ...]:
        """The measures with their weights, those of weight 0 left out."""
        return tuple((weight, part) for weight, part in self.parts if weight > 0)

    @property
    def total_weight(self) -> float:
        """What the weights sum to: 1 for a risk measure."""
        return math.fsum(weight for weight, _ in self.parts)

    def check(self) -> None:
        """Raises unless the weights sum to 1."""
        if abs(self.total_weight - 1.0) > 1e-9:
            raise ValueError(
                f"The weights of a risk measure must sum to 1, got {self.total_weight:.10g} in "
                f"{self}. Change a weight, or divide the sum by {self.total_weight:.10g}."
            )

    def _spectrum(self, u: Array, xp: Any) -> Array:
        self.check()
        return sum(
            (weight * part._spectrum(u, xp) for weight, part in self.terms), start=xp.zeros_like(u)
        )

    def _cumulative(self, u: Array, xp: Any) -> Array:
        self.check()
        return sum(
            (weight * part._cumulative(u, xp) for weight, part in self.terms),
            start=xp.zeros_like(u),
        )

    @property
    def atoms(self) -> tuple[tuple[float, float], ...]:
        """The point masses of all the terms, equal levels joined."""
        self.check()
        atoms = (
            (level, weight * share) for weight, part in self.terms for level, share in part.atoms
        )
        return tuple(sorted(join(atoms).items()))

    @property
    def support(self) -> float:
        """The largest share that matters to one of the terms."""
        self.check()
        return max(part.support for _, part in self.terms)

    def __repr__(self) -> str:
        return " + ".join(f"{weight!r} * {part!r}" for weight, part in self.parts)

    def __str__(self) -> str:
        texts = [(number(weight), str(part)) for weight, part in self.parts]
        return " + ".join(
            f"{weight}*({part})" if "*" in part else f"{weight}*{part}" for weight, part in texts
        )
