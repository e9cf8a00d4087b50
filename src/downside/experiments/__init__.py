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
    "lunar",
    "ablation",
    "demo",
)
"""In the order in which `all` runs them; underscores may stand for hyphens."""


def load(name: str) -> ModuleType:
    """The experiment: a module whose `main(options)` says whether the figures are right.

    If it trains agents in cells, `remaining(options)` says how many are still to be trained.
    """
    return importlib.import_module(f"downside.experiments.{name.replace('-', '_')}")
