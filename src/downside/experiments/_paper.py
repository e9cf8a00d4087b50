"""The figures that the paper prints, from `paper.json`, and its names of agents."""

import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

NAMES: Mapping[str, str] = {
    "QR-SRM": "qrsrm",
    "QR-CVaR": "qrcvar",
    "QR-iCVaR": "qricvar",
    "QR-DQN": "qrdqn",
    "PG-SRM": "pgsrm",
    "AC-SRM": "acsrm",
}
"""Our names of the paper's algorithms, of PG-SRM and of AC-SRM."""


class Figure(NamedTuple):
    """A figure in a table of the paper."""

    mean: float
    """Over its seeds."""
    deviation: float
    """The standard deviation over its seeds."""

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


class PaperTable(NamedTuple):
    """A table of agents (rows) by measures (columns)."""

    rows: tuple[str, ...]
    """The agents, such as "QR-SRM cvar(0.5)" or "QR-CVaR 0.5"."""
    measures: tuple[str, ...]
    """The measures, as text."""
    figures: dict[tuple[str, str], Figure]
    """The figure of each agent and measure."""

    def best(self, measure: str) -> float:
        """The largest mean of a column."""
        return max(self.figures[row, measure].mean for row in self.rows)


@functools.cache
def _all() -> dict[str, Any]:
    file = importlib.resources.files("downside.experiments") / "paper.json"
    return json.loads(file.read_text(encoding="utf-8"))


@functools.cache
def paper_table(name: str) -> PaperTable:
    """A table: "mean_reversion" (table 2) or "windy_lunar_lander" (table 3)."""
    table = _all()[name]
    measures = tuple(table["columns"])
    figures = {
        (row, measure): Figure(*pair)
        for row, pairs in table["rows"].items()
        for measure, pair in zip(measures, pairs, strict=True)
    }
    return PaperTable(tuple(table["rows"]), measures, figures)


def example3_levels() -> list[float]:
    """The levels α_t along the paper's episode of Example 3."""
    return list(_all()["example_3_levels"])


def agent_label(algorithm: str, objective: str) -> str:
    """An agent as in the paper's tables: "QR-SRM cvar(0.5)", "QR-CVaR 0.5", "QR-DQN"."""
    if algorithm == "QR-DQN":
        return algorithm
    short = objective.removeprefix("cvar(").removesuffix(")")
    return f"{algorithm} {objective if algorithm.endswith('-SRM') else short}"


def agent_of(label: str) -> tuple[str, str]:
    """The algorithm and the objective of a label."""
    algorithm, _, rest = label.partition(" ")
    if algorithm == "QR-DQN":
        return algorithm, "cvar(1.0)"
    return algorithm, rest if algorithm.endswith("-SRM") else f"cvar({rest})"
