"""The storage of a study: a folder for each run, with its state, its errors and a lock.

studies/<name>/
    study.toml, summary.csv, report.html
    <env>__<agent>__<risk>__<seed>__<key>/   a run folder (see `downside.runs`), and
        attempts.jsonl                       who started it, when, from which step
        error.txt                            only if it failed
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from os import getpid
from pathlib import Path
from typing import Any

from downside import _locks
from downside._files import DamagedFileError, check_regular
from downside.runs import evaluation_problem
from downside.studies.spec import RunSpec
from downside.train.monitor import saved_at, saved_in, set_aside

ERROR = "error.txt"
"""The traceback of a run that failed, until it runs again."""
_ATTEMPTS = "attempts.jsonl"


@contextlib.contextmanager
def lock(folder: str | Path) -> Iterator[bool]:
    """Whether this process holds the lock of a folder while the block lasts (`downside._locks`)."""
    with contextlib.ExitStack() as stack:
        locked = True
        try:
            stack.enter_context(_locks.lock(folder, required=True))
        except _locks.FolderLockedError:
            locked = False
        yield locked


def state(folder: Path, episodes: int | None = None) -> str:
    """The state of a run: finished, failed, unfinished or new.

    Arguments:
        folder: the folder of the run.
        episodes: the number of evaluation episodes that a finished run must have, if it matters.
    """
    if evaluation_problem(folder, episodes) is None:
        return "finished"
    if (folder / ERROR).exists():
        return "failed"
    return "unfinished" if saved_in(folder) else "new"


def states(storage: Path, runs: Iterable[RunSpec]) -> dict[str, str]:
    """The state of each run of a study, by the name of its folder."""
    try:
        there = set(os.listdir(storage))
    except FileNotFoundError:
        there = set()
    return {
        name: state(storage / name, run.episodes) if name in there else "new"
        for run in runs
        for name in [run.name]
    }


def saved_steps(folder: Path) -> int:
    """Environment steps at the latest checkpoint, 0 without one."""
    saved = saved_in(folder)
    return saved_at(saved[0]) if saved else 0


def set_all_aside(folder: Path) -> None:
    """Sets the checkpoints of a run aside, none of which can be read: it begins anew."""
    for path in saved_in(folder):
        set_aside(path)


def failure(folder: Path) -> str | None:
    """The error of a failed run; None if it did not fail or runs again."""
    path = folder / ERROR
    try:
        check_regular(path)
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except DamagedFileError as error:
        return str(error)
    except OSError:  # it is not there, or the folder is none
        return None
    return text or "It failed without a reason."


def note(folder: Path, event: str, why: str | None = None) -> None:
    """Appends an event (began, finished, failed, stopped, damaged) to the attempts of a run.

    It is for readers: a full disk stops nothing.
    """
    line = {
        "what": event,
        "steps": saved_steps(folder),
        "time": round(time.time(), 3),
        "host": socket.gethostname(),
        "process": getpid(),
        **({} if why is None else {"why": why}),
    }
    path = folder / _ATTEMPTS
    with contextlib.suppress(OSError, DamagedFileError):
        if os.path.lexists(path):
            check_regular(path)  # a pipe would block
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def attempts(folder: Path) -> list[dict[str, Any]]:
    """The events of a run; a line that a crash truncated is skipped."""
    path, events = folder / _ATTEMPTS, []
    if not path.is_file():
        return events
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and "what" in event:
                events.append(event)
    return events
