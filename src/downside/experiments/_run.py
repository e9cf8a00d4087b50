"""Runs experiments one after another, and writes the page."""

from collections.abc import Sequence
from typing import Any

from downside._files import check_writable
from downside._machine import commit
from downside.experiments import FIELD, load
from downside.experiments._options import Options

_PRINTED = ("example1", "example2")
"""Without results."""
NOT_ON_PAGE = (*_PRINTED, "frontier", "ablation", "demo", *FIELD)


def run(names: Sequence[str], options: Options) -> None:
    """Runs the experiments; an error if runs failed or figures are not as they should be."""
    if not set(names) <= set(_PRINTED):
        check_writable(options.folder / f"{names[0]}.csv")  # find out now, not after the work
    modules: dict[str, Any] = {name: load(name) for name in names if name != "page"}
    page = load("page")  # now: the code may change during a long run
    commit()
    wrong = [name for name, module in modules.items() if not module.main(options)]
    if not set(names) <= set(NOT_ON_PAGE):
        page.main(options)
    failed = [str(run) for module in modules.values() for run in _missing(module, options)]
    if failed:
        raise RuntimeError(
            f"{len(failed)} runs failed: {'; '.join(failed)}. The same command tries them again."
        )
    if wrong:
        raise RuntimeError(
            f"{', '.join(wrong)}: figures differ from what they should be, see the table."
        )


def _missing(module: Any, options: Options) -> list[Any]:
    experiments = module.experiments(options) if hasattr(module, "experiments") else ()
    return [run for experiment in experiments for run in experiment.missing()]
