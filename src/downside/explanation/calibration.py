r"""Are the distributions that an explanation rests on right?

Two identities hold for true distributions at every time t, whatever the policy:

- $\mathbb{E}[\xi_t^\alpha] = 1$ for each level: the later worst shares average to the first one;
- $\rho(G) = \mathbb{E}[\xi\, (s_t + c_t\, \rho_\xi(G_t))]$: the parts add up to the whole.

At the end of an episode $G_t = 0$, so there they compare the return that was expected at the start
with what was achieved. Learned distributions that fail them give levels that are wrong by about as
much.
"""

import dataclasses
import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from downside.decompose import ConditionalRisk, conditional_risk
from downside.evaluation import Evaluation
from downside.explanation.moments import AbstractSource, Moment
from downside.explanation.words import number, percent
from downside.risk import AbstractSpectralRisk, Distribution

HOLDS, NEARLY, UNKNOWN, FAILS = "holds", "nearly holds", "cannot be told yet", "does not hold"
_NEARLY_LEVEL = 0.10
"""A level that is off by a tenth of itself still says the right thing in words."""
_NEARLY_VALUE = 0.1
"""In standard deviations of the return."""
_FAR = 3.0
"""A gap so many times larger than nearly right does not hold because chance could make it too."""
_FALSE_ALARM = 0.01
"""How often distributions without fault may look faulty, over all times together."""
_MOST_TIMES = 41
_BLOCK = 4_000_000
"""Comparisons of thresholds and values at a time."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """How well the distributions agree with one another and with what happened."""

    times: Int[np.ndarray, " T"]
    """The times that were looked at; the last one is after the end of every episode."""
    levels: Float[np.ndarray, " k"]
    """The measure's levels below 1."""
    weights: Float[np.ndarray, " k"]
    """Their weights."""
    xi: Float[np.ndarray, "T k"]
    """The average of ξ at each time and level: 1 if all is well."""
    xi_error: Float[np.ndarray, "T k"]
    """Its standard error."""
    whole: float
    """ρ(G): the value of the return seen from the start, as the distributions have it."""
    parts: Float[np.ndarray, " T"]
    """E[ξ (s + c ρ_ξ(G_t))] at each time: `whole` if all is well."""
    parts_error: Float[np.ndarray, " T"]
    """Its standard error."""
    achieved: float
    """The value of what was really returned, in these episodes or in many more."""
    achieved_error: float
    """Its standard error."""
    spread: float
    """The standard deviation of these returns."""
    parts_slack: float
    """How far `parts` may be off because levels are known up to `resolution` only."""
    promise_slack: float
    """How far `whole` may be off because so many numbers do not hold the tail of a distribution."""
    resolution: float
    """By how much a level can be off because distributions are kept in finitely many numbers."""
    episodes: int
    """How many episodes were looked at."""
    running: Float[np.ndarray, " T"]
    """The share of episodes that still run."""
    spread_of_levels: Float[np.ndarray, "T q"]
    """The 5, 25, 50, 75 and 95% quantiles of the effective level, over episodes that still run."""

    @functools.cached_property
    def deviations(self) -> tuple[float, float, int]:
        """The largest weighted gap between ξ's average and 1, what it may be, and when it was."""
        share = self.weights / max(self.weights.sum(), 1e-300)
        gaps = np.abs(self.xi - 1.0) @ share
        allowed = (self._reach * self.xi_error + self.resolution / self.levels) @ share
        worst = _worst(gaps, allowed)
        return float(gaps[worst]), float(allowed[worst]), int(self.times[worst])

    @functools.cached_property
    def value_gap(self) -> tuple[float, float, int]:
        """The largest gap between the parts and the whole, what it may be, and when it was."""
        gaps = np.abs(self.parts - self.whole)
        allowed = self._reach * self.parts_error + self.parts_slack
        worst = _worst(gaps, allowed)
        return float(gaps[worst]), float(allowed[worst]), int(self.times[worst])

    @property
    def promise_gap(self) -> tuple[float, float]:
        """What was expected at the start minus what was achieved, and how large it may be."""
        reach = statistics.NormalDist().inv_cdf(1 - _FALSE_ALARM / 2)
        return self.whole - self.achieved, reach * self.achieved_error + self.promise_slack

    @property
    def _reach(self) -> float:
        """Standard errors that a single look may be off, so that all looks together rarely are."""
        looks = max(1, len(self.times))
        return statistics.NormalDist().inv_cdf(1 - _FALSE_ALARM / (2 * looks))

    @property
    def verdicts(self) -> dict[str, str]:
        """A verdict on each check."""
        level, value, promise = self.deviations, self.value_gap, self.promise_gap
        size = _NEARLY_VALUE * self.spread
        return {
            "levels": _verdict(level[0], level[1], _NEARLY_LEVEL),
            "parts": _verdict(value[0], value[1], size),
            "promise": _verdict(abs(promise[0]), promise[1], size),
        }

    @property
    def verdict(self) -> str:
        """The worst of the verdicts: "holds", "nearly holds", "cannot be told yet" (the gap is
        large, but so few episodes can make it by chance) or "does not hold"."""
        order = (HOLDS, NEARLY, UNKNOWN, FAILS)
        return order[max(order.index(one) for one in self.verdicts.values())]

    @property
    def words(self) -> str:
        """The verdict for a reader: can the levels be believed?"""
        opening = {
            HOLDS: "The explanation can be relied on.",
            NEARLY: "The explanation is right in its main lines, but not in its last digits.",
            UNKNOWN: "So few episodes cannot tell whether the explanation can be relied on.",
            FAILS: "Do not rely on this explanation: what the agent expects is not what happens.",
        }
        gap, _, time = self.deviations
        off, _, when = self.value_gap
        promise, _ = self.promise_gap
        said = [opening[self.verdict]]
        if len(self.levels):
            said.append(
                f"Over {self.episodes:,} episodes the share of outcomes that counts as bad is off "
                f"by at most {percent(gap)} of itself (step {time}): {self.verdicts['levels']}."
            )
        said.append(
            f"The parts add up to the whole to within {number(off)} (step {when}): "
            f"{self.verdicts['parts']}."
        )
        more = "more" if promise > 0 else "less"
        said.append(
            f"At the start it expects a value of {number(self.whole)}; it achieves "
            f"{number(self.achieved)} ± {number(2 * self.achieved_error)}, so it expects "
            f"{number(abs(promise))} {more} than it gets: {self.verdicts['promise']}."
        )
        return " ".join(said)


def _worst(gaps: np.ndarray, allowed: np.ndarray) -> int:
    """Where a gap is furthest beyond what it may be; if none is, where it is largest."""
    beyond = gaps - allowed
    return int(np.argmax(beyond if beyond.max() > 1e-9 else gaps))


def _verdict(gap: float, allowed: float, nearly: float) -> str:
    if gap > max(nearly, 1.5 * allowed):
        return FAILS
    if gap > max(_FAR * nearly, 1e-9):
        return UNKNOWN
    return HOLDS if gap <= allowed + 1e-9 else NEARLY


def calibrate(
    source: AbstractSource, episodes: Sequence[list[Moment]], start: Distribution
) -> Calibration:
    """Looks at every episode at a number of times. An episode that is over counts with its end."""
    risk, last = source.risk, max(len(one) for one in episodes) - 1
    times = np.unique(np.round(np.linspace(0, last, min(last + 1, _MOST_TIMES))).astype(int))
    returns = np.array([_total(one) for one in episodes])
    fresh = source.fresh_returns()
    found = Evaluation(returns if fresh is None else fresh)
    xi, errors, parts, parts_errors, running, spreads = [], [], [], [], [], []
    levels = np.zeros(0)
    weights = np.zeros(0)
    thresholds = np.zeros(0)
    for time in times:
        moments = [one[min(time, len(one) - 1)] for one in episodes]
        seen = in_batches(source, risk, start, moments)
        below = np.asarray(seen.start_levels) < 1
        levels, weights = (
            np.asarray(seen.start_levels)[below],
            np.asarray(seen.start_weights)[below],
        )
        thresholds = np.asarray(seen.thresholds)[below]
        s, c = _memories(moments)
        own = np.asarray(seen.xi_per_level)[:, below]
        xi.append(own.mean(axis=0))
        errors.append(_standard_error(own))
        pieces = np.asarray(seen.xi) * (s + c * np.asarray(seen.value))
        parts.append(pieces.mean())
        parts_errors.append(_standard_error(pieces))
        alive = np.array([one.action is not None for one in moments])
        running.append(alive.mean())
        effective = (np.asarray(seen.weights) * np.asarray(seen.levels)).sum(axis=-1)
        shown = effective[alive] if alive.any() else effective
        spreads.append(np.quantile(shown, [0.05, 0.25, 0.5, 0.75, 0.95]))
    # A level that is off by d moves E[Z; Z <= λ] by λ d.
    parts_slack = source.resolution * float(np.sum(weights / levels * np.abs(thresholds)))
    # Of a normal variable in N quantiles CVaR is off by about 0.1 / (N α) deviations.
    promise_slack = 0.2 * source.resolution * float(np.sum(weights / levels)) * returns.std()
    return Calibration(
        times=times,
        levels=levels,
        weights=weights,
        xi=np.array(xi),
        xi_error=np.array(errors),
        whole=float(risk(start.values, weights=start.probabilities)),
        parts=np.array(parts),
        parts_error=np.array(parts_errors),
        achieved=found.value(risk),
        achieved_error=found.standard_error(risk) if len(found) > 1 else math.inf,
        spread=float(returns.std()),
        parts_slack=parts_slack,
        promise_slack=float(promise_slack),
        resolution=source.resolution,
        episodes=len(episodes),
        running=np.array(running),
        spread_of_levels=np.array(spreads),
    )


def in_batches(
    source: AbstractSource, risk: AbstractSpectralRisk, start: Distribution, moments: list[Moment]
) -> ConditionalRisk:
    """`conditional_risk` at every moment; a few at a time, for it compares levels with values."""
    edges = len(start.values) if not risk.is_finite_mixture else len(risk.atoms)
    later = source.chosen(moments)
    block = max(1, _BLOCK // (edges * later.values.shape[-1]))
    s, c = _memories(moments)
    out = []
    for begin in range(0, len(moments), block):
        part = slice(begin, begin + block)
        own = Distribution(
            np.asarray(later.values)[part],
            np.asarray(later.probabilities)[part],
            quantile_side=later.quantile_side,
        )
        out.append(conditional_risk(risk, start, own, s=s[part], c=c[part]))
    first = out[0]
    joined: dict[str, Any] = {
        name: np.concatenate([np.asarray(getattr(one, name)) for one in out])
        for name in ("xi_per_level", "xi", "levels", "weights", "value")
    }
    return ConditionalRisk(first.start_levels, first.start_weights, first.thresholds, **joined)


def _memories(moments: Sequence[Moment]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([one.accumulated for one in moments]),
        np.array([one.discount_so_far for one in moments]),
    )


def _total(episode: list[Moment]) -> float:
    return episode[-1].accumulated


def _standard_error(samples: np.ndarray) -> np.ndarray:
    """Of the mean over the first axis; a single sample says nothing."""
    if len(samples) < 2:
        return np.full(samples.shape[1:], np.inf)
    return np.asarray(samples.std(axis=0, ddof=1) / math.sqrt(len(samples)))
