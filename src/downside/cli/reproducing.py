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

    What is in the results already is not made again, so that an interrupted command goes on.
    """

    name: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="{" + ",".join(_NAMES) + "}"),
    ]
    """Which one: example1, example2; example3 (how the risk preference of a trained agent evolves);
    optimum (mean reversion solved for the paper's table); put (exercise boundaries of the American
    put); mean-reversion (the comparison of all agents); spectra (three richer measures); quantiles
    (how many, and what they cost); lunar (the windy lunar lander); page (docs/reproduction.md, from
    the results); all of these; frontier (from the mean to the worst tenth, beside the exact one);
    ablation (what each of our choices adds); demo (one agent beside the optimum, in minutes)."""
    seeds: tuple[int, ...] = ()
    """Of the agents; five for most experiments."""
    preset: Literal["default", "paper", "both"] = "both"
    """With which settings agents are trained."""
    quick: bool = False
    """Tiny agents that learn next to nothing, to see that all of it runs."""
    only: tuple[str, ...] = ()
    """Parts of the names of the agents to train, such as QR-DQN; the others are left out."""
    timesteps: int | None = None
    """Environment steps of each lunar lander, 2,500,000 (default) and 500,000 (paper) if not given;
    others get a table of their own, with the settings of the preset alone."""
    results: Path | None = None
    """Where results are read and written: `results`, or `runs/quick` with --quick."""

    def run(self) -> None:
        """Runs the experiment; an error if a figure differs from what it should be."""
        from downside.experiments._options import Options
        from downside.experiments._run import run

        name = self.name.replace("_", "-")
        if name not in _NAMES:
            raise ValueError(unknown("experiment", self.name, _NAMES))
        if self.timesteps is not None and name != "lunar":
            raise ValueError(f"`timesteps` must be left out for {name}: it is for lunar only.")
        options = Options(
            results=self.results,
            seeds=self.seeds,
            preset=self.preset,
            quick=self.quick,
            only=self.only,
            timesteps=self.timesteps,
        )
        run(PAPER if name == "all" else (name,), options)
