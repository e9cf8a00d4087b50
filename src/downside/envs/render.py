"""Pictures and text of an episode so far. Matplotlib is only imported by those who draw."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from downside.envs.american_put import EXERCISE, AmericanPut
from downside.envs.augment import JaxReturnAware, JaxTargetAware
from downside.envs.cliff_walk import CliffWalk
from downside.envs.core import AbstractJaxEnv
from downside.envs.mean_reversion import MeanReversion

_INK, _MUTED, _PRICE, _SELL, _BUY = "#222222", "#9aa0a6", "#2b6cb0", "#c0392b", "#2f855a"
_GROUND, _CLIFF = "#efe9dc", "#3d3a36"


class Moment(NamedTuple):
    """One entry of an episode's history: how a state was reached."""

    state: Any
    action: int | None
    """The action that led here; None at the start."""
    reward: float
    """The reward on the way here; 0 at the start."""


@functools.singledispatch
def picture(core: AbstractJaxEnv, history: Sequence[Moment]) -> UInt8[np.ndarray, "h w 3"]:
    """The episode as an image."""
    del history
    raise NotImplementedError(
        f"There is no picture of {type(core).__name__}. Pass render_mode='ansi' for text, or "
        "register a function with `downside.envs.render.picture`."
    )


@functools.singledispatch
def text(core: AbstractJaxEnv, history: Sequence[Moment]) -> str:
    """The episode as text: one line per step, unless there is something better to show."""
    lines = [f"{'action':>6} {'reward':>9}  observation"]
    for moment in history:
        action = "" if moment.action is None else moment.action
        seen = np.array2string(np.asarray(core.observe(moment.state)), precision=3)
        lines.append(f"{action:>6} {moment.reward:>9.3f}  {seen}")
    return "\n".join(lines)


@picture.register(JaxReturnAware)
@picture.register(JaxTargetAware)
def _(core: JaxReturnAware | JaxTargetAware, history: Sequence[Moment]):
    inside = [moment._replace(state=moment.state.inner) for moment in history]
    return picture(core.env, inside)


@picture.register
def _(core: AmericanPut, history: Sequence[Moment]):
    prices = np.array([float(moment.state.price) for moment in history])
    times = np.array([int(moment.state.time) for moment in history]) * core.dt
    earned = history[-1].reward
    exercised = history[-1].action == EXERCISE
    last = len(prices) - 1 if exercised else len(prices)

    figure, (axis,) = _figure(1)
    axis.plot(times, prices, color=_MUTED, linestyle=":")
    axis.plot(times[:last], prices[:last], color=_PRICE, marker="o", markersize=4)
    _level(axis, core.strike, "strike")
    if exercised:
        axis.plot(times[-2], prices[-2], "*", color=_SELL, markersize=16, zorder=3)
        title = f"exercised at {times[-2]:g} for {earned:.3f}"
    elif int(history[-1].state.time) >= core.periods:
        axis.plot(times[-1], prices[-1], "*", color=_SELL, markersize=16, zorder=3)
        title = f"held to maturity, paid {earned:.3f}"
    else:
        title = "held so far"
    axis.set(title=f"American {core.kind}: {title}", ylabel="price", xlabel="time")
    axis.set_xlim(-0.02 * core.maturity, 1.02 * core.maturity)
    return _pixels(figure)


@picture.register
def _(core: MeanReversion, history: Sequence[Moment]):
    prices = np.array([float(moment.state.price) for moment in history])
    inventory = np.array([float(moment.state.inventory) for moment in history])
    times = np.array([int(moment.state.time) for moment in history]) * core.dt
    # The difference rather than the action: an illegal trade was replaced by a legal one.
    trades = np.diff(inventory)
    total = sum(moment.reward for moment in history)

    figure, (above, below) = _figure(2)
    _level(above, core.mean, "mean")
    above.plot(times, prices, color=_PRICE)
    for sign, marker, color, label in ((1, "^", _BUY, "buy"), (-1, "v", _SELL, "sell")):
        at = np.flatnonzero(sign * trades > 0.0)
        sizes = 25.0 + 120.0 * np.abs(trades[at]) / core.max_trade
        above.scatter(times[at], prices[at], sizes, color, marker=marker, label=label, zorder=3)
    corner = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2}
    above.legend(**corner, frameon=False, fontsize=8, markerscale=0.7)
    above.set_title(f"Mean reversion: sum of rewards {total:.3f}", loc="left")
    above.set(ylabel="price")
    below.axhline(0.0, color=_INK, linewidth=0.8)
    # The holding between two times is the one after the trade at the first of them.
    below.step(times, np.append(inventory[1:], inventory[-1]), where="post", color=_PRICE)
    below.set(xlabel="time", ylabel="inventory")
    below.set_xlim(-0.02 * core.maturity, 1.02 * core.maturity)
    return _pixels(figure)


@picture.register
def _(core: CliffWalk, history: Sequence[Moment]):
    cells = np.array([int(moment.state.cell) for moment in history])
    rows, columns = np.divmod(cells, core.columns)
    total = sum(moment.reward for moment in history)

    figure, (axis,) = _figure(1)
    ground = np.zeros((core.rows, core.columns))
    ground[-1, 1:-1] = 1.0
    edges = np.arange(core.columns + 1) - 0.5, np.arange(core.rows + 1) - 0.5
    axis.pcolormesh(*edges, ground, cmap=_two_colours(), edgecolors="white", linewidth=1.5)
    for cell, name in ((core.start, "start"), (core.goal, "goal")):
        row, column = divmod(cell, core.columns)
        axis.text(column, row + 0.4, name, ha="center", va="bottom", fontsize=9, color=_INK)
    axis.text(core.columns // 2, core.rows - 1, "cliff", ha="center", va="center", color="white")
    axis.plot(columns, rows, color=_PRICE, linewidth=2.0)
    axis.plot(columns[-1], rows[-1], "o", color=_SELL, markersize=14)
    axis.set(title=f"Cliff walk: {len(cells) - 1} moves, sum of rewards {total:g}", aspect="equal")
    axis.invert_yaxis()
    axis.set_axis_off()
    return _pixels(figure)


@text.register
def _(core: CliffWalk, history: Sequence[Moment]):
    grid = np.full(core.num_cells, ".")
    grid[core.start], grid[core.goal] = "S", "G"
    grid[core.start + 1 : core.goal] = "#"
    grid[int(history[-1].state.cell)] = "@"
    return "\n".join(" ".join(row) for row in grid.reshape(core.rows, core.columns))


def _figure(panels: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), dpi=100, layout="constrained")
    heights = [2, 1][:panels]
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _level(axis: Any, height: float, name: str) -> None:
    axis.axhline(height, color=_INK, linewidth=0.8, linestyle="--")
    beside = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8}
    axis.annotate(name, (1.01, height), **beside, color=_INK)


def _two_colours() -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap([_GROUND, _CLIFF])


def _pixels(figure: Any) -> UInt8[np.ndarray, "h w 3"]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba(), np.uint8)[..., :3].copy()
