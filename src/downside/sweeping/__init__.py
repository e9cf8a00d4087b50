"""Studies: environments x agents x risks x seeds, run by one machine or by a Ray cluster.

The package is called `sweeping` because `downside.sweep` is the function. Names are imported when
they are first used: a worker of Ray reads this before it is told how many cores it has.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from downside.sweeping.driver import Sweep, sweep
    from downside.sweeping.study import Study, StudyError, read_study
    from downside.sweeping.summary import Group

__all__ = ["Group", "Study", "StudyError", "Sweep", "read_study", "sweep"]

_HOMES = {
    "Group": "summary",
    "Study": "study",
    "StudyError": "study",
    "Sweep": "driver",
    "read_study": "study",
    "sweep": "driver",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'downside.sweeping' has no attribute {name!r}")
    return getattr(importlib.import_module(f"downside.sweeping.{_HOMES[name]}"), name)
