"""The results as they are on disk: the values of each agent's seeds, and how they were made."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from downside.evaluation.seeds import difference_interval, mean_interval
from downside.experiments._rows import Row, read_about, read_rows, select, values
from downside.experiments._training import agent_of

RESAMPLES, CONFIDENCE = 10_000, 0.95
FILES = {"put": "american-put", "lunar": "lunar-lander"}
"""What the files of a study begin with, if not with its name."""


class Range(NamedTuple):
    """A mean over seeds, or a difference of two, with its 95% interval."""

    value: float
    low: float
    high: float
    seeds: int
    """How many there are; of a difference, in the smaller group."""


class Book:
    """The results in a folder; what has not been run yet is empty."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._read: dict[Path, list[Row]] = {}

    def rows(self, study: str, preset: str, part: str = "") -> list[Row]:
        """The rows of a study: of its values, or of another part such as "-returns"."""
        path = self.path(study, preset, part)
        if path not in self._read:
            self._read[path] = read_rows(path)
        return self._read[path]

    def path(self, study: str, preset: str, part: str = "") -> Path:
        """Where they are."""
        name = FILES.get(study, study)
        return self.folder / f"{name}-{preset}{part}.csv"

    def about(self, study: str, preset: str) -> dict[str, Any]:
        """How they were made."""
        return read_about(self.path(study, preset).with_suffix(".json"))

    def optimum_path(self, study: str) -> Path:
        """Where the planner's values are."""
        return self.folder / f"{FILES.get(study, study)}-optimum.csv"

    def optimum(self, study: str, measure: str) -> float | None:
        """The planner's value."""
        for row in read_rows(self.optimum_path(study)):
            if row["plan"] == row["measure"] == measure:
                return float(row["value"])
        return None

    def values(
        self, study: str, preset: str, agent: str, measure: str
    ) -> Float[np.ndarray, " seeds"]:
        """The values of an agent's seeds.

        Agents are called as in the paper's tables ("QR-CVaR 0.5"), in the study of quantiles
        "QR-SRM, 50 quantiles". The measure "boundary" is the price below which a put is
        exercised, 0 where it never is: the median over time, since single times differ a lot.
        """
        rows = self.rows(study, preset)
        if study == "lunar":
            return values(rows, row=agent, measure=measure)
        if study == "quantiles":
            algorithm, _, count = agent.removesuffix(" quantiles").partition(", ")
            return self._quantile_values(preset, algorithm, count, measure)
        algorithm, objective = agent_of(agent)
        own = select(rows, algorithm=algorithm, objective=objective)
        if measure == "boundary":
            return np.array(
                [
                    np.median([price or 0.0 for price in json.loads(row["boundary"])])
                    for row in select(own, measure=objective)
                ]
            )
        return values(own, measure=measure)

    def _quantile_values(
        self, preset: str, algorithm: str, count: str, measure: str
    ) -> Float[np.ndarray, " seeds"]:
        from downside.risk import parse

        written = values(
            self.rows("quantiles", preset), algorithm=algorithm, quantiles=count, measure=measure
        )
        if written.size:
            return written
        rows = select(
            self.rows("quantiles", preset, "-returns"), algorithm=algorithm, quantiles=count
        )
        risk, out = parse(measure), []
        for seed in sorted({row["seed"] for row in rows}, key=int):
            out.append(float(risk(np.array([float(r["value"]) for r in select(rows, seed=seed)]))))
        return np.array(out)

    def range(self, study: str, preset: str, agent: str, measure: str) -> Range | None:
        """The mean over an agent's seeds with its interval; None if there are none."""
        own = self.values(study, preset, agent, measure)
        return mean_range(own) if own.size else None


def seconds(rows: Sequence[Row]) -> float:
    """What all agents, or plans, together took."""
    names = ("algorithm", "objective", "row", "choice", "quantiles", "plan", "seed")
    taken = {tuple(row.get(name) for name in names): row.get("seconds") for row in rows}
    return float(sum(float(one) for one in taken.values() if one))


def mean_range(values: Sequence[float] | Float[np.ndarray, " seeds"]) -> Range:
    """The mean, with seeds resampled; of a single one there is no interval."""
    own = np.asarray(values, dtype=float)
    value = float(own.mean())
    ends = (value, value) if len(own) < 2 else mean_interval(own, CONFIDENCE, RESAMPLES)
    return Range(value, *ends, len(own))


def difference(first: Float[np.ndarray, " seeds"], second: Float[np.ndarray, " others"]) -> Range:
    """The mean of the first minus that of the second, with the seeds of each resampled; where one
    has a single seed, there is no interval."""
    value, seeds = float(first.mean() - second.mean()), min(len(first), len(second))
    if seeds < 2:
        return Range(value, value, value, seeds)
    return Range(value, *difference_interval(first, second, CONFIDENCE, RESAMPLES), seeds)
