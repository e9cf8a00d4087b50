"""One self-contained HTML page on a whole study: what everything is worth, and how it got there."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from downside import __version__
from downside._files import write_text
from downside.reporting import fill
from downside.sweeping.study import Study
from downside.sweeping.summary import Estimate, Group

_LABELS, _COLUMN, _GAP = 270, 250, 34
"""Widths in the figure: of the labels, of a measure, and between two of these."""
_ROW, _TOP, _BOTTOM = 38, 46, 34
_COLUMNS = 4
"""Measures that fit side by side; the table has all."""
_COLOURS = 6
_MOST_POINTS = 120
_LEFT, _RIGHT, _HIGH, _LOW = 44, 352, 10, 180
"""Edges of a figure of learning curves."""


def write_page(
    path: Path, study: Study, groups: Sequence[Group], failed: Mapping[str, str]
) -> Path:
    """Writes the page of a study, and gives its path."""
    finished = sum(one.finished for one in groups)
    lengths = sorted({one.total_timesteps for one in study.cells})
    sections = [
        _section(env, [one for one in groups if one.env == env], study, path.parent)
        for env in dict.fromkeys(one.env for one in groups)
    ]
    text = fill(
        "study.html.j2",
        styles=("report.css", "study.css"),
        title=study.name,
        folder=path.parent.as_posix(),
        version=__version__,
        runs=len(study.cells),
        finished=finished,
        unfinished=len(study.cells) - finished - len(failed),
        faults=[
            {"name": name, "last": text.splitlines()[-1] if text else "", "text": text}
            for name, text in failed.items()
        ],
        agents=len({one.agent for one in groups}),
        risks=len({one.risk for one in groups}),
        seeds=max(len(one.cells) for one in groups),
        steps=" or ".join(f"{steps:,}" for steps in lengths[:3]),
        measures=study.measures,
        sections=sections,
    )
    write_text(path, text)
    return path


def _section(env: str, groups: Sequence[Group], study: Study, folder: Path) -> dict[str, Any]:
    agents = list(dict.fromkeys(one.agent for one in groups))
    colours = {agent: number % _COLOURS for number, agent in enumerate(agents)}
    best = {
        measure: max((one.estimates[measure].value for one in groups if one.estimates), default=0.0)
        for measure in study.measures
    }
    return {
        "env": env,
        "dots": _dots(groups, study.measures[:_COLUMNS], colours),
        "curves": _curves(groups, folder, colours),
        "rows": [
            {
                "agent": one.agent,
                "risk": one.risk,
                "seeds": len(one.cells),
                "finished": one.finished,
                "failed": one.failed,
                "cells": [
                    _numbers(one.estimates.get(one.risk), None),
                    *(_numbers(one.estimates.get(name), best[name]) for name in study.measures),
                ],
            }
            for one in groups
        ],
    }


def _numbers(found: Estimate | None, best: float | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {**found._asdict(), "best": best is not None and found.value == best}


# --- the figure of dots -----------------------------------------------------------------------


def _dots(
    groups: Sequence[Group], measures: Sequence[str], colours: Mapping[str, int]
) -> dict[str, Any] | None:
    """A row for each group and a column for each measure, in pixels."""
    there = [one for one in groups if one.estimates]
    if not there:
        return None
    columns, marks = [], {id(one): [] for one in there}
    for number, measure in enumerate(measures):
        left = _LABELS + number * (_COLUMN + _GAP)
        found = [one.estimates[measure] for one in there]
        low = min(min(one.low, *one.values) for one in found)
        high = max(max(one.high, *one.values) for one in found)
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)

        def at(value: float, left: int = left, low: float = low, high: float = high) -> float:
            return round(left + 8 + (_COLUMN - 16) * (value - low) / (high - low), 1)

        ticks = [{"x": at(one), "text": _short(one)} for one in nice_ticks(low, high)]
        columns.append({"measure": measure, "left": left, "ticks": ticks})
        for group, one in zip(there, found, strict=True):
            marks[id(group)].append(
                {
                    "x": at(one.value),
                    "low": at(one.low),
                    "high": at(one.high),
                    "seeds": [at(value) for value in one.values],
                    "said": f"{measure} {one.value:.4g} ({one.low:.4g} to {one.high:.4g})",
                }
            )
    return {
        "width": _LABELS + len(measures) * (_COLUMN + _GAP),
        "height": _TOP + _ROW * len(there) + _BOTTOM - 18,
        "columns": columns,
        "rows": [
            {
                "y": _TOP + _ROW * number,
                "agent": one.agent,
                "risk": one.risk,
                "colour": colours[one.agent],
                "marks": marks[id(one)],
            }
            for number, one in enumerate(there)
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
    groups: Sequence[Group], folder: Path, colours: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A figure for each measure that was trained for, a line for each agent."""
    out = []
    for risk in dict.fromkeys(one.risk for one in groups):
        own = [(one, _learning(one, folder)) for one in groups if one.risk == risk]
        own = [(one, curve) for one, curve in own if len(curve) > 1]
        if not own:
            continue
        steps = max(curve[-1, 0] for _, curve in own)
        values = np.concatenate([curve[:, 1] for _, curve in own])
        low, high = float(values.min()), float(values.max())
        low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
        scale = (_RIGHT - _LEFT) / steps, (_LOW - _HIGH) / (high - low)
        out.append(
            {
                "risk": risk,
                "steps": f"{int(steps):,}",
                "ticks": [
                    {"y": round(_LOW - (one - low) * scale[1], 1), "text": _short(one)}
                    for one in nice_ticks(low, high)
                ],
                "lines": [
                    {
                        "agent": one.agent,
                        "colour": colours[one.agent],
                        "points": " ".join(
                            f"{_LEFT + step * scale[0]:.1f},{_LOW - (value - low) * scale[1]:.1f}"
                            for step, value in curve
                        ),
                    }
                    for one, curve in own
                ],
            }
        )
    return out


def _learning(group: Group, folder: Path) -> np.ndarray:
    """Steps and mean value over seeds, as far as all seeds are; thinned out."""
    runs = [one for one in (_record(folder / cell.name) for cell in group.cells) if one]
    shared = sorted(set.intersection(*(set(one) for one in runs))) if runs else []
    stride = max(1, math.ceil(len(shared) / _MOST_POINTS))
    kept = sorted({*shared[::stride], *shared[-1:]})
    return np.array([[step, np.mean([run[step] for run in runs])] for step in kept])


def _record(folder: Path) -> dict[int, float]:
    """The value at each step; what was done twice, after a crash, counts once."""
    out = {}
    for path in sorted(folder.glob("log_*/progress.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
                out[int(record["timesteps"])] = float(record["value"])
            except (ValueError, KeyError, TypeError):
                continue  # a line that a crash cut short
    return out
