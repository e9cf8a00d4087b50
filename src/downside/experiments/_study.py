"""What the studies share: rows in a CSV file that grow cell by cell, and how they were made."""

import csv
import importlib.metadata
import io
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from downside._files import write_text

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
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_about(path: Path, command: str, **facts: Any) -> None:
    """Writes beside the rows how they were made."""
    about = {
        "command": command,
        **facts,
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("downside", "jax", "equinox", "optax", "numpy")
        },
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    write_text(path, json.dumps(about, indent=2) + "\n")
