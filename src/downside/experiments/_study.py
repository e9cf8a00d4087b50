"""What the studies share: agents trained and valued cell by cell, rows that grow in a CSV file, and
how they were made."""

import csv
import importlib.metadata
import io
import itertools
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from downside._files import write_text
from downside.evaluation import Evaluation, evaluate
from downside.train import Agent, train_many

EPISODES = 100_000
"""Fresh episodes that an agent is valued in."""
EVALUATION_SEED = 1000
"""Of these episodes, plus the agent's own seed; training never sees it."""

Row = dict[str, Any]


class Cell(NamedTuple):
    """One agent of a study."""

    risk: str
    seed: int
    agent: Agent
    found: Evaluation
    """Its returns in fresh episodes."""
    seconds: float
    """What training took, divided by the number of agents that were trained together."""

    def row(self, *measures: str) -> list[Row]:
        """A row for each measure that the agent is valued by."""
        return [
            {
                "objective": self.risk,
                "seed": self.seed,
                "measure": measure,
                "value": round(self.found.value(measure), 6),
                "standard_error": round(self.found.standard_error(measure), 6),
                "predicted": round(self.agent.history[-1]["predicted"], 6),
                "seconds": round(self.seconds, 1),
            }
            for measure in measures
        ]


def train_cells(
    env: str, risks: Sequence[str], seeds: Sequence[int], **arguments: Any
) -> list[Cell]:
    """An agent for each risk and each seed, trained and valued."""
    begin = time.perf_counter()
    agents = train_many(env, risks=risks, seeds=seeds, progress_bar=True, **arguments)
    seconds = (time.perf_counter() - begin) / len(agents)
    return [
        Cell(
            risk,
            seed,
            agent,
            evaluate(agent, episodes=EPISODES, seed=EVALUATION_SEED + seed),
            seconds,
        )
        for (risk, seed), agent in zip(itertools.product(risks, seeds), agents, strict=True)
    ]


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
