"""An evaluation as a static figure: the returns with the measure's value, and the spectrum."""

from typing import TYPE_CHECKING

import numpy as np

from downside.risk import AbstractSpectralRisk

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from downside.evaluation.episodes import Evaluation

_GREY, _ORANGE = "#BBBBBB", "#D55E00"


def draw(evaluation: "Evaluation", risk: AbstractSpectralRisk) -> "Figure":
    """Two panels; save the figure with `savefig`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    low, high = np.quantile(evaluation.returns, [0.0005, 0.9995])
    left.hist(np.clip(evaluation.returns, low, high), bins=100, density=True, color=_GREY)
    value = evaluation.value(risk)
    left.axvline(value, color=_ORANGE, linewidth=2, label=f"{risk}: {value:.4g}")
    mean = evaluation.mean
    left.axvline(mean, color="black", linestyle="--", label=f"mean: {mean:.4g}")
    title = evaluation.label.replace("$", r"\$") or "Returns"
    left.set(title=title, xlabel="discounted return of an episode", yticks=[])
    left.set_ylim(0, 1.3 * left.get_ylim()[1])
    left.legend(frameon=False, loc="upper left")
    ranks = np.linspace(0.001, 0.999, 999)
    heights = np.minimum(np.asarray(risk.spectrum(ranks)), 20.0)
    right.fill_between(ranks, heights, color=_ORANGE, alpha=0.15, linewidth=0)
    right.plot(ranks, heights, color=_ORANGE)
    right.set(title="How much each rank weighs", xlabel="rank, worst to best", xlim=(0, 1))
    right.set_ylim(bottom=0)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    return figure
