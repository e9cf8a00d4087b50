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
    "tabular",
    "dial",
    "actors",
    "hedging",
    "guarded-maze",
    "betting",
    "lander-risky",
)
FIELD = ("guarded-maze", "betting", "lander-risky")
"""Problems of other papers, each with a page of its own."""
PAPER = NAMES[: NAMES.index("frontier")]
"""What `all` runs, in this order."""


def load(name: str) -> ModuleType:
    """The module of an experiment.

    Its `main(options)` returns whether the figures are right. If it is run as a study,
    `experiments(options)` describes it: see `_experiment`.
    """
    return importlib.import_module(f"downside.experiments.{name.replace('-', '_')}")
