"""The paper's tables as figures: every agent by every measure, ours beside the paper's."""

import math
from pathlib import Path
from typing import Any

from downside.experiments._figures import MARKS, agent_words, colour, figure, words
from downside.experiments._paper import PaperTable, agent_of
from downside.experiments._results import Results

_COLUMNS = 4


def draw_comparison(
    results: Results, experiment: str, table: PaperTable, presets: tuple[str, ...], folder: Path
) -> None:
    """A panel for each measure, a line for each agent."""
    lines = math.ceil(len(table.measures) / _COLUMNS)
    size = (11.0, lines * (0.9 + 0.26 * len(table.rows)))
    shown = tuple(preset for preset in presets if results.rows(experiment, preset))
    with figure(folder, experiment, lines, _COLUMNS, size, sharey=True) as (drawn, axes):
        for axis, measure in zip(axes.flat, table.measures, strict=False):
            _draw_measure(axis, results, experiment, table, shown, measure)
        axes[0, 0].set_yticks(range(len(table.rows)), [agent_words(row) for row in table.rows])
        axes[0, 0].set_ylim(len(table.rows) - 0.5, -0.5)
        empty = axes.flat[len(table.measures) :]
        for axis in empty:
            axis.set_axis_off()
        marks = _marks(axes[0, 0], results, experiment, table, shown)
        if len(empty):
            empty[0].legend(handles=marks, loc="center left", fontsize=9)
        else:
            drawn.legend(handles=marks, loc="outside lower center", ncols=4)


def _marks(
    axis: Any, results: Results, experiment: str, table: PaperTable, presets: tuple[str, ...]
) -> list[Any]:
    """The legend."""
    grey, algorithms = "#777777", {agent_of(row)[0] for row in table.rows}
    faces = [(preset, grey if i == 0 else "white") for i, preset in enumerate(presets)]
    marks = [
        axis.plot([], [], "o", color=grey, mfc=face, label=f"ours, preset {preset}")[0]
        for preset, face in faces
    ]
    marks.append(axis.plot([], [], color=grey, lw=1, label="its 95% interval over seeds")[0])
    marks.append(axis.plot([], [], "x", color="#999999", label="in the paper, ± deviation")[0])
    if results.optimum(experiment, table.measures[0]) is not None:
        marks.append(axis.plot([], [], color="black", lw=1, label="the optimum")[0])
    named = [(name, mark) for name, mark in MARKS.items() if name in algorithms]
    return marks + [axis.plot([], [], mark, color=grey, label=name)[0] for name, mark in named]


def _draw_measure(
    axis: Any,
    results: Results,
    experiment: str,
    table: PaperTable,
    presets: tuple[str, ...],
    measure: str,
) -> None:
    for place, row in enumerate(table.rows):
        printed = table.figures[row, measure]
        axis.errorbar(
            printed.mean,
            place + 0.22,
            xerr=printed.deviation,
            fmt="x",
            color="#999999",
            markersize=4,
            linewidth=0.8,
        )
        for i, preset in enumerate(presets):
            estimate = results.estimate(experiment, preset, row, measure)
            if estimate is None:
                continue
            shade, height = colour(row), place - 0.22 + 0.22 * i
            axis.plot([estimate.low, estimate.high], [height, height], color=shade, linewidth=1)
            face = shade if i == 0 else "white"
            mark = MARKS[agent_of(row)[0]]
            axis.plot(
                estimate.value, height, mark, color=shade, markerfacecolor=face, markersize=4.5
            )
    best = results.optimum(experiment, measure)
    if best is not None:
        axis.axvline(best, color="black", linewidth=1)
    axis.set_title(words(measure))
    axis.grid(axis="y", color="#EEEEEE")
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
