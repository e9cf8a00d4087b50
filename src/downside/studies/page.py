"""One self-contained HTML page on a study: the values of all runs, and their learning curves."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from downside import __version__
from downside._files import write_text
from downside.evaluation.seeds import Estimate
from downside.reporting import fill
from downside.studies.study import Study
from downside.studies.summary import Group
from downside.train.log import LINES, read_lines

_LABELS, _COLUMN, _GAP = 270, 250, 34
"""Widths in the figure: of the labels, of a measure, and between two of these."""
_ROW, _TOP, _BOTTOM = 38, 46, 34
_COLUMNS = 4
"""Measures that fit side by side; the table has all."""
_COLOURS = 6
_MAX_POINTS = 120
_LEFT, _RIGHT, _HIGH, _LOW = 44, 352, 10, 180
"""Edges of a figure of learning curves."""


def write_page(
    path: Path, study: Study, groups: Sequence[Group], failed: Mapping[str, str]
) -> Path:
    """Writes the page of a study, and gives its path."""
    finished = sum(group.finished for group in groups)
    lengths = sorted({run.total_timesteps for run in study.runs})
    sections = [
        _section(env, [group for group in groups if group.env == env], study, path.parent)
        for env in dict.fromkeys(group.env for group in groups)
    ]
    text = fill(
        "study.html.j2",
        styles=("report.css", "study.css"),
        title=study.name,
        folder=path.parent.as_posix(),
        version=__version__,
        runs=len(study.runs),
        finished=finished,
        unfinished=len(study.runs) - finished - len(failed),
        faults=[
            {"name": name, "last": text.splitlines()[-1] if text else "", "text": text}
            for name, text in failed.items()
        ],
        agents=len({group.agent for group in groups}),
        risks=len({group.risk for group in groups}),
        seeds=max(len(group.runs) for group in groups),
        steps=" or ".join(f"{steps:,}" for steps in lengths[:3]),
        measures=study.measures,
        sections=sections,
    )
    write_text(path, text)
    return path


def _section(env: str, groups: Sequence[Group], study: Study, folder: Path) -> dict[str, Any]:
    agents = list(dict.fromkeys(group.agent for group in groups))
    colours = {agent: number % _COLOURS for number, agent in enumerate(agents)}
    best = {
        measure: max((g.estimates[measure].value for g in groups if g.estimates), default=0.0)
        for measure in study.measures
    }
    return {
        "env": env,
        "dots": _dots(groups, study.measures[:_COLUMNS], colours),
        "curves": _curves(groups, folder, colours),
        "rows": [
            {
                "agent": group.agent,
                "risk": group.risk,
                "seeds": len(group.runs),
                "finished": group.finished,
                "failed": group.failed,
                "cells": [
                    _numbers(group.estimates.get(group.risk), None),
                    *(_numbers(group.estimates.get(name), best[name]) for name in study.measures),
                ],
            }
            for group in groups
        ],
    }


def _numbers(estimate: Estimate | None, best: float | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {**estimate._asdict(), "best": best is not None and estimate.value == best}


# --- the figure of dots -----------------------------------------------------------------------


def _dots(
    groups: Sequence[Group], measures: Sequence[str], colours: Mapping[str, int]
) -> dict[str, Any] | None:
    """A row for each group and a column for each measure, in pixels."""
    shown = [group for group in groups if group.estimates]
    if not shown:
        return None
    columns, marks = [], {id(group): [] for group in shown}
    for number, measure in enumerate(measures):
        left = _LABELS + number * (_COLUMN + _GAP)
        estimates = [group.estimates[measure] for group in shown]
        low = min(min(estimate.low, *estimate.values) for estimate in estimates)
        high = max(max(estimate.high, *estimate.values) for estimate in estimates)
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)

        def at(value: float, left: int = left, low: float = low, high: float = high) -> float:
            return round(left + 8 + (_COLUMN - 16) * (value - low) / (high - low), 1)

        ticks = [{"x": at(tick), "text": _short(tick)} for tick in nice_ticks(low, high)]
        columns.append({"measure": measure, "left": left, "ticks": ticks})
        for group, estimate in zip(shown, estimates, strict=True):
            marks[id(group)].append(
                {
                    "x": at(estimate.value),
                    "low": at(estimate.low),
                    "high": at(estimate.high),
                    "seeds": [at(value) for value in estimate.values],
                    "said": f"{measure} {estimate.value:.4g} "
                    f"({estimate.low:.4g} to {estimate.high:.4g})",
                }
            )
    return {
        "width": _LABELS + len(measures) * (_COLUMN + _GAP),
        "height": _TOP + _ROW * len(shown) + _BOTTOM - 18,
        "columns": columns,
        "rows": [
            {
                "y": _TOP + _ROW * number,
                "agent": group.agent,
                "risk": group.risk,
                "colour": colours[group.agent],
                "marks": marks[id(group)],
            }
            for number, group in enumerate(shown)
        ],
    }


def nice_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round numbers between two others, a few of them."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    return [round(i * step, 12) for i in range(first, math.floor(high / step) + 1)]


def _short(value: float) -> str:
    return f"{value:.4g}"


# --- learning curves --------------------------------------------------------------------------


def _curves(
    groups: Sequence[Group], storage: Path, colours: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A figure for each measure, a line for each agent that maximises it."""
    figures = []
    for risk in dict.fromkeys(group.risk for group in groups):
        curves = [(g, _learning(g, storage)) for g in groups if g.risk == risk]
        curves = [(group, curve) for group, curve in curves if len(curve) > 1]
        if not curves:
            continue
        steps = max(curve[-1, 0] for _, curve in curves)
        values = np.concatenate([curve[:, 1] for _, curve in curves])
        low, high = float(values.min()), float(values.max())
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
        scale = (_RIGHT - _LEFT) / steps, (_LOW - _HIGH) / (high - low)
        figures.append(
            {
                "risk": risk,
                "steps": f"{int(steps):,}",
                "ticks": [
                    {"y": round(_LOW - (tick - low) * scale[1], 1), "text": _short(tick)}
                    for tick in nice_ticks(low, high)
                ],
                "lines": [
                    {
                        "agent": group.agent,
                        "colour": colours[group.agent],
                        "points": " ".join(
                            f"{_LEFT + step * scale[0]:.1f},{_LOW - (value - low) * scale[1]:.1f}"
                            for step, value in curve
                        ),
                    }
                    for group, curve in curves
                ],
            }
        )
    return figures


def _learning(group: Group, storage: Path) -> np.ndarray:
    """Steps and mean value over seeds, at the steps that all seeds have; thinned out."""
    records = [r for r in (_record(storage / run.name) for run in group.runs) if r]
    shared = sorted(set.intersection(*map(set, records))) if records else []
    stride = max(1, math.ceil(len(shared) / _MAX_POINTS))
    kept = sorted({*shared[::stride], *shared[-1:]})
    return np.array([[step, np.mean([record[step] for record in records])] for step in kept])


def _record(folder: Path) -> dict[int, float]:
    """The value at each step; what is no record, such as half a line, is left out."""
    values = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob(f"log_*/{LINES}")):
            for step, record in read_lines(path).items():
                value = record.get("value")
                if isinstance(value, int | float) and math.isfinite(value) and step >= 0:
                    values[step] = float(value)
    return values
