r"""Does a policy do what its explanation says it wants? Its choices against the alternatives.

At a step t some of its decisions are changed to actions that are clearly better, and it goes on as
before. The value of the episodes that come of it, minus its value without the change, is what it
misses at that step; nothing, if the policy is optimal. What is better is decided by the mean of
$h(s_t + c_t G_t(a))$, with the utility h of the measure at the policy's return distribution, or at
a shifted one, where the changes themselves shift it (the outer step of Algorithm 1).

Differs: Theorem 2's measure at the step would value an alternative at the alternative's own
quantiles, and would blame optimal policies too.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from downside.decompose import conditional_risk
from downside.explanation.trajectory import Action, TimeStep
from downside.risk import AbstractSpectralRisk, Distribution

_DECISIONS = 400
"""Decisions that are compared, spread over the steps of the episodes."""
_LEAST = 4
"""Of each step that is looked at."""
_SHIFTS = (0.0, -0.25, 0.1, 0.25, 0.5, 1.0)
"""Of the return distribution behind the utility, in standard deviations of the totals."""
_MAX_LEVELS = 200
"""Of a utility: a continuous spectrum has one for each value."""
_CLEARLY = 2.0
"""Standard errors by which an alternative must be ahead to be chosen."""


@runtime_checkable
class Alternatives(Protocol):
    """What simulates alternatives: `SimulatedSource`."""

    def returns_of_alternatives(
        self, steps: Sequence[TimeStep]
    ) -> list[tuple[list[Action], Float[np.ndarray, "_ n"]]]:
        """For each step its alternatives, and the returns to come of each under common noise."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """How much better other actions would have been."""

    gain: float
    """How much the value would rise if it took an action that is clearly better wherever there is
    one, at one step at a time, summed over the steps of an episode. At most 0, up to chance, for an
    optimal policy."""
    gain_error: float
    """Its standard error."""
    decisions: int
    """How many decisions were compared."""


def compare_choices(
    source: Alternatives,
    risk: AbstractSpectralRisk,
    episodes: Sequence[list[TimeStep]],
    times: Sequence[int],
) -> Choices | None:
    """Compares decisions at these times with their alternatives; None if there are none.

    Actions are chosen in one half of the simulated futures and valued in the other, so that luck
    does not look like a better choice.
    """
    decided = {time: [e[time] for e in episodes if time < len(e) - 1] for time in times}
    decided = {time: steps for time, steps in decided.items() if steps}
    if not decided:
        return None
    count = max(_LEAST, math.ceil(_DECISIONS / len(decided)))
    gain = variance = 0.0
    decisions = 0
    for time, steps in decided.items():
        compared = steps[:count]
        totals, taken = [], []
        for step, (actions, returns) in zip(
            compared, source.returns_of_alternatives(compared), strict=True
        ):
            totals.append(step.accumulated + step.discount_so_far * returns)
            taken.append(actions.index(step.action))  # pyright: ignore[reportArgumentType]
        over = np.array([e[-1].accumulated for e in episodes if time >= len(e) - 1])
        rest = _Rest(over, len(steps) / len(episodes))
        first, second = zip(*(np.array_split(rows, 2, axis=1) for rows in totals), strict=True)
        ahead, behind = (
            _gain(risk, rest, taken, choose, value)
            for choose, value in ((first, second), (second, first))
        )
        gain += (ahead[0] + behind[0]) / 2
        variance += ((ahead[1] + behind[1]) / 2) ** 2
        decisions += len(compared)
    # Of long episodes only some steps are looked at; they stand for all.
    scale = (max(map(len, episodes)) - 1) / len(decided)
    return Choices(gain=scale * gain, gain_error=scale * math.sqrt(variance), decisions=decisions)


class _Rest(NamedTuple):
    """The episodes without a decision at a time."""

    totals: Float[np.ndarray, " m"]
    share: float
    """Of all episodes, those that have a decision."""

    def together(self, totals: Sequence[np.ndarray]) -> Distribution:
        """The totals of all episodes, if those of the decisions are these."""
        values = np.concatenate([np.ravel(totals), self.totals])
        share = self.share if len(self.totals) else 1.0
        parts = ((share, values.size - len(self.totals)), (1.0 - share, len(self.totals)))
        return Distribution(values, np.concatenate([np.full(n, s / max(n, 1)) for s, n in parts]))


def _gain(
    risk: AbstractSpectralRisk,
    rest: _Rest,
    taken: Sequence[int],
    choose: Sequence[Float[np.ndarray, "_ n"]],
    value: Sequence[Float[np.ndarray, "_ m"]],
) -> tuple[float, float]:
    """What other actions gain, with its standard error: chosen by some totals, valued by others."""
    before = rest.together([rows[i] for rows, i in zip(choose, taken, strict=True)])
    spread = float(np.std(np.concatenate([rows.ravel() for rows in choose])))
    best, highest = list(taken), _value(risk, before)
    for shift in _SHIFTS:
        utility = utility_at(risk, before.affine(shift * spread, 1.0))
        picked = [_pick(utility(rows), i) for rows, i in zip(choose, taken, strict=True)]
        after = rest.together([rows[i] for rows, i in zip(choose, picked, strict=True)])
        if _value(risk, after) > highest:
            best, highest = picked, _value(risk, after)
    old = [rows[i] for rows, i in zip(value, taken, strict=True)]
    new = [rows[i] for rows, i in zip(value, best, strict=True)]
    before, after = rest.together(old), rest.together(new)
    # The error of a risk value is that of the mean of h.
    utility, changed = utility_at(risk, before), utility_at(risk, after)
    differences = [changed(n).mean() - utility(o).mean() for n, o in zip(new, old, strict=True)]
    error = math.inf
    if len(differences) > 1:
        error = rest.share * float(np.std(differences, ddof=1)) / math.sqrt(len(differences))
    return _value(risk, after) - _value(risk, before), error


def _value(risk: AbstractSpectralRisk, totals: Distribution) -> float:
    return float(risk(totals.values, weights=totals.probabilities))


def _pick(utilities: Float[np.ndarray, "a n"], taken: int) -> int:
    """The best of the actions that are clearly better than the one taken; that one, if none is."""
    better = utilities - utilities[taken]
    mean, error = better.mean(axis=1), better.std(axis=1) / math.sqrt(better.shape[1])
    clear = np.where(mean > _CLEARLY * error, mean, 0.0)
    return int(clear.argmax()) if clear.max() > 0 else taken


def utility_at(
    risk: AbstractSpectralRisk, start: Distribution
) -> Callable[[Float[np.ndarray, "*n"]], Float[np.ndarray, "*n"]]:
    r"""The utility of the measure at a distribution (Theorem 1):
    $h(z) = \sum_i \mu_i (\lambda_i - (\lambda_i - z)^+ / \alpha_i)$.
    """
    if not risk.is_finite_mixture and start.values.shape[-1] > _MAX_LEVELS:
        ranks = (np.arange(_MAX_LEVELS) + 0.5) / _MAX_LEVELS
        start = Distribution(np.asarray(start.quantile(ranks)))
    at_start = conditional_risk(risk, start, Distribution(np.zeros(1)))
    levels, weights, lines = (
        np.asarray(values, dtype=float)
        for values in (at_start.start_levels, at_start.start_weights, at_start.thresholds)
    )
    tail = (levels > 0) & (levels < 1)
    mean = float(weights[levels >= 1].sum())
    levels, weights, lines = levels[tail], weights[tail], lines[tail]

    def bends(z: np.ndarray) -> np.ndarray:
        below = np.maximum(lines - z[..., None], 0.0)
        return mean * z + (weights * (lines - below / levels)).sum(axis=-1)

    if not len(lines):
        return bends
    # Between two lines h is straight, and beyond the outer ones as well.
    low, high = lines.min(), lines.max()
    knots = np.unique([low - 1.0, *lines, high + 1.0])
    heights = bends(knots)

    def utility(z: np.ndarray) -> np.ndarray:
        inside = np.interp(z, knots, heights)
        before = heights[0] + (z - knots[0]) * (heights[1] - heights[0]) / (knots[1] - knots[0])
        after = heights[-1] + (z - knots[-1]) * mean
        return np.where(z < knots[0], before, np.where(z > knots[-1], after, inside))

    return utility
