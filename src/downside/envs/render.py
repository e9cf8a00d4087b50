"""Pictures and text of an episode so far. Matplotlib is only imported by those who draw."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from downside.envs.core import AbstractJaxEnv
from downside.envs.memory_env import JaxMemoryAware
from downside.envs.problems.finance.american_put import EXERCISE, AmericanPut
from downside.envs.problems.finance.hedging import Hedging
from downside.envs.problems.finance.mean_reversion import MeanReversion
from downside.envs.problems.finance.portfolio import Portfolio
from downside.envs.problems.finite.cliff_walk import CliffWalk
from downside.envs.problems.finite.tabulated import AbstractTabulated
from downside.envs.problems.guarded_maze import GOAL, GUARDED, SIZE, WALLS, GuardedMaze

_INK, _MUTED, _PRICE, _SELL, _BUY = "#222222", "#9aa0a6", "#2b6cb0", "#c0392b", "#2f855a"
_GROUND, _CLIFF = "#efe9dc", "#3d3a36"


class Moment(NamedTuple):
    """One entry of an episode's history: how a state was reached."""

    state: Any
    action: Any
    """The action that led here, a number or a vector; None at the start."""
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
    actions = ["action", *(_action_text(moment.action) for moment in history)]
    width = max(len(action) for action in actions)
    lines = [f"{actions[0]:>{width}} {'reward':>9}  observation"]
    for action, moment in zip(actions[1:], history, strict=True):
        observation = np.array2string(np.asarray(core.observe(moment.state)), precision=3)
        lines.append(f"{action:>{width}} {moment.reward:>9.3f}  {observation}")
    return "\n".join(lines)


def _action_text(action: Any) -> str:
    if action is None:
        return ""
    return np.array2string(action, precision=3) if np.ndim(action) else str(action)


@picture.register
def _(core: JaxMemoryAware, history: Sequence[Moment]):
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
    _holdings(below, times, inventory, _PRICE, "inventory")
    below.set(xlabel="time", ylabel="inventory")
    below.set_xlim(-0.02 * core.maturity, 1.02 * core.maturity)
    return _pixels(figure)


@picture.register
def _(core: Hedging, history: Sequence[Moment]):
    prices = np.array([float(moment.state.price) for moment in history])
    held = np.array([moment.state.positions for moment in history])
    times = np.array([int(moment.state.time) for moment in history]) * core.dt
    total = sum(moment.reward for moment in history)

    figure, (above, below) = _figure(2)
    _level(above, core.strike, "strike")
    above.plot(times, prices, color=_PRICE)
    if core.option == "lookback":
        highest = [float(moment.state.highest) for moment in history]
        above.plot(times, highest, color=_MUTED, linestyle=":")
    above.set_title(f"Hedging a {core.option}: profit so far {total:.3f}", loc="left")
    above.set(ylabel="price")
    below.axhline(0.0, color=_INK, linewidth=0.8)
    _holdings(below, times, held[:, 0], _PRICE, "stock")
    if core.swap:
        _holdings(below, times, held[:, 1] / core.max_swaps, _SELL, f"swaps / {core.max_swaps:g}")
        below.legend(frameon=False, fontsize=8)
    below.set(xlabel="time", ylabel="position")
    below.set_xlim(-0.02 * core.maturity, 1.02 * core.maturity)
    return _pixels(figure)


@picture.register
def _(core: Portfolio, history: Sequence[Moment]):
    wealth = np.array([float(moment.state.wealth) for moment in history])
    times = np.array([int(moment.state.time) for moment in history]) * core.dt
    # The weights after each trade: those that are seen have drifted since.
    chosen = [np.asarray(core.weights(moment.action)) for moment in history[1:]]
    chosen = np.array([*chosen, history[-1].state.weights])

    figure, (above, below) = _figure(2)
    _level(above, 1.0, "start")
    above.plot(times, wealth, color=_PRICE)
    above.set_title(f"Portfolio: wealth {wealth[-1]:.3f}", loc="left")
    above.set(ylabel="wealth")
    for i in range(core.num_assets):
        below.step(times, chosen[:, i], where="post", color=f"C{i}", label=f"asset {i}")
    below.legend(frameon=False, fontsize=8, ncols=core.num_assets)
    below.set(xlabel="time", ylabel="weight", ylim=(-0.05, 1.05))
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


@picture.register
def _(core: GuardedMaze, history: Sequence[Moment]):
    del core
    positions = np.array([moment.state.position for moment in history])
    total = sum(moment.reward for moment in history)

    figure, (axis,) = _figure(1)
    edges = np.arange(SIZE + 1) - 0.5
    axis.pcolormesh(edges, edges, WALLS.T, cmap=_two_colours(), edgecolors="white", linewidth=1.5)
    for cell, name in ((GOAL, "goal"), (GUARDED, "guard")):
        axis.text(*cell, name, ha="center", va="center", fontsize=9, color=_INK)
    axis.plot(*positions.T, color=_PRICE, linewidth=2.0, marker=".")
    axis.plot(*positions[-1], "o", color=_SELL, markersize=10)
    moves = len(positions) - 1
    axis.set(title=f"Guarded maze: {moves} moves, sum of rewards {total:.1f}", aspect="equal")
    axis.set_axis_off()
    return _pixels(figure)


@text.register
def _(core: CliffWalk, history: Sequence[Moment]):
    grid = np.full(core.num_cells, ".")
    grid[core.start], grid[core.goal] = "S", "G"
    grid[core.start + 1 : core.goal] = "#"
    grid[int(history[-1].state.cell)] = "@"
    return "\n".join(" ".join(row) for row in grid.reshape(core.rows, core.columns))


@picture.register
def _(core: AbstractTabulated, history: Sequence[Moment]):
    states = [int(moment.state.number) for moment in history]
    earned = np.cumsum([moment.reward for moment in history])
    figure, (upper, lower) = _figure(2)
    upper.plot(states, color=_PRICE, marker="o", markersize=4)
    upper.set(ylabel="state", ylim=(-0.5, core.tables.num_states - 0.5))
    upper.set_title(f"step {len(history) - 1}, rewards add up to {earned[-1]:.4g}", loc="left")
    lower.step(range(len(earned)), earned, where="post", color=_BUY)
    lower.set(xlabel="step", ylabel="rewards so far")
    return _pixels(figure)


def _figure(panels: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), dpi=100, layout="constrained")
    heights = [2, 1][:panels]
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _holdings(axis: Any, times: np.ndarray, held: np.ndarray, color: str, label: str) -> None:
    # The holding between two times is the one after the trade at the first of them.
    axis.step(times, np.append(held[1:], held[-1]), where="post", color=color, label=label)


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
