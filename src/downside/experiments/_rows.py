"""Rows of results in CSV files, and JSON files that say how they were made."""

import csv
import io
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from downside._files import DamagedFileError, check_regular, read_json, write_text
from downside._locks import lock
from downside._machine import commit, cores, machine, versions

Row = dict[str, Any]
_REMEDY = "It may have been cut short: restore it, or delete it to make its rows again."


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file; none if there is no such file.

    Raises:
        DamagedFileError: if a row is not whole.
    """
    if not path.exists():
        return []
    check_regular(path)
    try:
        text = path.read_text(encoding="utf-8")
        columns, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    except (ValueError, csv.Error) as error:
        raise DamagedFileError(f"{path} is no CSV file: {error}. {_REMEDY}") from error
    for number, line in enumerate(lines, 1):
        if len(line) != len(columns):
            raise DamagedFileError(
                f"Row {number} of {path} must have {len(columns)} entries, got {len(line)}. "
                f"{_REMEDY}"
            )
    if not text.endswith("\n"):  # the last entry may lack digits
        raise DamagedFileError(f"{path} ends in the middle of a line. {_REMEDY}")
    return [dict(zip(columns, line, strict=True)) for line in lines]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes all rows atomically."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def add_rows(
    path: Path,
    rows: list[Row],
    new: Sequence[Row],
    keys: Sequence[str],
    command: str,
    facts: Callable[[Sequence[Row]], Mapping[str, Any]] | Mapping[str, Any],
    order: Callable[[Row], Any] | None = None,
) -> None:
    """Adds rows to a table, and to `rows`, which is what was there before; also those that another
    command has added meanwhile.

    Arguments:
        path: the CSV file; `NAME.json` beside it says how it was made.
        rows: those that were read; changed in place.
        new: the new rows.
        keys: the columns that tell rows apart; a new row replaces the one that has the same.
        command: what makes them.
        facts: further entries of the JSON file, which may follow from all rows.
        order: of the rows.
    """
    made = {tuple(str(row[key]) for key in keys) for row in new}
    with lock(path.parent, wait=True):
        there = [row for row in read_rows(path) if tuple(str(row[key]) for key in keys) not in made]
        rows[:] = [*there, *new] if order is None else sorted([*there, *new], key=order)
        write_rows(path, rows)
        write_about(
            path.with_suffix(".json"), command, **(facts(rows) if callable(facts) else facts)
        )


def without_agent(rows: Sequence[Row], columns: Row, *keys: str) -> list[Row]:
    """The rows without those that have the same `keys` as `columns`."""
    agent = [str(columns[key]) for key in keys]
    return [row for row in rows if [str(row[key]) for key in keys] != agent]


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows with these entries."""
    return [
        row for row in rows if all(str(row[name]) == str(value) for name, value in wanted.items())
    ]


def by_seed(rows: Sequence[Row], **wanted: Any) -> dict[int, float]:
    """The value of each seed's agent, among the rows with these entries."""
    seeds = {int(row["seed"]): float(row["value"]) for row in select(rows, **wanted)}
    return dict(sorted(seeds.items()))


def values(rows: Sequence[Row], **wanted: Any) -> Float[np.ndarray, " seeds"]:
    """As `by_seed`, without the seeds."""
    return np.array(list(by_seed(rows, **wanted).values()))


def read_about(path: Path) -> dict[str, Any]:
    """How the rows were made; empty if there is no such file."""
    return read_json(path) if path.exists() else {}


def write_about(path: Path, command: str, **facts: Any) -> None:
    """Writes how the rows were made, and keeps what made earlier rows."""
    now = {
        "commit": commit(),
        "versions": versions("downside", "jax", "equinox", "optax", "numpy", "gymnasium"),
        "python": platform.python_version(),
        "machine": machine(),
        "cores": cores(),
    }
    before = [made for made in read_about(path).get("made_with", ()) if made != now]
    about = {"command": command, **facts, "made_with": [*before, now]}
    write_text(path, json.dumps(about, indent=2) + "\n")
