"""The results on disk: the values of each agent's seeds, and how they were made."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from downside.evaluation.seeds import Estimate, estimate_mean
from downside.experiments import put
from downside.experiments._paper import agent_of
from downside.experiments._rows import Row, by_seed, read_about, read_rows, select
from downside.risk import parse

RESAMPLES = 10_000
FILES = {"put": "american-put", "lunar": "lunar-lander"}
"""The prefix of an experiment's files, if it is not its name."""


class Results:
    """The results in a folder; what has not been run yet is empty."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._read: dict[Path, list[Row]] = {}

    def rows(self, experiment: str, preset: str, part: str = "") -> list[Row]:
        """The rows of an experiment: its values, or another part such as "-returns"."""
        path = self.path(experiment, preset, part)
        if path not in self._read:
            self._read[path] = read_rows(path)
        return self._read[path]

    def path(self, experiment: str, preset: str, part: str = "") -> Path:
        """The file of the rows."""
        name = FILES.get(experiment, experiment)
        return self.folder / f"{name}-{preset}{part}.csv"

    def about(self, experiment: str, preset: str) -> dict[str, Any]:
        """How the rows were made."""
        return read_about(self.path(experiment, preset).with_suffix(".json"))

    def optimum_path(self, experiment: str) -> Path:
        """The file of the planner's values."""
        return self.folder / f"{FILES.get(experiment, experiment)}-optimum.csv"

    def optimum(self, experiment: str, measure: str) -> float | None:
        """The planner's value."""
        for row in read_rows(self.optimum_path(experiment)):
            if row["plan"] == row["measure"] == measure:
                return float(row["value"])
        return None

    def values(
        self, experiment: str, preset: str, agent: str, measure: str
    ) -> Float[np.ndarray, " seeds"]:
        """As `by_seed`, without the seeds."""
        return np.array(list(self.by_seed(experiment, preset, agent, measure).values()))

    def by_seed(self, experiment: str, preset: str, agent: str, measure: str) -> dict[int, float]:
        """The value of each seed of an agent.

        Agents have the names of the paper's tables ("QR-CVaR 0.5"); in the experiment on quantiles
        "QR-SRM, 50 quantiles". The measure `put.TIME` is the mean time of exercise.
        """
        rows = self.rows(experiment, preset)
        if experiment == "lunar":
            return by_seed(rows, row=agent, measure=measure)
        if experiment == "quantiles":
            algorithm, _, count = agent.removesuffix(" quantiles").partition(", ")
            return self._of_quantiles(preset, algorithm, count, measure)
        algorithm, objective = agent_of(agent)
        rows = select(rows, algorithm=algorithm, objective=objective)
        if measure == put.TIME:
            rows = select(rows, measure=objective)
            return {int(row["seed"]): put.exercise_time(put.edge(row["boundary"])) for row in rows}
        return by_seed(rows, measure=measure)

    def _of_quantiles(
        self, preset: str, algorithm: str, count: str, measure: str
    ) -> dict[int, float]:
        key = {"algorithm": algorithm, "quantiles": count}
        written = by_seed(self.rows("quantiles", preset), **key, measure=measure)
        if written:
            return written
        rows, risk = select(self.rows("quantiles", preset, "-returns"), **key), parse(measure)
        return {
            seed: float(risk(np.array([float(row["value"]) for row in select(rows, seed=seed)])))
            for seed in sorted({int(row["seed"]) for row in rows})
        }

    def estimate(self, experiment: str, preset: str, agent: str, measure: str) -> Estimate | None:
        """The mean over an agent's seeds with its interval; None if there are none."""
        seeds = self.values(experiment, preset, agent, measure)
        if not seeds.size:
            return None
        errors = self.errors(experiment, preset, agent, measure)
        return estimate_mean(seeds, list(errors.values()), resamples=RESAMPLES)

    def errors(self, experiment: str, preset: str, agent: str, measure: str) -> dict[int, float]:
        """The standard error of each seed's value over episodes, where it is written."""
        wanted = {"row": agent}
        if experiment == "quantiles":
            algorithm, _, count = agent.removesuffix(" quantiles").partition(", ")
            wanted = {"algorithm": algorithm, "quantiles": count}
        elif experiment != "lunar":
            wanted = dict(zip(("algorithm", "objective"), agent_of(agent), strict=True))
        rows = select(self.rows(experiment, preset), **wanted, measure=measure)
        written = [row for row in rows if row.get("standard_error")]
        return {int(row["seed"]): float(row["standard_error"]) for row in written}


def seconds(rows: Sequence[Row]) -> float:
    """The time of all agents, or plans, together."""
    names = ("algorithm", "objective", "row", "choice", "quantiles", "plan", "seed")
    taken = {tuple(row.get(name) for name in names): row.get("seconds") for row in rows}
    return float(sum(float(time) for time in taken.values() if time))


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Estimate:
    """The mean of the first minus that of the second, over the seeds that both have.

    Seed by seed: most of what agents of a seed share cancels, such as the evaluation's noise. What
    does not is part of the spread of the differences.
    """
    shared = [first[seed] - second[seed] for seed in first if seed in second]
    return estimate_mean(shared, resamples=RESAMPLES)
