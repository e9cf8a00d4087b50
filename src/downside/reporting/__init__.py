"""From an explanation and an evaluation to one self-contained HTML file.

The package is called `reporting` because `downside.report` is the function. Names are imported when
they are first used: the command line reads `commands` and must not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from downside.reporting.page import fill, render, report
    from downside.reporting.sections import ReportSection, make_section

__all__ = ["ReportSection", "fill", "make_section", "render", "report"]

_HOMES = {
    "ReportSection": "sections",
    "fill": "page",
    "make_section": "sections",
    "render": "page",
    "report": "page",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'downside.reporting' has no attribute {name!r}")
    return getattr(importlib.import_module(f"downside.reporting.{_HOMES[name]}"), name)
