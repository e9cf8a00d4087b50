"""What came of a study: runs that differ in their seed alone together, with an interval."""

import csv
import dataclasses
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich import box
from rich.markup import escape
from rich.table import Table

from downside._files import write_text
from downside.evaluation import Evaluation
from downside.evaluation.seeds import mean_interval, normal
from downside.runs import run_returns
from downside.sweeping.cells import Cell, state
from downside.sweeping.labels import labels
from downside.sweeping.study import Study

_RESAMPLES, _CONFIDENCE = 2000, 0.95


class Estimate(NamedTuple):
    """A mean over seeds with its 95% interval."""

    value: float
    low: float
    high: float
    values: tuple[float, ...]
    """Of each seed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of one environment, agent and measure."""

    env: str
    """The environment, with the parameters that the study varies."""
    agent: str
    """The agent, with the settings that the study varies."""
    risk: str
    """The measure that it was trained for."""
    cells: tuple[Cell, ...]
    """Its runs, one for each seed."""
    finished: int
    """How many of them are."""
    failed: int
    estimates: Mapping[str, Estimate]
    """By measure: the one it was trained for, and those of the study. Empty if none is finished.

    With several seeds the interval comes from resampling these: it says how much another training
    would differ. With one it is about the episodes alone."""


def summarise(study: Study, folder: Path, failed: Collection[str] = ()) -> tuple[Group, ...]:
    """The groups of a study, in the order of the file; `failed` are names of runs."""
    together: dict[str, list[Cell]] = {}
    for cell in study.cells:  # by what they are: labels are for reading, and may be the same
        together.setdefault(cell.kind, []).append(cell)
    names = labels(study.cells)
    return tuple(
        _group(*names[cells[0].key], cells[0].risk, cells, study, folder, failed)
        for cells in together.values()
    )


def _group(
    env: str,
    agent: str,
    risk: str,
    cells: Sequence[Cell],
    study: Study,
    folder: Path,
    failed: Collection[str],
) -> Group:
    states = [state(folder / one.name, one.episodes) for one in cells]
    found = [
        run_returns(folder / one.name)
        for one, how in zip(cells, states, strict=True)
        if how == "finished"
    ]
    measures = dict.fromkeys([risk, *study.measures]) if found else ()
    return Group(
        env=env,
        agent=agent,
        risk=risk,
        cells=tuple(cells),
        finished=len(found),
        failed=sum(one.name in failed for one in cells),
        estimates={measure: estimate(found, measure) for measure in measures},
    )


def estimate(found: Sequence[Evaluation], risk: str) -> Estimate:
    """The mean over seeds of a measure, from the evaluation of each."""
    values = np.array([one.value(risk) for one in found])
    mean = float(values.mean())
    if len(found) == 1:
        half = normal(_CONFIDENCE) * found[0].standard_error(risk)
        return Estimate(mean, mean - half, mean + half, tuple(values.tolist()))
    return Estimate(mean, *mean_interval(values, _CONFIDENCE, _RESAMPLES), tuple(values.tolist()))


# --- as a table -------------------------------------------------------------------------------


def summary_tables(groups: Sequence[Group], measures: Sequence[str]) -> list[Table]:
    """For the terminal: one for each environment, with a row for each group."""
    return [
        _table(env, [one for one in groups if one.env == env], measures)
        for env in dict.fromkeys(one.env for one in groups)
    ]


def _table(env: str, groups: Sequence[Group], measures: Sequence[str]) -> Table:
    table = Table(title=escape(env), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in ("agent", "trained for"):
        table.add_column(column, overflow="fold")
    for column in ("seeds", "its value", "95% interval", *measures):
        table.add_column(column, justify="right", no_wrap=True)
    for one in groups:
        own = one.estimates.get(one.risk)
        seeds = f"{one.finished}/{len(one.cells)}" + (f" ({one.failed} failed)" * bool(one.failed))
        value = f"{own.value:.3g}" if own else "-"
        interval = f"{own.low:.3g} to {own.high:.3g}" if own else "-"
        others = (f"{one.estimates[m].value:.3g}" if one.estimates else "-" for m in measures)
        table.add_row(escape(one.agent), escape(one.risk), seeds, value, interval, *others)
    return table


def write_summary(path: Path, groups: Sequence[Group]) -> None:
    """A CSV file with a row for each group and measure."""
    text = io.StringIO()
    names = ("environment", "agent", "trained_for", "measure", "value", "low", "high", "seeds")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for one in groups:
        for measure, found in one.estimates.items():
            numbers = (f"{number:.6g}" for number in (found.value, found.low, found.high))
            writer.writerow([one.env, one.agent, one.risk, measure, *numbers, one.finished])
    write_text(path, text.getvalue())
