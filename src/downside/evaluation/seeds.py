r"""Intervals over training seeds, of which there are few: the only module that makes them.

Two methods:

- Bootstrap: seeds are resampled, as episodes are. But n seeds underestimate their spread: the
  middle 95% of the resampled means of three normal values covers the truth in 75% of cases. So
  distances from the mean are widened by $\sqrt{n / (n - 1)}$, since the spread is measured around
  the sample's mean, and by Student's t over the normal quantile, since the spread itself is
  uncertain. Normal values are then covered as promised, and the shape is that of the sample.
- Student's t: symmetric around the mean, for curves and many pairs (`resamples=None`).

A single seed says nothing about others: its interval is over its episodes.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from downside.evaluation.bootstrap import middle, stream
from downside.evaluation.episodes import Evaluation
from downside.risk import AbstractSpectralRisk


class Estimate(NamedTuple):
    """A mean over training seeds with its confidence interval."""

    value: float
    """The mean."""
    low: float
    """The lower end of the interval."""
    high: float
    """The upper end of the interval."""
    values: tuple[float, ...]
    """The value of each seed."""

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return len(self.values)

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {(self.high - self.low) / 2:.4f}"


def estimate_mean(
    values: Sequence[float] | Float[np.ndarray, " seeds"],
    errors: Sequence[float] = (),
    *,
    confidence: float = 0.95,
    resamples: int | None = 2000,
) -> Estimate:
    """The mean over seeds.

    Arguments:
        values: one for each seed.
        errors: the standard errors of the values, over episodes. The interval is never narrower
            than they imply: a few seeds may agree by chance. For a single seed they are all there
            is.
        confidence: of the interval.
        resamples: how often seeds are resampled; None for Student's t.
    """
    sample = np.asarray(values, dtype=float)
    value = low = high = float(sample.mean())
    if len(sample) > 1 and resamples is None:
        error = float(sample.std(ddof=1)) / math.sqrt(len(sample))
        half = student(confidence, len(sample) - 1) * error
        low, high = value - half, value + half
    elif len(sample) > 1:
        low, high = mean_interval(sample, confidence, resamples or 0)
    known = normal(confidence) * float(np.linalg.norm(errors)) / max(1, len(errors))
    return Estimate(
        value, min(low, value - known), max(high, value + known), tuple(sample.tolist())
    )


def estimate_value(
    evaluations: Sequence[Evaluation],
    risk: AbstractSpectralRisk | str,
    *,
    confidence: float = 0.95,
    resamples: int | None = 2000,
) -> Estimate:
    """The mean over seeds of a risk measure, from an evaluation of each seed."""
    values = [evaluation.value(risk) for evaluation in evaluations]
    alone = len(evaluations) == 1 and len(evaluations[0]) > 1
    errors = [evaluations[0].standard_error(risk)] if alone else []
    return estimate_mean(values, errors, confidence=confidence, resamples=resamples)


def estimate_difference(
    first: Sequence[Evaluation],
    second: Sequence[Evaluation],
    risk: AbstractSpectralRisk,
    *,
    confidence: float = 0.95,
    resamples: int | None = 2000,
) -> Estimate:
    """The mean difference of two agents, seed by seed.

    Agents with the same seed are evaluated under the same noise, which cancels.
    """
    values = [a.value(risk) - b.value(risk) for a, b in zip(first, second, strict=True)]
    errors = [difference_error(first[0], second[0], risk)] if len(values) == 1 else []
    return estimate_mean(values, errors, confidence=confidence, resamples=resamples)


def difference_error(first: Evaluation, second: Evaluation, risk: AbstractSpectralRisk) -> float:
    """The standard error of a difference over episodes, paired where the noise is the same."""
    if min(len(first), len(second)) < 2:
        return 0.0
    same_noise = first.aligned and second.aligned and first.seed == second.seed
    if not same_noise or len(first) != len(second):
        return math.hypot(first.standard_error(risk), second.standard_error(risk))
    apart = _contributions(first, risk) - _contributions(second, risk)
    return float(apart.std(ddof=1)) / math.sqrt(len(apart))


def _contributions(
    evaluation: Evaluation, risk: AbstractSpectralRisk
) -> Float[np.ndarray, " episodes"]:
    """What each episode adds to the value: h of its return."""
    utility: Any = risk.utility(np.sort(evaluation.returns))
    return np.asarray(utility(evaluation.returns))


# --- intervals --------------------------------------------------------------------------------


def mean_interval(
    values: Float[np.ndarray, " seeds"], confidence: float, resamples: int, seed: int = 0
) -> tuple[float, float]:
    """The interval of the mean over at least two seeds."""
    drawn = _deviations(values, resamples, seed, "seeds")
    return _stretched(float(values.mean()), drawn, confidence, len(values) - 1)


def difference_interval(
    first: Float[np.ndarray, " seeds"],
    second: Float[np.ndarray, " others"],
    confidence: float,
    resamples: int,
    seed: int = 0,
) -> tuple[float, float]:
    """The interval of the mean of the first minus that of the second, each of at least two seeds.

    With the degrees of freedom of Welch (1947), rounded down.
    """
    drawn = _deviations(first, resamples, seed, "first") - _deviations(
        second, resamples, seed, "second"
    )
    errors = [values.var(ddof=1) / len(values) for values in (first, second)]
    below = sum(e**2 / (len(v) - 1) for e, v in zip(errors, (first, second), strict=True))
    freedom = math.floor(sum(errors) ** 2 / below) if below > 0 else 1
    value = float(first.mean() - second.mean())
    return _stretched(value, drawn, confidence, max(1, freedom))


def student(confidence: float, freedom: int) -> float:
    r"""The t with $P(|T| \le t)$ = `confidence`, T being Student's with whole degrees of freedom.

    The closed form of Abramowitz and Stegun (1964), 26.7.3 and 26.7.4, inverted by bisection.
    """
    low, high = 0.0, math.pi / 2  # of arctan(t / sqrt(freedom))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def normal(confidence: float) -> float:
    """The z with P(|Z| <= z) = `confidence`, Z being normal."""
    return statistics.NormalDist().inv_cdf((1 + confidence) / 2)


def _deviations(
    values: Float[np.ndarray, " seeds"], resamples: int, seed: int, name: str
) -> Float[np.ndarray, " resamples"]:
    """Distances of resampled means from the mean, corrected for n - 1 degrees of freedom."""
    count = len(values)
    drawn = stream(seed, name).integers(count, size=(resamples, count))
    return (values[drawn].mean(axis=1) - values.mean()) * math.sqrt(count / (count - 1))


def _stretched(
    value: float, drawn: Float[np.ndarray, " resamples"], confidence: float, freedom: int
) -> tuple[float, float]:
    low, high = middle(drawn, confidence)
    stretch = student(confidence, freedom) / normal(confidence)
    return value + stretch * low, value + stretch * high


def _inside(angle: float, freedom: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = (cosine if odd else 1.0) if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
