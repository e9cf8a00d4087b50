"""The paper's tables and figures, one file each; `downside reproduce NAME` runs them."""

import importlib
from types import ModuleType

NAMES = (
    "example1",
    "example2",
    "example3",
    "optimum",
    "put",
    "mean-reversion",
    "spectra",
    "quantiles",
    "lunar",
    "page",
    "frontier",
    "ablation",
    "demo",
)
PAPER = NAMES[:-3]
"""What `all` runs, in this order."""


def load(name: str) -> ModuleType:
    """The experiment: a module whose `main(options)` says whether its figures are right.

    If it trains agents, its `studies(options)` are the studies that they belong to; the lander's
    `remaining(options)` says how many are still to be trained.
    """
    return importlib.import_module(f"downside.experiments.{name.replace('-', '_')}")
