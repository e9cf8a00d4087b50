"""Results as rows that grow in a CSV file, with how they were made beside them."""

import csv
import importlib.metadata
import io
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from downside._files import write_text
from downside._machine import commit, cores, machine

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes all rows, whole or not at all."""
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def without_agent(rows: Sequence[Row], own: Row, *keys: str) -> list[Row]:
    """The rows without those of one agent, which have the entries `keys` of one of its `own`."""
    agent = [str(own[key]) for key in keys]
    return [row for row in rows if [str(row[key]) for key in keys] != agent]


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows with these entries."""
    return [
        row for row in rows if all(str(row[name]) == str(value) for name, value in wanted.items())
    ]


def by_seed(rows: Sequence[Row], **wanted: Any) -> dict[int, float]:
    """The value of each seed's agent, among the rows with these entries."""
    own = {int(row["seed"]): float(row["value"]) for row in select(rows, **wanted)}
    return dict(sorted(own.items()))


def values(rows: Sequence[Row], **wanted: Any) -> Float[np.ndarray, " seeds"]:
    """As `by_seed`, without the seeds."""
    return np.array(list(by_seed(rows, **wanted).values()))


def read_about(path: Path) -> dict[str, Any]:
    """What is written beside the rows; nothing if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_about(path: Path, command: str, **facts: Any) -> None:
    """Writes beside the rows how they were made. What made earlier ones of them stays there."""
    now = {
        "commit": commit(),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("downside", "jax", "equinox", "optax", "numpy", "gymnasium")
        },
        "python": platform.python_version(),
        "machine": machine(),
        "cores": cores(),
    }
    before = [one for one in read_about(path).get("made_with", ()) if one != now]
    about = {"command": command, **facts, "made_with": [*before, now]}
    write_text(path, json.dumps(about, indent=2) + "\n")
