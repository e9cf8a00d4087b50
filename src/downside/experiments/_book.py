"""The results as they are on disk: the values of each agent's seeds, and how they were made."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from downside.evaluation.seeds import mean_interval, normal
from downside.experiments import put
from downside.experiments._rows import Row, by_seed, read_about, read_rows, select
from downside.experiments._training import agent_of
from downside.risk import parse

RESAMPLES, CONFIDENCE = 10_000, 0.95
FILES = {"put": "american-put", "lunar": "lunar-lander"}
"""What the files of a study begin with, if not with its name."""


class Range(NamedTuple):
    """A mean over seeds, or a difference of two, with its 95% interval."""

    value: float
    low: float
    high: float
    seeds: int
    """How many there are; of a difference, how many both have."""


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
        """As `by_seed`, without the seeds."""
        return np.array(list(self.by_seed(study, preset, agent, measure).values()))

    def by_seed(self, study: str, preset: str, agent: str, measure: str) -> dict[int, float]:
        """The value of each seed of an agent.

        Agents are called as in the paper's tables ("QR-CVaR 0.5"), in the study of quantiles
        "QR-SRM, 50 quantiles". The measure `put.TIME` is when a put is exercised on average.
        """
        rows = self.rows(study, preset)
        if study == "lunar":
            return by_seed(rows, row=agent, measure=measure)
        if study == "quantiles":
            algorithm, _, count = agent.removesuffix(" quantiles").partition(", ")
            return self._of_quantiles(preset, algorithm, count, measure)
        algorithm, objective = agent_of(agent)
        own = select(rows, algorithm=algorithm, objective=objective)
        if measure == put.TIME:
            found = select(own, measure=objective)
            return {int(row["seed"]): put.exercise_time(put.edge(row["boundary"])) for row in found}
        return by_seed(own, measure=measure)

    def _of_quantiles(
        self, preset: str, algorithm: str, count: str, measure: str
    ) -> dict[int, float]:
        own = {"algorithm": algorithm, "quantiles": count}
        written = by_seed(self.rows("quantiles", preset), **own, measure=measure)
        if written:
            return written
        rows, risk = select(self.rows("quantiles", preset, "-returns"), **own), parse(measure)
        return {
            seed: float(risk(np.array([float(row["value"]) for row in select(rows, seed=seed)])))
            for seed in sorted({int(row["seed"]) for row in rows})
        }

    def range(self, study: str, preset: str, agent: str, measure: str) -> Range | None:
        """The mean over an agent's seeds with its interval; None if there are none."""
        own = self.values(study, preset, agent, measure)
        if not own.size:
            return None
        return mean_range(own, list(self.errors(study, preset, agent, measure).values()))

    def errors(self, study: str, preset: str, agent: str, measure: str) -> dict[int, float]:
        """The standard error of each seed's value, over episodes, where it is written down."""
        wanted = {"row": agent}
        if study == "quantiles":
            algorithm, _, count = agent.removesuffix(" quantiles").partition(", ")
            wanted = {"algorithm": algorithm, "quantiles": count}
        elif study != "lunar":
            wanted = dict(zip(("algorithm", "objective"), agent_of(agent), strict=True))
        rows = select(self.rows(study, preset), **wanted, measure=measure)
        written = [row for row in rows if row.get("standard_error")]
        return {int(row["seed"]): float(row["standard_error"]) for row in written}


def seconds(rows: Sequence[Row]) -> float:
    """What all agents, or plans, together took."""
    names = ("algorithm", "objective", "row", "choice", "quantiles", "plan", "seed")
    taken = {tuple(row.get(name) for name in names): row.get("seconds") for row in rows}
    return float(sum(float(one) for one in taken.values() if one))


def mean_range(
    values: Sequence[float] | Float[np.ndarray, " seeds"], errors: Sequence[float] = ()
) -> Range:
    """The mean, with seeds resampled; of a single one there is no interval.

    It is never narrower than the standard `errors` of the values themselves make it: a few seeds
    can happen to lie closer together than they are known.
    """
    own = np.asarray(values, dtype=float)
    value = float(own.mean())
    if len(own) < 2:
        return Range(value, value, value, len(own))
    low, high = mean_interval(own, CONFIDENCE, RESAMPLES)
    known = normal(CONFIDENCE) * float(np.linalg.norm(errors)) / max(1, len(errors))
    return Range(value, min(low, value - known), max(high, value + known), len(own))


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Range:
    """The mean of the first minus that of the second, over the seeds that both have; where there
    is a single one, there is no interval.

    Seed by seed: most of what agents of one seed share cancels, such as the noise that they are
    valued under. What does not is part of how much the differences differ.
    """
    return mean_range([first[seed] - second[seed] for seed in first if seed in second])
