"""A frontier as a static figure: the curve with its intervals, and the exact curve."""

from typing import TYPE_CHECKING

import numpy as np

from downside.studies.frontiers.curve import Frontier, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CLOSE = (0.08, 0.05)
"""Labels of points nearer than this, as shares of the axes, would overlap."""
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#777777"


def draw(frontier: Frontier) -> "Figure":
    """One panel; save the figure with `savefig`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.2), layout="constrained")
    axis = figure.subplots()
    exact = [point.optimum for point in frontier.points if point.optimum is not None]
    if exact:
        across, up = [best.start for best in exact], [best.end for best in exact]
        axis.plot(across, up, "s--", color=_GREEN, markersize=4, label="exact optimum")
    kept = [point for point in frontier.points if point not in frontier.dominated]
    across, up = [point.by_start.value for point in kept], [point.by_end.value for point in kept]
    axis.plot(across, up, color=_BLUE, linewidth=1.4, zorder=2)
    over = f"{len(frontier.seeds)} seeds" if len(frontier.seeds) > 1 else "episodes"
    label = f"{frontier.agent}, {frontier.confidence * 100:g}% over {over}"
    _draw_points(axis, kept, _BLUE, "o", label)
    if frontier.dominated:
        _draw_points(axis, frontier.dominated, _GREY, "X", "dominated by another point")
    knee = frontier.knee
    if knee is not None:
        at = knee.by_start.value, knee.by_end.value
        axis.plot(*at, "o", color="none", markeredgecolor=_ORANGE, markersize=15, mew=2)
        axis.annotate(
            "knee", at, (12, 10), textcoords="offset points", color=_ORANGE, weight="bold"
        )
    for point, below in zip(frontier.points, _below(frontier.points), strict=True):
        at = point.by_start.value, point.by_end.value
        axis.annotate(
            f"{point.weight:.3g}", at, (-6, -7 - 11 * below), textcoords="offset points",
            ha="right", va="top", fontsize=8, color=_GREY,
        )  # fmt: skip
    title = f"{frontier.env}: from {frontier.start} to {frontier.end}".replace("$", r"\$")
    axis.set(title=title, xlabel=f"{frontier.start} of the return", ylabel=f"{frontier.end}")
    axis.grid(color="#EEEEEE")
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower left", title=f"small: weight of {frontier.end}")
    return figure


def _below(points: "tuple[Point, ...]") -> list[int]:
    """For each point, by how many lines its label is moved down to avoid others."""
    places = np.array([(point.by_start.value, point.by_end.value) for point in points])
    scale = np.maximum(np.ptp(places, axis=0), 1e-12)
    close = (np.abs(places[:, None] - places) / scale < _CLOSE).all(axis=-1)
    lines: list[int] = []
    for i in range(len(points)):
        lines.append(max((lines[j] + 1 for j in range(i) if close[i, j]), default=0))
    return lines


def _draw_points(axis, points: "tuple[Point, ...] | list[Point]", colour, marker, label) -> None:
    first, second = [point.by_start for point in points], [point.by_end for point in points]
    axis.errorbar(
        [estimate.value for estimate in first],
        [estimate.value for estimate in second],
        xerr=[[e.value - e.low for e in first], [e.high - e.value for e in first]],
        yerr=[[e.value - e.low for e in second], [e.high - e.value for e in second]],
        fmt=marker,
        color=colour,
        ecolor=colour,
        elinewidth=1,
        markersize=6,
        label=label,
        zorder=3,
    )
