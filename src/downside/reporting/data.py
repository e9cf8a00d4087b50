"""A section of a report as plain numbers and text for the page: rounded, and limited in size."""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from downside.explanation import Episode, ExplainedStep, Explanation
from downside.explanation.narrative import number, percent
from downside.explanation.plotting import lines, weights
from downside.reporting.sections import ReportSection
from downside.risk import AbstractSpectralRisk, Distribution

TAIL = "cvar(0.2)"
"""The tail of the mean-tail plot, the same for all agents."""
MAX_STEPS = 2_500
"""Steps of a report, all episodes together: about 2 MB."""
_QUANTILES = 40
_BINS = 60
_WIDTH = 220
"""Of a picture in a strip, in pixels."""


def section_data(section: ReportSection, measures: Sequence[str], max_steps: int) -> dict[str, Any]:
    """All that the page shows of one agent or plan."""
    explanation, evaluation = section.explanation, section.evaluation
    risk = explanation.risk
    value = evaluation.value(risk)
    low, high = evaluation.interval(risk) if len(evaluation) > 1 else (value, value)
    levels, thresholds = lines(explanation)
    count = len(explanation.episodes)
    return {
        "label": section.label,
        "about": section.about,
        "risk": str(risk),
        "aim": aim(risk),
        "kind": explanation.kind,
        "note": explanation.note,
        "timesteps": explanation.timesteps,
        "simulatedSteps": explanation.simulated_steps,
        "value": _short(value),
        "low": _short(low),
        "high": _short(high),
        "mean": _short(evaluation.mean),
        "meanError": _short(float(evaluation.returns.std()) / math.sqrt(len(evaluation))),
        "evaluationEpisodes": len(evaluation),
        "tailEpisodes": evaluation.tail_count(risk),
        "optimum": None if section.optimum is None else _short(section.optimum),
        "verdict": verdict(section),
        "values": {
            measure: [_short(evaluation.value(measure)), _short(evaluation.standard_error(measure))]
            for measure in measures
        },
        "histogram": _histogram(evaluation.returns),
        "quantiles": _shorts(evaluation.quantiles(99)),
        "spectrum": _spectrum(risk),
        "levels": _shorts(levels),
        "lines": _shorts(thresholds),
        "actionNames": {
            str(action): name
            for episode in explanation.episodes
            for step in episode.steps
            for action, name in zip(step.actions, step.action_names, strict=True)
            if isinstance(action, int)
        },
        "coordinates": list(explanation.names.coordinates),
        "boundary": None if section.boundary is None else list(section.boundary),
        "calibration": _calibration(explanation),
        "episodes": [episode_data(episode, max_steps // count) for episode in explanation.episodes],
    }


def strip_data(section: ReportSection) -> list[dict[str, Any]]:
    """The two episodes in pictures."""
    return [
        {
            "name": "One of the worst fifth" if "worst" in replay.name else "The median episode",
            "value": _short(replay.value),
            "length": replay.length,
            "frames": [
                {
                    "time": frame.time,
                    "earned": _short(frame.earned),
                    "source": _picture(frame.picture),
                }
                for frame in taken
            ],
        }
        for replay, taken in section.strips
    ]


def _picture(picture: np.ndarray) -> str:
    """A small JPEG as an address."""
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((_WIDTH, _WIDTH))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


def verdict(section: ReportSection) -> dict[str, str]:
    """The verdict in words: how good the policy is, and whether the explanation can be trusted."""
    explanation, evaluation = section.explanation, section.evaluation
    value = evaluation.value(explanation.risk)
    text = f"Its value is {number(value)} in {len(evaluation):,} fresh episodes"
    share = ""
    if section.optimum is not None:
        gap = section.optimum - value
        text += f"; the best that any policy can do is {number(section.optimum)}"
        share = f"{number(gap)} short of the optimum" if gap > 0 else "at the optimum"
        if section.optimum > 0 and gap > 0:
            share = f"{percent(value / section.optimum)} of the optimum" if value > 0 else share
    checks = explanation.calibration
    return {
        "value": f"{text}.",
        "share": share,
        "trust": "unchecked" if checks is None else checks.verdict,
        "words": "No checks were asked for." if checks is None else checks.words,
    }


def aim(risk: AbstractSpectralRisk) -> str:
    """The measure for someone who has never met one."""
    if not risk.is_finite_mixture:
        ranks = np.array([0.05, 0.25])
        worst, quarter = (float(x) for x in np.asarray(risk.cumulative(ranks)))
        return (
            "It maximises a weighted average of what an episode returns, in which bad outcomes "
            f"weigh more: the worst 5% have {percent(worst)} of the weight and the worst quarter "
            f"{percent(quarter)}."
        )
    if len(risk.atoms) == 1:
        ((level, _),) = risk.atoms
        rest = "" if level >= 1 else " Better outcomes do not count."
        return f"It maximises {_tail(level)}.{rest}"
    parts = [f"{percent(weight)} of its attention is on {_tail(a)}" for a, weight in risk.atoms]
    return f"It maximises a mixture: {', '.join(parts[:-1])} and {parts[-1]}."


def _tail(level: float) -> str:
    if level >= 1:
        return "the average over all episodes"
    return f"the average over the worst {percent(level)} of episodes"


def episode_data(episode: Episode, max_steps: int) -> dict[str, Any]:
    """The steps of an episode; a long one is thinned out."""
    steps = episode.steps
    stride = max(1, math.ceil(len(steps) / max(2, max_steps)))
    kept = sorted({*range(0, len(steps), stride), len(steps) - 1})
    names, shares = weights(episode)
    first = steps[0].named_observation
    return {
        "seed": episode.seed,
        "total": _short(episode.total),
        "stride": stride,
        "observationNames": list(first)[:8],
        "weightNames": names,
        "steps": [
            {
                "t": steps[i].time,
                "observation": _shorts(list(steps[i].named_observation.values())[:8]),
                "a": None if steps[i].action is None else _action(steps[i].action),
                "do": steps[i].action_name,
                "r": None if steps[i].reward is None else _short(steps[i].reward or 0.0),
                "s": _short(steps[i].accumulated),
                "c": _short(steps[i].discount_so_far),
                "q": _quantiles(steps[i].returns),
                "level": _short(steps[i].level),
                "levels": _shorts(np.asarray(steps[i].risk.levels)) if len(names) <= 6 else [],
                "xi": _short(float(steps[i].risk.xi)),
                "value": _short(float(steps[i].risk.value)),
                "weights": _shorts(shares[i]),
                "acts": [_action(action) for action in steps[i].actions],
                "taken": _taken(steps[i]),
                "worth": _shorts(steps[i].action_utilities),
                "words": steps[i].words,
            }
            for i in kept
        ],
    }


def _action(action: Any) -> int | list[float]:
    return _shorts(action) if isinstance(action, tuple) else action


def _taken(step: ExplainedStep) -> int | None:
    """Which of the actions is the one that is taken."""
    return step.actions.index(step.action) if step.action in step.actions else None


def _calibration(explanation: Explanation) -> dict[str, Any] | None:
    checks = explanation.calibration
    if checks is None:
        return None
    share = checks.weights / checks.weights.sum() if len(checks.weights) else checks.weights
    coarse = checks.resolution * float((share / checks.levels).sum())
    return {
        "times": [int(time) for time in checks.times],
        "xi": _shorts(checks.xi @ share) if len(share) else [],
        "xiError": _shorts(2 * checks.xi_error @ share + coarse) if len(share) else [],
        "parts": _shorts(checks.parts),
        "partsError": _shorts(2 * checks.parts_error + checks.parts_slack),
        "whole": _short(checks.whole),
        "achieved": _short(checks.achieved),
        "achievedError": _short(2 * checks.achieved_error),
        "episodes": checks.episodes,
        "spread": [_shorts(row) for row in checks.spread_of_levels],
        "running": _shorts(checks.running),
        "verdicts": checks.verdicts,
        "gain": None if checks.choices is None else _short(checks.choices.gain),
        "gainError": None if checks.choices is None else _short(2 * checks.choices.gain_error),
        "predicted": None if checks.predicted is None else _short(checks.predicted),
    }


def _spectrum(risk: AbstractSpectralRisk) -> list[list[float]]:
    jumps = np.array([a for a, _ in risk.atoms if 0 < a < 1])
    ranks = np.unique(
        [1e-4, *np.linspace(0.005, 0.995, 100), *(jumps - 1e-4), *(jumps + 1e-4), 1.0]
    )
    ranks = ranks[(ranks > 0) & (ranks <= 1)]
    heights = np.asarray(risk.spectrum(ranks))
    return [[_short(u), _short(phi)] for u, phi in zip(ranks, heights, strict=True)]


def _histogram(returns: np.ndarray) -> dict[str, Any]:
    """Counts in bins; the first and the last hold the extreme thousandths as well."""
    low, high = np.quantile(returns, [0.001, 0.999])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    counts, _ = np.histogram(np.clip(returns, low, high), _BINS, (low, high))
    return {"low": _short(low), "high": _short(high), "counts": [int(n) for n in counts]}


def _quantiles(distribution: Distribution) -> list[float]:
    ranks = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return _shorts(np.asarray(distribution.quantile(ranks)))


def _shorts(values: Any) -> list[float]:
    return [_short(value) for value in np.asarray(values, dtype=float).ravel()]


def _short(value: float) -> float:
    """Four digits are more than a page can show; infinity has no place in JSON."""
    if not math.isfinite(value):
        return 0.0
    return float(f"{value:.4g}")
