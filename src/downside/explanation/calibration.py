r"""Checks of an explanation: of its return distributions, and of the choices of the policy.

Two identities hold for true distributions at every time t, whatever the policy:

- $\mathbb{E}[\xi_t^\alpha] = 1$ for each level: the later worst shares average to the first one;
- $\rho(G) = \mathbb{E}[\xi\, (s_t + c_t\, \rho_\xi(G_t))]$: the parts add up to the whole.

At the end of an episode $G_t = 0$, so there they compare the return expected at the start with the
return achieved. Learned distributions that fail them give levels that are off by about as much.

Simulated distributions are those of the policy, however bad it is. What a bad policy fails is the
check of its choices (`choices.py`): it does not do what the explanation says that it optimises.
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
from downside.explanation.choices import Choices
from downside.explanation.narrative import number, percent
from downside.explanation.sources import AbstractSource
from downside.explanation.trajectory import TimeStep
from downside.risk import AbstractSpectralRisk, Distribution

HOLDS, NEARLY, UNKNOWN, FAILS = "holds", "nearly holds", "too few episodes", "does not hold"
_NEARLY_LEVEL = 0.10
"""Relative error of a level that hardly changes the explanation."""
_NEARLY_VALUE = 0.1
"""In standard deviations of the return."""
_FREE_CHOICE = 0.02
"""Better choices that would add less than this, in standard deviations of the return, do not change
what the policy is after."""
_NEARLY_CHOICE = 0.05
"""In standard deviations of the return: less than for values, for one action is changed at a time,
and a policy may need several to become better."""
_FAR = 3.0
"""Times "nearly": a larger gap needs more episodes, even if chance could explain it."""
_FALSE_ALARM = 0.01
"""Probability that correct distributions fail a check, over all times together."""
_MAX_TIMES = 41
_BLOCK = 4_000_000
"""Comparisons of thresholds and values at a time."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """How well the distributions agree with each other and with the returns achieved."""

    times: Int[np.ndarray, " T"]
    """The times that are checked; at the last one every episode is over."""
    levels: Float[np.ndarray, " k"]
    """The measure's levels below 1."""
    weights: Float[np.ndarray, " k"]
    """Their weights."""
    xi: Float[np.ndarray, "T k"]
    """The average of ξ at each time and level: 1 for true distributions."""
    xi_error: Float[np.ndarray, "T k"]
    """Its standard error."""
    whole: float
    """ρ(G): the value of the return seen from the start, as the distributions have it."""
    parts: Float[np.ndarray, " T"]
    """E[ξ (s + c ρ_ξ(G_t))] at each time: `whole` for true distributions."""
    parts_error: Float[np.ndarray, " T"]
    """Its standard error."""
    achieved: float
    """The value of the returns achieved, in these episodes or in many more."""
    achieved_error: float
    """Its standard error."""
    spread: float
    """The standard deviation of these returns."""
    parts_slack: float
    """Error of `parts` because levels are known only up to `resolution`."""
    promise_slack: float
    """Error of `whole` because finitely many numbers do not resolve the tail."""
    resolution: float
    """Error of a level because a distribution is kept in finitely many numbers."""
    episodes: int
    """How many episodes were checked."""
    running: Float[np.ndarray, " T"]
    """The share of episodes that still run."""
    spread_of_levels: Float[np.ndarray, "T q"]
    """The 5, 25, 50, 75 and 95% quantiles of the effective level, over episodes that still run."""
    kind: str
    """Where the distributions come from: "learned", "simulated" or "exact"."""
    predicted: float | None = None
    """The value that the agent's networks expect at the start, where the distributions do not come
    from them."""
    choices: Choices | None = None
    """How much better other actions would have been; None where they were not simulated."""

    @functools.cached_property
    def deviations(self) -> tuple[float, float, int]:
        """The largest weighted gap between ξ's average and 1, the allowed gap, and its time."""
        share = self.weights / max(self.weights.sum(), 1e-300)
        gaps = np.abs(self.xi - 1.0) @ share
        allowed = (self._reach * self.xi_error + self.resolution / self.levels) @ share
        worst = _worst(gaps, allowed)
        return float(gaps[worst]), float(allowed[worst]), int(self.times[worst])

    @functools.cached_property
    def value_gap(self) -> tuple[float, float, int]:
        """The largest gap between the parts and the whole, the allowed gap, and its time."""
        gaps = np.abs(self.parts - self.whole)
        allowed = self._reach * self.parts_error + self.parts_slack + self._rounding
        worst = _worst(gaps, allowed)
        return float(gaps[worst]), float(allowed[worst]), int(self.times[worst])

    @property
    def promise_gap(self) -> tuple[float, float]:
        """The value expected at the start minus the value achieved, and the allowed gap."""
        reach = statistics.NormalDist().inv_cdf(1 - _FALSE_ALARM / 2)
        allowed = reach * self.achieved_error + self.promise_slack + self._rounding
        return self.whole - self.achieved, allowed

    @property
    def choice_gap(self) -> tuple[float, float]:
        """What better choices would add to the value, and the allowed gain."""
        if self.choices is None:
            return 0.0, math.inf
        reach = statistics.NormalDist().inv_cdf(1 - _FALSE_ALARM)
        allowed = reach * self.choices.gain_error + _FREE_CHOICE * self.spread + self._rounding
        return max(self.choices.gain, 0.0), allowed

    @property
    def _rounding(self) -> float:
        """Of returns that are simulated in 32 bits, where nothing else varies."""
        return 1e-5 * (abs(self.whole) + abs(self.achieved) + self.spread)

    @property
    def _reach(self) -> float:
        """Allowed standard errors of a single time, so that all times together rarely fail."""
        times = max(1, len(self.times))
        return statistics.NormalDist().inv_cdf(1 - _FALSE_ALARM / (2 * times))

    @property
    def verdicts(self) -> dict[str, str]:
        """A verdict on each check."""
        level, value, promise = self.deviations, self.value_gap, self.promise_gap
        size = _NEARLY_VALUE * self.spread + self._rounding
        verdicts = {
            "levels": _verdict(level[0], level[1], _NEARLY_LEVEL),
            "parts": _verdict(value[0], value[1], size),
            "promise": _verdict(abs(promise[0]), promise[1], size),
        }
        if self.choices is not None:
            verdicts["choices"] = _verdict(
                *self.choice_gap, _NEARLY_CHOICE * self.spread + self._rounding
            )
        return verdicts

    @property
    def verdict(self) -> str:
        """The worst of the verdicts: "holds", "nearly holds", "too few episodes" (the gap is large,
        but may be chance) or "does not hold"."""
        order = (HOLDS, NEARLY, UNKNOWN, FAILS)
        return order[max(order.index(verdict) for verdict in self.verdicts.values())]

    @property
    def words(self) -> str:
        """The verdict in words: can the explanation be relied on?"""
        gap, _, time = self.deviations
        off, _, when = self.value_gap
        text = [self._opening]
        if len(self.levels):
            text.append(
                f"Over {self.episodes:,} episodes the share of outcomes that counts as bad is off "
                f"by at most {percent(gap)} of itself (step {time}): {self.verdicts['levels']}."
            )
        text.append(
            f"The parts add up to the whole to within {number(off)} (step {when}): "
            f"{self.verdicts['parts']}."
        )
        return " ".join(filter(None, [*text, self._promise, *self._about_choices, self.advice]))

    @property
    def advice(self) -> str:
        """What to do next, where a check does not hold or says nothing; otherwise empty."""
        verdicts = self.verdicts
        if self.verdict == UNKNOWN:
            return f"What to do: check more episodes (checks={4 * self.episodes})."
        if self.verdict != FAILS:
            return ""
        if verdicts.get("choices") == FAILS:
            return (
                "What to do: the policy is not yet the best for its measure. Train it longer "
                "(total_timesteps), or from other seeds (ds.train_many), and keep the best by "
                "ds.evaluate; ds.solve says how much is left where it can plan."
            )
        if self.kind == "learned":
            return (
                "What to do: the learned distributions are off. Train longer (total_timesteps) or "
                "with more quantiles; in an environment written in JAX, explain with "
                "returns='simulated', which does not use them. The value achieved holds anyway."
            )
        return (
            "What to do: episodes differ from those the distributions were made from. Look for "
            "state that the environment does not show, and check more episodes "
            f"(checks={4 * self.episodes})."
        )

    @property
    def _opening(self) -> str:
        verdicts = self.verdicts
        wrong = "the agent does not get what it expects"
        if FAILS not in {verdicts["levels"], verdicts["parts"], verdicts["promise"]}:
            wrong = "it says what the measure asks for, and the agent does something else"
        return {
            HOLDS: "The explanation can be relied on.",
            NEARLY: "The explanation is right on the whole, but not to the last digit.",
            UNKNOWN: "These episodes are too few to tell whether the explanation can be relied on.",
            FAILS: f"Do not rely on this explanation: {wrong}.",
        }[self.verdict]

    @property
    def _promise(self) -> str:
        gap, _ = self.promise_gap
        achieved = f"{number(self.achieved)} ± {number(2 * self.achieved_error)}"
        if self.kind != "learned":
            return (
                f"The distributions give a value of {number(self.whole)} at the start; other "
                f"episodes achieve {achieved}, a difference of {number(abs(gap))}: "
                f"{self.verdicts['promise']}."
            )
        return (
            f"At the start it expects a value of {number(self.whole)}; it achieves {achieved}, so "
            f"it expects {_more(gap)} than it gets: {self.verdicts['promise']}."
        )

    @property
    def _about_choices(self) -> list[str]:
        """On the choices, and on what the networks expect."""
        text = []
        if self.choices is not None:
            gain, error = number(self.choices.gain), number(2 * self.choices.gain_error)
            text.append(
                f"In {self.choices.decisions:,} decisions its action was compared with others "
                "under the same noise: to take one that is clearly better, wherever there is one, "
                f"would add {gain} ± {error} to its value: {self.verdicts['choices']}."
            )
        if self.predicted is not None:
            text.append(
                f"Its networks expect {number(self.predicted)} at the start, "
                f"{_more(self.predicted - self.achieved)} than it achieves; the explanation does "
                "not use them."
            )
        return text


def _more(gap: float) -> str:
    return f"{number(abs(gap))} {'more' if gap > 0 else 'less'}"


def _worst(gaps: np.ndarray, allowed: np.ndarray) -> int:
    """Where a gap exceeds the allowed gap most; if none does, where it is largest."""
    beyond = gaps - allowed
    return int(np.argmax(beyond if beyond.max() > 1e-9 else gaps))


def _verdict(gap: float, allowed: float, nearly: float) -> str:
    if gap > max(nearly, 1.5 * allowed):
        return FAILS
    if gap > max(_FAR * nearly, 1e-9):
        return UNKNOWN
    return HOLDS if gap <= allowed + 1e-9 else NEARLY


def calibrate(
    source: AbstractSource, episodes: Sequence[list[TimeStep]], start: Distribution
) -> Calibration:
    """Checks all episodes at a number of times. An episode that is over counts with its end."""
    risk, last = source.risk, max(map(len, episodes)) - 1
    times = np.unique(np.round(np.linspace(0, last, min(last + 1, _MAX_TIMES))).astype(int))
    returns = np.array([steps[-1].accumulated for steps in episodes])
    predicted = source.predicted_returns([steps[0] for steps in episodes])
    fresh = source.fresh_returns()
    evaluation = Evaluation(returns if fresh is None else fresh)
    xi, xi_errors, parts, parts_errors, running, spreads = [], [], [], [], [], []
    levels = weights = thresholds = np.zeros(0)
    for time in times:
        steps = [steps[min(time, len(steps) - 1)] for steps in episodes]
        risks = conditional_risks(risk, start, source.returns(steps), steps)
        below = np.asarray(risks.start_levels) < 1
        levels, weights, thresholds = (
            np.asarray(values)[below]
            for values in (risks.start_levels, risks.start_weights, risks.thresholds)
        )
        s, c = _memories(steps)
        per_level = np.asarray(risks.xi_per_level)[:, below]
        xi.append(per_level.mean(axis=0))
        xi_errors.append(_standard_error(per_level))
        pieces = np.asarray(risks.xi) * (s + c * np.asarray(risks.value))
        parts.append(pieces.mean())
        parts_errors.append(_standard_error(pieces))
        alive = np.array([step.action is not None for step in steps])
        running.append(alive.mean())
        effective = (np.asarray(risks.weights) * np.asarray(risks.levels)).sum(axis=-1)
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
        xi_error=np.array(xi_errors),
        whole=_value(risk, start),
        parts=np.array(parts),
        parts_error=np.array(parts_errors),
        achieved=evaluation.value(risk),
        achieved_error=evaluation.standard_error(risk) if len(evaluation) > 1 else math.inf,
        spread=float(returns.std()),
        parts_slack=parts_slack,
        promise_slack=float(promise_slack),
        resolution=source.resolution,
        episodes=len(episodes),
        running=np.array(running),
        spread_of_levels=np.array(spreads),
        kind=source.kind,
        predicted=None if predicted is None else _value(risk, predicted),
    )


def _value(risk: AbstractSpectralRisk, returns: Distribution) -> float:
    return float(risk(returns.values, weights=returns.probabilities))


def conditional_risks(
    risk: AbstractSpectralRisk,
    start: Distribution,
    returns: Distribution,
    steps: Sequence[TimeStep],
) -> ConditionalRisk:
    """`conditional_risk` at every step, in blocks: it compares all levels with all values."""
    edges = len(start.values) if not risk.is_finite_mixture else len(risk.atoms)
    block = max(1, _BLOCK // (edges * returns.values.shape[-1]))
    s, c = _memories(steps)
    parts = []
    for begin in range(0, len(steps), block):
        part = slice(begin, begin + block)
        later = Distribution(
            np.asarray(returns.values)[part],
            np.asarray(returns.probabilities)[part],
            quantile_side=returns.quantile_side,
        )
        parts.append(conditional_risk(risk, start, later, s=s[part], c=c[part]))
    joined: dict[str, Any] = {
        name: np.concatenate([np.asarray(getattr(part, name)) for part in parts])
        for name in ("xi_per_level", "xi", "levels", "weights", "value")
    }
    first = parts[0]
    return ConditionalRisk(first.start_levels, first.start_weights, first.thresholds, **joined)


def _memories(steps: Sequence[TimeStep]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([step.accumulated for step in steps]),
        np.array([step.discount_so_far for step in steps]),
    )


def _standard_error(samples: np.ndarray) -> np.ndarray:
    """Of the mean over the first axis; infinite for a single sample."""
    if len(samples) < 2:
        return np.full(samples.shape[1:], np.inf)
    return np.asarray(samples.std(axis=0, ddof=1) / math.sqrt(len(samples)))
