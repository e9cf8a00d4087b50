"""Runs one experiment after another, with one bar over all their agents."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from downside._machine import commit
from downside.experiments import load
from downside.experiments._options import Options
from downside.experiments._progress import StudyBar

NOT_ON_PAGE = ("example1", "example2", "frontier", "ablation", "demo")


def run(names: Sequence[str], options: Options) -> None:
    """Runs the experiments and writes the page; an error if figures are not as they should be."""
    modules: dict[str, Any] = {name: load(name) for name in names if name != "page"}
    page = load("page")  # now: the code may be another one in a few hours
    commit()
    left = sum(_remaining(module, options) for module in modules.values())
    if not left:
        wrong = [name for name, module in modules.items() if not module.main(options)]
    else:
        with StudyBar(left) as bar:
            shared = dataclasses.replace(options, bar=bar)
            wrong = [name for name, module in modules.items() if not module.main(shared)]
    if not set(names) <= set(NOT_ON_PAGE):
        page.main(options)
    if wrong:
        raise RuntimeError(
            f"{', '.join(wrong)}: figures differ from what they should be, see the table."
        )


def _remaining(module: Any, options: Options) -> int:
    """How many agents an experiment has still to train."""
    if hasattr(module, "remaining"):
        return module.remaining(options)
    studies = module.studies(options) if hasattr(module, "studies") else ()
    return sum(len(one.missing()) for one in studies)
