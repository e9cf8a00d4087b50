"""`downside reproduce`: the tables and figures of the paper."""

import dataclasses
from typing import Annotated

import tyro

from downside.cli._common import unknown
from downside.experiments import NAMES


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Reproduce a table or figure of the paper, beside the paper's figures."""

    name: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="{" + ",".join(NAMES) + "}"),
    ]
    """Which one: example1, example2; optimum (mean reversion solved for the paper's table); demo
    (one agent beside the optimum, in minutes); agents (QR-SRM for all objectives of the table, five
    seeds); agents_paper (the same with the paper's settings); ablation (what each of our choices
    adds); qrcvar (QR-CVaR beside QR-SRM); put (exercise boundaries of the American put);
    lunar (the windy lunar lander, three seeds); example3 (how the risk preference of a trained
    agent evolves)."""

    def run(self) -> None:
        """Runs the experiment; an error if a figure differs from the paper's."""
        from downside.experiments import load

        if self.name not in NAMES:
            raise ValueError(unknown("experiment", self.name, NAMES))
        if not load(self.name).main():
            raise RuntimeError(f"{self.name}: figures differ from the paper's, see the table.")
