"""Runs one experiment after another, with one bar over all their agents."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from downside.experiments import load
from downside.experiments._options import Options
from downside.experiments._progress import StudyBar

NOT_ON_PAGE = ("example1", "example2", "frontier", "ablation", "demo")


def run(names: Sequence[str], options: Options) -> None:
    """Runs the experiments and writes the page; an error if figures are not as they should be."""
    modules: dict[str, Any] = {name: load(name) for name in names if name != "page"}
    studies = [
        one
        for module in modules.values()
        if hasattr(module, "studies")
        for one in module.studies(options)
    ]
    left = sum(len(one.missing()) for one in studies)
    if not left:
        wrong = [name for name, module in modules.items() if not module.main(options)]
    else:
        with StudyBar(left) as bar:
            shared = dataclasses.replace(options, bar=bar)
            wrong = [name for name, module in modules.items() if not module.main(shared)]
    if not set(names) <= set(NOT_ON_PAGE):
        load("page").main(options)
    if wrong:
        raise RuntimeError(
            f"{', '.join(wrong)}: figures differ from what they should be, see the table."
        )
