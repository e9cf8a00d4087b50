"""The measures between two measures."""

from typing import Any

import numpy as np

from downside.risk import AbstractSpectralRisk, RiskSyntaxError, WeightedSum, as_risk, parse

_DIGITS = 6
"""Of a weight, so that thirds have a short text."""


def mixtures(
    start: AbstractSpectralRisk | str, end: AbstractSpectralRisk | str, points: int
) -> list[tuple[float, AbstractSpectralRisk]]:
    r"""Weights $w$ from 0 to 1 in equal steps, each with $(1 - w)\,$`start`$ + w\,$`end`.

    Arguments:
        start: the measure at $w = 0$, or its text.
        end: the measure at $w = 1$.
        points: how many, both ends included.
    """
    start, end = as_risk(start), as_risk(end)
    if isinstance(points, bool) or not isinstance(points, int | np.integer) or points < 2:
        raise ValueError(
            f"`points` must be a whole number >= 2, the two ends among them; got {points!r}."
        )
    if same(start, end):
        raise ValueError(
            f"`start` and `end` must be two different measures, got {start} and {end}, between "
            "which there is nothing. For example start='mean', end='cvar(0.1)'."
        )
    weights = [round(i / (points - 1), _DIGITS) for i in range(int(points))]
    return [(weight, _between(start, end, weight)) for weight in weights]


def same(first: AbstractSpectralRisk, second: AbstractSpectralRisk) -> bool:
    """Whether two measures are equal, whatever their names."""
    ranks = np.linspace(0.0, 1.0, 1001)
    both: Any = first.cumulative(ranks), second.cumulative(ranks)
    return bool(np.allclose(*both, rtol=0.0, atol=1e-9))


def _between(
    start: AbstractSpectralRisk, end: AbstractSpectralRisk, weight: float
) -> AbstractSpectralRisk:
    if weight in (0.0, 1.0):
        return end if weight else start
    # Equal terms are joined: 0.75*mean + 0.25*cvar(0.2), not 0.5*mean + 0.25*mean + ... Texts do
    # not tell: two custom spectra may both be called custom(<lambda>).
    joined: list[tuple[float, AbstractSpectralRisk]] = []
    for share, part in WeightedSum([(round(1 - weight, _DIGITS), start), (weight, end)]).terms:
        index = next((i for i, (_, term) in enumerate(joined) if same(term, part)), None)
        if index is None:
            joined.append((share, part))
        else:
            before, first = joined[index]
            joined[index] = (round(before + share, 12), first)
    return WeightedSum(joined)


def has_text(risk: AbstractSpectralRisk) -> bool:
    """Whether the text of a measure parses as the same measure."""
    try:
        return same(parse(str(risk)), risk)
    except RiskSyntaxError:
        return False
