"""`downside reproduce`: the tables and figures of the paper."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from downside.cli._common import unknown
from downside.experiments import NAMES, PAPER

_NAMES = (*NAMES, "all")


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Reproduce a table or figure of the paper, beside the paper's figures.

    Finished runs are not made again: the same command resumes.
    """

    name: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="{" + ",".join(_NAMES) + "}"),
    ]
    """Its name: example1, example2; example3 (how the risk preference of a trained agent evolves);
    optimum (mean reversion solved for the paper's table); put (exercise boundaries of the American
    put); mean-reversion (the comparison of all agents); spectra (three richer measures); quantiles
    (how many, and what they cost); lunar (the windy lunar lander); page
    (docs/evidence/reproduction.md, from the results); all of these; frontier (from the mean to the
    worst tenth, and the exact optima); ablation (what each of our choices adds); demo (one training
    turned to every measure, and a page with a slider, in minutes); tabular (five problems of the
    literature, published values beside the optimum); dial (one training for each problem, at every
    measure); actors (PG-SRM on the paper's problems); hedging (PG-SRM beside
    hedges from textbooks, and prices); guarded-maze, betting, lander-risky (problems of other
    papers, with their published values)."""
    seeds: tuple[int, ...] = ()
    """Seeds of the agents; five for most experiments."""
    preset: Literal["default", "paper", "both"] = "both"
    """The settings of the agents."""
    quick: bool = False
    """Train tiny agents, to check that everything runs."""
    only: tuple[str, ...] = ()
    """Parts of the names of the agents to train, such as QR-DQN; by default all."""
    timesteps: int | None = None
    """Environment steps of each lunar lander, 2,500,000 (default) and 500,000 (paper) if not given,
    and 1,500,000 of lander-risky; other numbers have another table, with the settings of the preset
    alone."""
    data: Path = Path("domains")
    """The folder with the files of the tabular problems, which their authors publish."""
    results: Path | None = None
    """The folder of the results: `results`, or `runs/quick` with --quick."""

    def run(self) -> None:
        """Runs the experiment; an error if a run fails or a figure is not as it should be."""
        from downside.experiments._options import Options
        from downside.experiments._run import run

        name = self.name.replace("_", "-")
        if name not in _NAMES:
            raise ValueError(unknown("experiment", self.name, _NAMES))
        if self.timesteps is not None and name not in ("lunar", "lander-risky"):
            raise ValueError(
                f"`timesteps` must be left out for {name}: it is for lunar and lander-risky only."
            )
        options = Options(
            results=self.results,
            seeds=self.seeds,
            preset=self.preset,
            quick=self.quick,
            only=self.only,
            timesteps=self.timesteps,
            data=self.data,
        )
        run(PAPER if name == "all" else (name,), options)
