"""The figure of the number of quantiles: six panels, as in appendix I of the paper."""

from pathlib import Path
from typing import Any

import numpy as np

from downside.experiments._figures import colour, density, figure
from downside.experiments._rows import Row, select
from downside.experiments.optimum import optimum
from downside.risk import Distribution

_OURS, _THEIRS = "QR-SRM cvar(1.0)", "QR-DQN"
_LEVELS = np.linspace(0.01, 1.0, 100)
_SCORING_LINES = {
    "double sum, N knots": ("--", "#777777"),
    "lookup, N knots": ("-", "#777777"),
    "one knot (CVaR)": (":", "#777777"),
    "mean (QR-DQN)": ("-", colour(_THEIRS)),
}
"""Scorings are no agents, and have no colour but QR-DQN's."""


def draw(
    tables: tuple[list[Row], list[Row], list[Row], list[Row]], folder: Path, preset: str
) -> None:
    """Returns, CVaR at all levels, score against steps and time, convergence, and cost.

    `tables` are the values, the returns, the course of training, and the cost of an update.
    """
    rows, returns, curves, cost = tables
    agents = sorted({(row["algorithm"], int(row["quantiles"])) for row in rows})
    with figure(folder, f"quantiles-{preset}", 2, 3, (12.0, 7.2)) as (drawn, axes):
        _draw_returns(axes[0, 0], returns, agents)
        _draw_levels(axes[0, 1], returns)
        best = optimum(folder / "mean-reversion-optimum.csv").get("cvar(1.0)")
        for axis, name in ((axes[0, 2], "timesteps"), (axes[1, 0], "seconds")):
            _draw_scores(axis, curves, agents, name, best)
        _draw_convergence(axes[1, 1], curves, agents)
        _draw_cost(axes[1, 2], cost)
        drawn.suptitle(f"Number of quantiles, mean reversion, preset {preset}")


def _look(algorithm: str, count: int, agents: list[tuple[str, int]]) -> dict[str, Any]:
    """One colour for an algorithm; the more quantiles, the stronger."""
    label = _OURS if algorithm == "QR-SRM" else _THEIRS
    counts = [n for name, n in agents if name == algorithm]
    place = counts.index(count) / max(1, len(counts) - 1)
    return {
        "color": colour(label),
        "alpha": 0.3 + 0.7 * place,
        "linewidth": 0.9 + 0.9 * place,
        "linestyle": "-" if algorithm == "QR-SRM" else "--",
        "label": f"{algorithm}, {count} quantiles",
    }


def _draw_returns(axis: Any, returns: list[Row], agents: list[tuple[str, int]]) -> None:
    every = np.array([float(row["value"]) for row in returns])
    low, high = np.quantile(every, [0.005, 0.995])
    grid = np.linspace(low, high, 300)
    for algorithm, count in agents:
        rows = select(returns, algorithm=algorithm, quantiles=count)
        sample = [float(row["value"]) for row in rows]
        look = _look(algorithm, count, agents)
        axis.plot(grid, density(sample, grid), **look)
        axis.axvline(float(np.mean(sample)), **{**look, "label": None, "linewidth": 0.8})
    axis.set(
        title="Returns (lines: their mean)",
        xlabel="discounted return of an episode",
        ylabel="density",
        ylim=(0, None),
    )
    axis.legend(loc="upper left", fontsize=7)


def _draw_levels(axis: Any, returns: list[Row]) -> None:
    ours, theirs = (select(returns, algorithm=name) for name in ("QR-SRM", "QR-DQN"))
    counts = {int(row["quantiles"]) for row in ours} & {int(row["quantiles"]) for row in theirs}
    for count in sorted(counts):
        first, second = (levels(select(rows, quantiles=count)) for rows in (ours, theirs))
        gaps = np.array([first[seed] - second[seed] for seed in first if seed in second])
        if not len(gaps):
            continue
        place = (sorted(counts).index(count) + 1) / len(counts)
        axis.plot(
            _LEVELS, gaps.mean(axis=0), color=colour(_OURS), alpha=place, label=f"{count} quantiles"
        )
        if count == max(counts):
            low, high = gaps.min(axis=0), gaps.max(axis=0)
            axis.fill_between(_LEVELS, low, high, color=colour(_OURS), alpha=0.15, lw=0)
    axis.axhline(0.0, color=colour(_THEIRS), linestyle="--", linewidth=1)
    axis.set(
        title="QR-SRM less QR-DQN in the worst share",
        xlabel="share α of the worst episodes",
        ylabel="difference in CVaR (band: all seeds)",
    )
    axis.legend(loc="upper right")


def levels(returns: list[Row]) -> dict[int, Any]:
    """CVaR at all levels, a curve for each seed."""
    curves = {}
    for seed in sorted({int(row["seed"]) for row in returns}):
        sample = np.array([float(row["value"]) for row in select(returns, seed=seed)])
        curves[seed] = np.asarray(Distribution(sample).tail_mean(_LEVELS))
    return curves


def _draw_scores(
    axis: Any, curves: list[Row], agents: list[tuple[str, int]], name: str, best: float | None
) -> None:
    for algorithm, count in agents:
        rows = select(curves, algorithm=algorithm, quantiles=count)
        across, value = _mean_curve(rows, name, "value")
        unit = 1000 if name == "timesteps" else 1
        axis.plot(across / unit, value, **_look(algorithm, count, agents))
    steps = name == "timesteps"
    axis.set(
        title=f"Mean return against {'steps' if steps else 'time'}",
        xlabel="thousand environment steps" if steps else "seconds of training on one core",
        ylabel="mean return",
    )
    values = [float(row["value"]) for row in curves]
    if best is not None:
        axis.axhline(best, color="black", linewidth=1, label="the optimum")
        axis.annotate("the optimum", (0.02, best), xycoords=("axes fraction", "data"), va="bottom")
    low, high = float(np.quantile(values, 0.3)), max(max(values), -np.inf if best is None else best)
    axis.set_ylim(low, high + 0.1 * (high - low))  # the first steps would hide the rest


def _draw_convergence(axis: Any, curves: list[Row], agents: list[tuple[str, int]]) -> None:
    for algorithm, count in agents:
        rows = select(curves, algorithm=algorithm, quantiles=count)
        across, moved = _mean_curve(
            [row for row in rows if row["moved"] != ""], "timesteps", "moved"
        )
        axis.plot(across / 1000, moved, **_look(algorithm, count, agents))
    axis.set(
        title="Change of the learned start distribution",
        xlabel="thousand environment steps",
        ylabel="mean absolute change per outer step",
        yscale="log",
    )


def _mean_curve(rows: list[Row], across: str, name: str) -> tuple[Any, Any]:
    """The mean over seeds, step by step."""
    seeds = sorted({row["seed"] for row in rows}, key=int)
    lines = [select(rows, seed=seed) for seed in seeds]
    length = min((len(line) for line in lines), default=0)
    pick = [
        [[float(row[column]) for row in line[:length]] for line in lines]
        for column in (across, name)
    ]
    if not length:
        return np.zeros(0), np.zeros(0)
    return np.mean(pick[0], axis=0), np.mean(pick[1], axis=0)


def _draw_cost(axis: Any, cost: list[Row]) -> None:
    for scoring, (style, shade) in _SCORING_LINES.items():
        rows = select(cost, scoring=scoring)
        if rows:
            counts = [int(row["quantiles"]) for row in rows]
            times = [float(row["milliseconds"]) for row in rows]
            axis.plot(counts, times, f"o{style}", color=shade, markersize=4, label=scoring)
    axis.set(
        title="Time of an update, preset paper",
        xlabel="number of quantiles N",
        ylabel="milliseconds",
        xscale="log",
        yscale="log",
    )
    counts = sorted({int(row["quantiles"]) for row in cost})
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.minorticks_off()
    axis.legend()
