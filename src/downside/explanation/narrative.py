"""The explanation in words, for a reader who has not read the paper.

News is measured by the *expected total* of the episode, s + c E[G_t], not by the reward alone:
buying costs money, but that is not bad news.
"""

import math

import numpy as np

from downside.decompose import ConditionalRisk

_SAME = 0.1
"""Relative change of a level below which it counts as unchanged."""


def percent(share: float) -> str:
    """A share as text: 8%, 0.4%, less than 0.1%."""
    if share <= 0:
        return "0%"
    if share < 0.001:
        return "less than 0.1%"
    if share < 0.0995:
        return f"{100 * share:.1f}%".replace(".0%", "%")
    return f"{min(100 * share, 100):.0f}%"


def number(value: float) -> str:
    """A number as text, with about three digits and no minus zero."""
    if not math.isfinite(value):
        return "none"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 0.001:
        return "0" if abs(value) < 1e-6 else f"{value:.1g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 3)}f}"


def effective_level(risk: ConditionalRisk) -> float:
    r"""The share of outcomes that matters from here, in one number: $\sum_i w_i \alpha_i \xi_i$.

    For a single CVaR it is the level itself, for the mean 1.
    """
    return float(np.sum(np.asarray(risk.weights) * np.asarray(risk.levels)))


def aim(risk: ConditionalRisk) -> str:
    """What is being optimised from here on: "the worst 8% of outcomes"."""
    if not float(risk.xi) > 0:
        return "nothing that it can still change"
    levels, weights = np.asarray(risk.levels), np.asarray(risk.weights)
    kept = weights > 0.005
    levels, weights = levels[kept], weights[kept]
    if len(levels) == 1:
        return _share(float(levels[0]))
    if len(levels) > 4:
        low, high = (percent(float(x)) for x in (levels.min(), levels.max()))
        middle = percent(effective_level(risk))
        return f"a blend of the worst {low} to the worst {high} of outcomes ({middle} on average)"
    shares: dict[str, float] = {}  # two levels may have become the same part of the outcomes
    for level, weight in zip(levels, weights, strict=True):
        shares[_share(float(level))] = shares.get(_share(float(level)), 0.0) + float(weight)
    if len(shares) == 1:
        return next(iter(shares))
    parts = [f"{percent(weight)} on {share}" for share, weight in shares.items()]
    return ", ".join(parts[:-1]) + f" and {parts[-1]}"


def _share(level: float) -> str:
    if level >= 0.9995:
        return "the average of all outcomes"
    return f"the worst {percent(level)} of outcomes"


def opening(risk: ConditionalRisk, mean: float) -> str:
    """What the agent cares about at the start."""
    text = f"At the start the agent cares about {aim(risk)}. "
    below = np.asarray(risk.start_levels) < 1
    if below.sum() == 1:
        alpha, line = _tail_and_line(risk, below)
        text += (
            f"It counts an episode among the worst {alpha} if the total comes to less than {line}; "
            "this line stays where it is for the whole episode. "
        )
    return text + f"On average it expects a total of {number(mean)}."


def development(
    before: ConditionalRisk,
    now: ConditionalRisk,
    *,
    step: int,
    expected_before: float,
    expected: float,
    spread: float,
    exact: bool,
) -> str:
    """What a step changed, and what that means for the next decision.

    Arguments:
        before: the risk measure at the decision before.
        now: the risk measure here.
        step: the number of the decision before.
        expected_before: the total that was expected of the episode there.
        expected: the total that is expected here.
        spread: the standard deviation of totals, the unit of news.
        exact: whether the distributions are exact; otherwise a probability of 0 may be an error.
    """
    return f"{_news(step, expected_before, expected, spread)} {_change(before, now, exact)}"


def _news(step: int, before: float, now: float, spread: float) -> str:
    moved = (now - before) / spread if spread > 0 else 0.0
    what = f"the expected total went from {number(before)} to {number(now)}"
    if abs(moved) < 0.1:
        return f"Step {step} brought little news: the expected total is {number(now)}."
    size = "much " if abs(moved) > 0.6 else ""
    return f"Step {step} went {size}{'better' if moved > 0 else 'worse'} than expected: {what}."


def _change(before: ConditionalRisk, now: ConditionalRisk, exact: bool) -> str:
    below = np.asarray(now.start_levels) < 1
    if not below.any():
        return "The agent maximises the average, at every step: nothing about that changes."
    if not float(now.xi) > 0:
        if exact:
            return (
                "No outcome from here is a bad one any more, whatever it does: the measure is "
                "settled, and every action is as good as any other."
            )
        return "Hardly any outcome from here is a bad one any more: what it does matters little."
    level, last = effective_level(now), effective_level(before)
    if len(below) > 1:
        return f"From here it cares about {aim(now)}: {_mixed(before, now, level, last)}"
    alpha = percent(float(np.asarray(now.start_levels)[0]))
    if level >= 0.9995:
        shift = f"every outcome seen from here lies in the worst {alpha} seen from the start"
    else:
        shift = (
            f"the worst {alpha} seen from the start has become the worst {percent(level)} seen "
            "from here"
        )
    return f"Now {shift}: {_single(level, last)}"


def _single(level: float, last: float) -> str:
    """For a single CVaR: the closer the bad outcomes, the larger the share that counts."""
    if level >= 0.9995:
        return "it can do no better than maximise the average, and takes risks that pay."
    if level < 0.1:
        if last < 0.1 and abs(level - last) < 0.02:
            return "still only the extreme tail matters, and it keeps guarding against it."
        return "only the extreme tail still matters, so it guards against the rare bad end."
    if abs(level - last) <= _SAME * last:
        return "its attitude is about what it was."
    if level < last:
        return (
            "the bad outcomes have moved further away, so it looks at a smaller tail and is more "
            "careful."
        )
    if level > 0.9:
        return (
            "nearly every outcome is a bad one, so it acts almost as if it maximised the average."
        )
    return (
        "the bad outcomes have come closer, so more of what can happen counts, and it is readier "
        "to take risks that pay."
    )


def _mixed(before: ConditionalRisk, now: ConditionalRisk, level: float, last: float) -> str:
    """For a mixture: the weights change as well, often in the other direction."""
    near, was = _nearness(now), _nearness(before)
    if abs(near - was) <= _SAME * was and abs(level - last) <= _SAME * last:
        return "its attitude is about what it was."
    cause = "are about as near as they were"
    if abs(near - was) > _SAME * was:
        cause = "have come closer" if near > was else "have moved further away"
    if level > last:
        return (
            f"the bad outcomes {cause}, and it looks at more of what can happen: it is readier to "
            "take risks that pay."
        )
    return f"the bad outcomes {cause}, and they weigh more in what it looks at: it is more careful."


def _nearness(risk: ConditionalRisk) -> float:
    """How much likelier than at the start a bad outcome is: ξ without the mean."""
    below = np.asarray(risk.start_levels) < 1
    mu = np.asarray(risk.start_weights)[below]
    return float((mu * np.asarray(risk.xi_per_level)[below]).sum() / max(mu.sum(), 1e-300))


def ending(total: float, risk: ConditionalRisk) -> str:
    """How the episode ended."""
    text = f"The episode is over with a total of {number(total)}."
    below = np.asarray(risk.start_levels) < 1
    if below.sum() != 1:
        return text
    alpha, line = _tail_and_line(risk, below)
    inside = float(np.asarray(risk.levels)[below][0]) > 0.5
    where = "among the worst" if inside else "not among the worst"
    return f"{text} The line was {line}: it is {where} {alpha}."


def _tail_and_line(risk: ConditionalRisk, below: np.ndarray) -> tuple[str, str]:
    """The only level below 1 and its threshold, as text."""
    level, threshold = np.asarray(risk.start_levels)[below], np.asarray(risk.thresholds)[below]
    return percent(float(level[0])), number(float(threshold[0]))
