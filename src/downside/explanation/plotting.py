"""An explanation as a static figure: two CDFs as in Example 3, the level over time, the weights."""

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from downside.explanation.results import Episode, Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ORANGE = "#D55E00"
BANDS = (0.05, 0.2, 0.5, 0.9995, 1.0)
"""Upper edges of the bands into which the weights of many levels are summed."""
BAND_NAMES = ("worst 5%", "worst 5-20%", "worst 20-50%", "worst 50-100%", "the average")
COLOURS = ("#D55E00", "#E69F00", "#56B4E9", "#0072B2", "#009E73", "#CC79A7")
"""Okabe and Ito's colours, which colour-blind people can tell apart."""
_FEW = len(COLOURS)


def draw(explanation: Explanation, episode: Episode) -> "Figure":
    """Four panels; save the figure with `savefig`."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 7.2), layout="constrained")
    (to_come, total), (level, weight) = figure.subplots(2, 2)
    steps = episode.steps
    running = [step for step in steps if step.actions] or list(steps)
    shown = running[:: max(1, len(running) // 12)]
    for i, step in enumerate(shown):
        colour = colormaps["viridis"](0.9 * i / max(1, len(shown) - 1))
        for axis, distribution in ((to_come, step.returns), (total, step.total)):
            axis.step(
                np.asarray(distribution.values),
                np.asarray(distribution.cumulative),
                where="post",
                color=colour,
                label=f"t = {step.time}",
            )
    for alpha, line in zip(*lines(explanation), strict=True):
        total.axvline(line, color=_ORANGE, linewidth=1.2)
        total.annotate(
            f" λ({alpha:g})",
            (line, 0.01),
            color=_ORANGE,
            fontsize=8,
            xycoords=("data", "axes fraction"),
        )
    to_come.set(title="Return still to come, $G_t$", ylabel="probability")
    total.set(title="Total of the episode, $s_t + c_t G_t$", ylabel="probability")
    to_come.legend(frameon=False, fontsize=7, ncols=2)

    times = [step.time for step in steps]
    if explanation.calibration is not None:
        _draw_spread(level, explanation)
    level.plot(
        times,
        [step.level for step in steps],
        "o-",
        color=_ORANGE,
        markersize=4,
        label="this episode",
    )
    level.set(title="Share of outcomes that matters from here", xlabel="step", ylim=(-0.02, 1.02))
    level.legend(frameon=False, fontsize=8)

    if len(np.asarray(steps[0].risk.start_levels)) == 1:
        weight.bar(times, [float(step.risk.xi) for step in steps], width=0.9, color=COLOURS[3])
        weight.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
        weight.set(title="Weight of this step in the measure, ξ", xlabel="step")
    else:
        _draw_weights(weight, episode, times)
    for axis in (to_come, total, level, weight):
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{explanation.title}, episode {episode.seed}".replace("$", r"\$"))
    return figure


def lines(explanation: Explanation) -> tuple[list[float], list[float]]:
    """The levels below 1 and their thresholds λ; none where a spectrum has too many."""
    risk = explanation.episodes[0].steps[0].risk
    levels, thresholds = np.asarray(risk.start_levels), np.asarray(risk.thresholds)
    below = levels < 1
    if below.sum() > _FEW:
        return [], []
    return [float(x) for x in levels[below]], [float(x) for x in thresholds[below]]


def weights(episode: Episode) -> tuple[list[str], Float[np.ndarray, "T k"]]:
    """The weight of each level at each step; many levels are summed into bands."""
    first = episode.steps[0].risk
    start = np.asarray(first.start_levels)
    shares = np.array([np.asarray(step.risk.weights) for step in episode.steps])
    if len(start) <= _FEW:
        names = ["the average" if a >= 1 else f"worst {100 * a:g}% at first" for a in start]
        return names, shares
    levels = np.array([np.asarray(step.risk.levels) for step in episode.steps])
    edges = (-np.inf, *BANDS[:-1], np.inf)
    return list(BAND_NAMES), np.stack(
        [
            np.where((levels > low) & (levels <= high), shares, 0.0).sum(axis=1)
            for low, high in itertools.pairwise(edges)
        ],
        axis=1,
    )


def _draw_weights(axis: Any, episode: Episode, times: list[int]) -> None:
    names, shares = weights(episode)
    bottom = np.zeros(len(times))
    for i, name in enumerate(names):
        axis.bar(times, shares[:, i], bottom=bottom, label=name, width=0.9, color=COLOURS[i])
        bottom = bottom + shares[:, i]
    axis.set(title="What it weighs", xlabel="step", ylim=(0, 1))
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _draw_spread(axis: Any, explanation: Explanation) -> None:
    checks = explanation.calibration
    assert checks is not None
    low, quarter, middle, three_quarters, high = checks.spread_of_levels.T
    axis.fill_between(
        checks.times, low, high, color="#0072B2", alpha=0.12, linewidth=0, label="90% of episodes"
    )
    axis.fill_between(
        checks.times,
        quarter,
        three_quarters,
        color="#0072B2",
        alpha=0.2,
        linewidth=0,
        label="half of them",
    )
    axis.plot(checks.times, middle, color="#0072B2", linewidth=1)
