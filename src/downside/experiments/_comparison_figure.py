"""The paper's tables as figures: every agent by every measure, ours beside the paper's."""

import math
from pathlib import Path
from typing import Any

from downside.experiments._book import Book
from downside.experiments._figures import MARKS, agent_words, colour, picture, words
from downside.experiments._paper import PaperTable
from downside.experiments._training import agent_of

_COLUMNS = 4


def draw_comparison(
    book: Book, study: str, table: PaperTable, presets: tuple[str, ...], folder: Path
) -> None:
    """A panel for each measure, a line for each agent."""
    lines = math.ceil(len(table.measures) / _COLUMNS)
    size = (11.0, lines * (0.9 + 0.26 * len(table.rows)))
    there = tuple(preset for preset in presets if book.rows(study, preset))
    with picture(folder, study, lines, _COLUMNS, size, sharey=True) as (figure, axes):
        for axis, measure in zip(axes.flat, table.measures, strict=False):
            _draw_measure(axis, book, study, table, there, measure)
        axes[0, 0].set_yticks(range(len(table.rows)), [agent_words(row) for row in table.rows])
        axes[0, 0].set_ylim(len(table.rows) - 0.5, -0.5)
        empty = axes.flat[len(table.measures) :]
        for axis in empty:
            axis.set_axis_off()
        marks = _marks(axes[0, 0], book, study, table, there)
        if len(empty):
            empty[0].legend(handles=marks, loc="center left", fontsize=9)
        else:
            figure.legend(handles=marks, loc="outside lower center", ncols=4)


def _marks(
    axis: Any, book: Book, study: str, table: PaperTable, presets: tuple[str, ...]
) -> list[Any]:
    """What stands for what."""
    grey, there = "#777777", {agent_of(row)[0] for row in table.rows}
    faces = [(preset, grey if i == 0 else "white") for i, preset in enumerate(presets)]
    marks = [
        axis.plot([], [], "o", color=grey, mfc=face, label=f"ours, preset {preset}")[0]
        for preset, face in faces
    ]
    marks.append(axis.plot([], [], color=grey, lw=1, label="its 95% interval over seeds")[0])
    marks.append(axis.plot([], [], "x", color="#999999", label="in the paper, ± deviation")[0])
    if book.optimum(study, table.measures[0]) is not None:
        marks.append(axis.plot([], [], color="black", lw=1, label="the optimum")[0])
    named = [(name, mark) for name, mark in MARKS.items() if name in there]
    return marks + [axis.plot([], [], mark, color=grey, label=name)[0] for name, mark in named]


def _draw_measure(
    axis: Any,
    book: Book,
    study: str,
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
            found = book.range(study, preset, row, measure)
            if found is None:
                continue
            own, height = colour(row), place - 0.22 + 0.22 * i
            axis.plot([found.low, found.high], [height, height], color=own, linewidth=1)
            face = own if i == 0 else "white"
            mark = MARKS[agent_of(row)[0]]
            axis.plot(found.value, height, mark, color=own, markerfacecolor=face, markersize=4.5)
    best = book.optimum(study, measure)
    if best is not None:
        axis.axvline(best, color="black", linewidth=1)
    axis.set_title(words(measure))
    axis.grid(axis="y", color="#EEEEEE")
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)
