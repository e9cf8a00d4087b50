r"""Intervals over training seeds, by Student's t; with a single seed, over its episodes.

Differences between two points are taken seed by seed: agents with the same seed are valued under
the same noise, so that what they share drops out.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from downside.evaluation import Evaluation, Interval
from downside.evaluation.seeds import normal, student
from downside.risk import AbstractSpectralRisk


class Valued(NamedTuple):
    """What the agents of a point are worth by one measure: the mean over seeds."""

    value: float
    """The mean."""
    low: float
    """The lower end of its confidence interval."""
    high: float
    """The upper end."""
    seeds: tuple[float, ...]
    """The value of each seed."""

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {(self.high - self.low) / 2:.4f}"


def valued(
    evaluations: Sequence[Evaluation], risk: AbstractSpectralRisk, confidence: float
) -> Valued:
    """The mean over seeds with its interval."""
    seeds = [one.value(risk) for one in evaluations]
    if len(seeds) == 1:
        error = evaluations[0].standard_error(risk) if len(evaluations[0]) > 1 else 0.0
        width = normal(confidence) * error
    else:
        width = _width(np.array(seeds), confidence)
    value = statistics.fmean(seeds)
    return Valued(value, value - width, value + width, tuple(seeds))


def difference(
    first: tuple[Valued, Sequence[Evaluation]],
    second: tuple[Valued, Sequence[Evaluation]],
    risk: AbstractSpectralRisk,
    confidence: float,
) -> Interval:
    """The interval of what the first is worth more than the second by a measure, seed by seed."""
    apart = np.subtract(first[0].seeds, second[0].seeds)
    if len(apart) > 1:
        width = _width(apart, confidence)
    else:
        width = normal(confidence) * _error(first[1][0], second[1][0], risk)
    middle = float(apart.mean())
    return Interval(middle - width, middle + width)


def middle_interval(values: Float[np.ndarray, " seeds"], confidence: float) -> Interval:
    """The interval of the mean of such values; of a single one, nothing but itself."""
    middle = float(values.mean())
    width = _width(values, confidence) if len(values) > 1 else 0.0
    return Interval(middle - width, middle + width)


def _width(values: Float[np.ndarray, " seeds"], confidence: float) -> float:
    freedom = len(values) - 1
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return student(confidence, freedom) * error


def _error(first: Evaluation, second: Evaluation, risk: AbstractSpectralRisk) -> float:
    """The standard error of a difference, as for `Evaluation.standard_error`."""
    if min(len(first), len(second)) < 2:
        return 0.0
    same_noise = first.aligned and second.aligned and first.seed == second.seed
    if not same_noise or len(first) != len(second):
        return math.hypot(first.standard_error(risk), second.standard_error(risk))
    apart = _worth(first, risk) - _worth(second, risk)
    return float(apart.std(ddof=1)) / math.sqrt(len(apart))


def _worth(one: Evaluation, risk: AbstractSpectralRisk) -> Float[np.ndarray, " episodes"]:
    """What each episode adds to the value: h of its return."""
    found: Any = risk.utility(np.sort(one.returns))(one.returns)
    return np.asarray(found)
