"""A plan as a picture: what it earns, how it was found, and the exercise boundary of an option."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from downside._files import atomic_write
from downside.exact.option import OptionProblem
from downside.exact.plan import Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GREY, _BLUE, _ORANGE, _GREEN = "#BBBBBB", "#0072B2", "#D55E00", "#009E73"
_SCATTERED = ("knots by their bounds", "every attainable knot")
_STARTS = (_BLUE, _GREEN, "#CC79A7", "#E69F00", "#56B4E9")


def draw(plan: Plan) -> "Figure":
    """Panels side by side; save the figure with `savefig`."""
    from matplotlib.figure import Figure

    boundary = plan.boundary
    panels = 2 if boundary is None else 3
    figure = Figure(figsize=(4.6 * panels, 3.8), layout="constrained")
    axes = figure.subplots(1, panels)
    _draw_returns(axes[0], plan)
    _draw_search(axes[1], plan)
    if boundary is not None:
        _draw_boundary(axes[2], boundary, plan)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"The optimum of {plan.risk}, γ = {plan.gamma:g}")
    return figure


def save(plan: Plan, path: str | Path) -> None:
    """Writes the picture to a PNG or SVG file."""
    figure = draw(plan)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _draw_returns(axis, plan: Plan) -> None:
    low, high = np.quantile(plan.returns, [0.0005, 0.9995])
    axis.hist(np.clip(plan.returns, low, high), bins=100, density=True, color=_GREY)
    axis.axvline(plan.simulated, color=_ORANGE, linewidth=2, label=f"its value, {plan.estimate}")
    axis.axvline(
        plan.returns.mean(), color="black", linestyle="--", label=f"mean, {plan.returns.mean():.4f}"
    )
    axis.set(
        title="What the plan earns",
        xlabel="discounted return of an episode",
        ylabel="density",
        yticks=[],
    )
    axis.set_ylim(0, 1.35 * axis.get_ylim()[1])
    axis.legend(edgecolor="none", framealpha=0.9, fontsize=9, loc="upper left")


def _draw_search(axis, plan: Plan) -> None:
    values = np.array([round_.value for round_ in plan.trace])
    starts = list(dict.fromkeys(round_.start for round_ in plan.trace))
    for i, start in enumerate(starts):
        at = [j for j, round_ in enumerate(plan.trace) if round_.start == start]
        colour = _STARTS[i % len(_STARTS)]
        style = "o" if start in _SCATTERED else "o-"
        axis.plot(np.array(at) + 1, values[at], style, color=colour, markersize=4, label=start)
    axis.axhline(plan.value, color=_ORANGE, linewidth=1, label=f"optimum, {plan.value:.4f}")
    spread = max(np.ptp(values[values >= np.median(values)]), 1e-3)
    axis.set(
        title="How it was found",
        xlabel="inner problem",
        ylabel="J, the value for its utility",
        ylim=(plan.value - 3 * spread, plan.value + 1.6 * spread),
    )
    axis.legend(edgecolor="none", framealpha=0.9, fontsize=8, loc="upper left", ncols=2)


def _draw_boundary(axis, boundary: np.ndarray, plan: Plan) -> None:
    axis.plot(np.arange(len(boundary)), boundary, "o-", color=_BLUE)
    assert isinstance(plan.problem, OptionProblem)
    side = "below" if plan.problem.env.kind == "put" else "above"
    axis.set(
        title=f"Exercise at this price or {side} it",
        xlabel="decision time",
        ylabel="price",
        xlim=(-0.5, len(boundary) - 0.5),
    )
    if np.isnan(boundary).all():
        axis.text(0.5, 0.5, "never before maturity", transform=axis.transAxes, ha="center")
