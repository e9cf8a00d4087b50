"""Studies: environments x agents x risks x seeds, on one machine or on a Ray cluster.

Names are imported on first use: a Ray worker must set its number of cores before JAX is imported.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from downside.studies.driver import Sweep, sweep
    from downside.studies.problems import StudyError
    from downside.studies.spec import RunSpec
    from downside.studies.study import Study, read_study
    from downside.studies.summary import Group

__all__ = ["Group", "RunSpec", "Study", "StudyError", "Sweep", "read_study", "sweep"]

_HOMES = {
    "Group": "summary",
    "RunSpec": "spec",
    "Study": "study",
    "StudyError": "problems",
    "Sweep": "driver",
    "read_study": "study",
    "sweep": "driver",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'downside.studies' has no attribute {name!r}")
    return getattr(importlib.import_module(f"downside.studies.{_HOMES[name]}"), name)
