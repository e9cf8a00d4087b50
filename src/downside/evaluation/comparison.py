"""Two policies or two algorithms -> the difference in value with a confidence interval."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from downside.evaluation.bootstrap import (
    RankedReturns,
    check_confidence,
    check_enough_episodes,
    check_resamples,
    middle,
    resample,
    stream,
)
from downside.evaluation.episodes import Evaluation, Simulated, evaluate
from downside.evaluation.seeds import difference_interval, mean_interval
from downside.exact import Plan
from downside.risk import AbstractSpectralRisk, as_risk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """By how much one policy, or one algorithm, is better than another."""

    value: float
    """The value of the first minus the value of the second: above 0 the first is better."""
    low: float
    """The lower end of the confidence interval."""
    high: float
    """The upper end of the confidence interval."""
    method: str
    """What was resampled: "paired episodes", "independent episodes" or "seeds"."""
    risk: str
    """The measure, as text."""
    confidence: float
    """The confidence of the interval."""

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        verdict = "" if self.significant else "; not significant"
        return (
            f"{self.value:+.4f} in {self.risk} ({self.confidence * 100:g}% interval "
            f"{self.low:+.4f} to {self.high:+.4f}, {self.method}{verdict})"
        )


def compare(
    first: Evaluation | Simulated | Plan | Sequence[Evaluation],
    second: Evaluation | Simulated | Plan | Sequence[Evaluation],
    risk: AbstractSpectralRisk | str,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    paired_seeds: bool = False,
) -> Difference:
    """The difference in value between two policies or two algorithms, with a bootstrap interval.

    Two evaluations compare two *policies*. Where episode i of both ran under the same noise (one
    seed, one length, both `aligned`) the episodes are resampled in pairs, otherwise independently.
    An agent, a plan or a baseline in the place of an evaluation is evaluated as `evaluate` does it.

    Two lists of evaluations, one for each training seed, compare two *algorithms* by their mean
    values over seeds. Then seeds are resampled, because they are what varies between trainings.
    Intervals are widened by Student's t, so that coverage holds with few seeds.

    Arguments:
        first: an evaluation or what can be evaluated, or one evaluation for each of at least two
            training seeds.
        second: what to compare it with, of the same kind.
        risk: the measure, or its text.
        confidence: the share of such intervals that hold the true difference.
        resamples: how many times episodes or seeds are drawn anew.
        seed: of these draws.
        paired_seeds: whether to resample seeds in pairs, because the i-th training of both has
            something in common, such as its environment or its first weights.
    """
    risk, confidence = as_risk(risk), check_confidence(confidence)
    resamples = check_resamples(resamples)
    first, second = _evaluated(first), _evaluated(second)
    if isinstance(first, Evaluation) and isinstance(second, Evaluation):
        if paired_seeds:
            raise ValueError(
                "`paired_seeds` must be False for two single evaluations, got True. Episodes are "
                "paired automatically where that is right; for training seeds pass two lists."
            )
        value = first.value(risk) - second.value(risk)
        paired = _same_noise(first, second)
        method = "paired episodes" if paired else "independent episodes"
        drawn = _episode_differences(first, second, risk, resamples, seed, paired)
        low, high = middle(drawn, confidence)
    else:
        ours, theirs = _seed_values(first, "first", risk), _seed_values(second, "second", risk)
        value, method = float(ours.mean() - theirs.mean()), "seeds"
        low, high = _seed_interval(ours, theirs, confidence, resamples, seed, paired_seeds)
    return Difference(
        value=value, low=low, high=high, method=method, risk=str(risk), confidence=confidence
    )


def _evaluated(subject: Any) -> Any:
    can_be = isinstance(subject, Simulated | Plan) and not isinstance(subject, type)
    return evaluate(subject) if can_be else subject


def _same_noise(first: Evaluation, second: Evaluation) -> bool:
    seeded = first.seed is not None and first.seed == second.seed
    return seeded and len(first) == len(second) and first.aligned and second.aligned


def _episode_differences(
    first: Evaluation,
    second: Evaluation,
    risk: AbstractSpectralRisk,
    resamples: int,
    seed: int,
    paired: bool,
) -> Float[np.ndarray, " resamples"]:
    check_enough_episodes(len(first), "first")
    check_enough_episodes(len(second), "second")
    size = max(len(first), len(second))
    ours = resample(len(first), resamples, stream(seed, "first"), size)
    theirs = resample(len(second), resamples, stream(seed, "second"), size)
    left, right = RankedReturns(first.returns), RankedReturns(second.returns)
    tables, out = (left.table(risk), right.table(risk)), []
    for counts in ours:
        others = counts if paired else next(theirs)
        better = left.values(tables[0], np.cumsum(counts[:, left.order], axis=1))
        out.append(better - right.values(tables[1], np.cumsum(others[:, right.order], axis=1)))
    return np.concatenate(out)


def _seed_values(
    evaluations: Any, name: str, risk: AbstractSpectralRisk
) -> Float[np.ndarray, " seeds"]:
    """The value of each training seed."""
    many = isinstance(evaluations, Sequence)
    if not many or not all(isinstance(entry, Evaluation) for entry in list(evaluations)):
        raise TypeError(
            f"`first` and `second` must be two evaluations, or two lists with an evaluation for "
            f"each training seed, got {evaluations!r} as `{name}`. Make them with ds.evaluate."
        )
    if len(evaluations) < 2:
        raise ValueError(
            f"`{name}` must hold the evaluations of at least 2 training seeds, got "
            f"{len(evaluations)}. To compare two policies, pass the evaluations without a list."
        )
    return np.array([evaluation.value(risk) for evaluation in evaluations])


def _seed_interval(
    first: Float[np.ndarray, " seeds"],
    second: Float[np.ndarray, " others"],
    confidence: float,
    resamples: int,
    seed: int,
    paired: bool,
) -> tuple[float, float]:
    if not paired:
        return difference_interval(first, second, confidence, resamples, seed)
    if len(first) != len(second):
        raise ValueError(
            f"`paired_seeds` needs as many seeds in `first` as in `second`, got {len(first)} and "
            f"{len(second)}. Leave out the seeds that only one has, or pass paired_seeds=False."
        )
    return mean_interval(first - second, confidence, resamples, seed)
