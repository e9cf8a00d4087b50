r"""The bootstrap: draw as many episodes with replacement as there are, value them, repeat.

Intervals are percentile bootstraps (Efron and Tibshirani, 1993, chapter 13): the middle of the
values of many resamples. A resample is how often each of the sorted returns $z_{(i)}$ was drawn.
With $C_i$ draws among the i worst of n its value is
$z_{(n)} - \sum_{i<n} (z_{(i+1)} - z_{(i)})\, \Phi(C_i / n)$, the sum of
`AbstractSpectralRisk.__call__` taken by parts. $\Phi$ is tabulated once, so that a resample is
exact, costs the same for every spectrum, and needs no more memory than the returns themselves.
"""

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from downside._arrays import real
from downside.risk import AbstractSpectralRisk

_BLOCK = 100_000
"""Draws at a time: what fits into the cache of a processor."""


class RankedReturns:
    """Returns from the worst to the best, ready to be valued in one resample after another."""

    def __init__(self, returns: Float[np.ndarray, " episodes"]):
        self.order: Int[np.ndarray, " episodes"] = np.argsort(returns)
        """The episodes, the worst first."""
        self.sorted: Float[np.ndarray, " episodes"] = returns[self.order]
        """What they returned."""
        self._steps: Float[np.ndarray, " gaps"] = np.diff(self.sorted)

    def table(self, risk: AbstractSpectralRisk) -> Float[np.ndarray, " ranks"]:
        r"""$\Phi(k / n)$ for k = 0, ..., n."""
        episodes = len(self.sorted)
        return np.asarray(risk.cumulative(np.arange(episodes + 1) / episodes))

    def values(
        self, table: Float[np.ndarray, " ranks"], drawn: Int[np.ndarray, "*resamples episodes"]
    ) -> Float[np.ndarray, "*resamples"]:
        """The values of resamples with so many draws up to each of the sorted returns."""
        # Not `@`: BLAS would wake its threads for each of thousands of short products.
        short_of_best = np.einsum("i,...i->...", self._steps, table[drawn[..., :-1]])
        return np.asarray(self.sorted[-1] - short_of_best)


def resample(
    episodes: int, resamples: int, rng: np.random.Generator, size: int | None = None
) -> Iterator[Int[np.ndarray, "block episodes"]]:
    """How often each episode is drawn; as many resamples at once as suits so many episodes."""
    block = max(1, _BLOCK // (size or episodes))
    for done in range(0, resamples, block):
        rows = min(block, resamples - done)
        drawn = rng.integers(episodes, size=(rows, episodes))
        drawn += episodes * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * episodes)
        yield counts.reshape(rows, episodes)


def middle(drawn: Float[np.ndarray, " resamples"], confidence: float) -> tuple[float, float]:
    """Where the middle share `confidence` of the values drawn begins and ends."""
    outside = (1.0 - confidence) / 2.0
    low, high = np.quantile(drawn, [outside, 1.0 - outside])
    return float(low), float(high)


def stream(seed: int, name: str) -> np.random.Generator:
    """A generator that depends on its name too, so that no two streams of a seed coincide."""
    return np.random.default_rng([whole_number(seed, "seed", least=0), zlib.crc32(name.encode())])


# --- arguments --------------------------------------------------------------------------------


def check_enough_episodes(episodes: int, name: str) -> None:
    """Refuses to resample a single episode."""
    if episodes < 2:
        raise ValueError(
            f"`{name}` must hold at least 2 episodes for an interval, got {episodes}. "
            "Evaluate with more `episodes`."
        )


def check_confidence(confidence: Any) -> float:
    """The confidence of an interval, as a float."""
    confidence = real(confidence, "confidence")
    if not 0.0 < confidence < 1.0:
        raise ValueError(
            f"`confidence` must be in (0, 1), got {confidence}. For 95% pass confidence=0.95."
        )
    return confidence


def check_resamples(resamples: Any) -> int:
    """The number of resamples: enough of them for a middle to mean something."""
    return whole_number(resamples, "resamples", least=100)


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """The whole number, as an int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
    return int(value)
