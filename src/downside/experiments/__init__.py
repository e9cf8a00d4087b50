"""The paper's tables and figures, one file each; `downside reproduce NAME` runs them."""

import importlib
from types import ModuleType

NAMES = (
    "example1",
    "example2",
    "example3",
    "optimum",
    "demo",
    "agents",
    "agents_paper",
    "ablation",
    "qrcvar",
    "put",
    "lunar",
)


def load(name: str) -> ModuleType:
    """The experiment: a module whose `main()` says whether every figure agrees with the paper's."""
    return importlib.import_module(f"downside.experiments.{name}")
