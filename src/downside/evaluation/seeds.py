r"""Intervals over training seeds, of which there are few.

Seeds are resampled, as episodes are. But n of them know too little of their own spread: the middle
95% of the resampled means of three normal values holds the truth in 75% of cases. So the distances
from the mean are stretched by $\sqrt{n / (n - 1)}$, which makes up for the spread that is measured
around the sample's own mean, and by Student's t over the normal quantile, for that spread is itself
uncertain. Normal values are then covered as promised; the shape is still that of the sample.
"""

import math
import statistics

import numpy as np
from jaxtyping import Float

from downside.evaluation.bootstrap import middle, stream


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
    errors = [one.var(ddof=1) / len(one) for one in (first, second)]
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
    """How far resampled means are from the mean, as far as n - 1 degrees of freedom make it."""
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
