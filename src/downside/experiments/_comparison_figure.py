"""The paper's tables as figures: every agent by every measure, ours beside the paper's."""

from pathlib import Path
from typing import Any

from downside.experiments._book import Book
from downside.experiments._figures import MARKS, agent_words, colour, picture, words
from downside.experiments._paper import PaperTable
from downside.experiments._training import agent_of


def draw_comparison(
    book: Book, study: str, table: PaperTable, presets: tuple[str, ...], folder: Path
) -> None:
    """A panel for each measure, a line for each agent."""
    size = (2.0 + 1.75 * len(table.measures), 0.9 + 0.32 * len(table.rows))
    with picture(folder, study, 1, len(table.measures), size, sharey=True) as (figure, axes):
        for axis, measure in zip(axes[0], table.measures, strict=True):
            _draw_measure(axis, book, study, table, presets, measure)
        axes[0, 0].set_yticks(range(len(table.rows)), [agent_words(row) for row in table.rows])
        axes[0, 0].set_ylim(len(table.rows) - 0.5, -0.5)
        first = axes[0, 0]
        grey = "#777777"
        marks: list[Any] = [
            first.plot([], [], "o", color=grey, label=f"ours, preset {presets[0]}")[0],
            *(
                first.plot([], [], "o", color=grey, mfc="white", label=f"ours, preset {one}")[0]
                for one in presets[1:]
            ),
            first.plot([], [], "x", color=grey, label="in the paper (± standard deviation)")[0],
        ]
        if book.optimum(study, table.measures[0]) is not None:
            marks.append(first.plot([], [], color="black", lw=1, label="the optimum")[0])
        figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))


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
