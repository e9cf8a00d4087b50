"""Runs one experiment after another, with one bar over all their agents."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from downside.experiments import load
from downside.experiments._options import Options
from downside.experiments._progress import StudyBar


def run(names: Sequence[str], options: Options) -> None:
    """Runs the experiments; an error in the end if figures of one are not as they should be."""
    modules: dict[str, Any] = {name: load(name) for name in names}
    left = sum(
        module.remaining(options) for module in modules.values() if hasattr(module, "remaining")
    )
    if not left:
        wrong = [name for name, module in modules.items() if not module.main(options)]
    else:
        with StudyBar(left) as bar:
            shared = dataclasses.replace(options, bar=bar)
            wrong = [name for name, module in modules.items() if not module.main(shared)]
    if wrong:
        raise RuntimeError(
            f"{', '.join(wrong)}: figures differ from what they should be, see the table."
        )
