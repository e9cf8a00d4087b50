"""A cell of a study: one run, known by a hash of all that decides what comes out of it."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import socket
import time
from collections.abc import Mapping
from os import getpid
from pathlib import Path
from typing import Any

from downside.agents.settings import identity
from downside.risk import parse
from downside.runs import is_valued, run_folder
from downside.train.callbacks import saved_in

ERROR = "error.txt"
"""In the folder of a cell that failed: what happened, until it is run again."""
_ATTEMPTS = "attempts.jsonl"
_LONGEST = 200
"""Characters of a folder's name before the key; file systems take 255 in all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a study, in plain types."""

    env: str
    """The environment's id; what stands before a colon is imported first."""
    parameters: Mapping[str, Any]
    """Of the environment; where it is written in JAX, all of them."""
    agent: str
    """qrsrm, qrcvar, qricvar or qrdqn."""
    preset: str
    """What `settings` were made from."""
    settings: Mapping[str, Any]
    """All settings of the agent."""
    risk: str
    """The measure, as text."""
    seed: int
    total_timesteps: int
    """Environment steps of the run."""
    episodes: int
    """Fresh episodes that it is valued in. Not part of what the run is."""

    @functools.cached_property
    def key(self) -> str:
        """A hash of the configuration: the same run always has the same one."""
        about = {**dataclasses.asdict(self), "settings": identity(self.settings)}
        del about["preset"]  # the settings that came of it are there
        del about["episodes"]  # other episodes are played by the agent that is there
        del about["settings"]["total_timesteps"]  # a default, which the cell's own takes over
        text = json.dumps(about, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @functools.cached_property
    def kind(self) -> str:
        """What is the same for all its seeds."""
        return json.dumps({**dataclasses.asdict(self), "seed": None}, sort_keys=True)

    @property
    def name(self) -> str:
        """Of its folder: what it is for a reader, cut short if it is very long, and the key."""
        said = run_folder(self.env, self.agent, parse(self.risk), self.seed).name
        return f"{said[:_LONGEST]}__{self.key}"

    @property
    def bare_id(self) -> str:
        """The environment's id without the module that knows it."""
        return self.env.rpartition(":")[2]


def state(folder: Path, episodes: int | None = None) -> str:
    """How far the run in a folder is: finished, failed, unfinished or new.

    Arguments:
        folder: of the cell.
        episodes: how many it is to be valued in, if that matters.
    """
    if is_valued(folder, episodes):
        return "finished"
    if (folder / ERROR).exists():
        return "failed"
    return "unfinished" if saved_in(folder) else "new"


def failure(folder: Path) -> str | None:
    """What happened to a run that failed; None if it did not, or is being run again by now."""
    try:
        return (folder / ERROR).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def note(folder: Path, what: str) -> None:
    """Adds a line on who did what to the run: it began, it finished, it failed.

    It is for readers: a disk that does not take it stops nothing.
    """
    saved = saved_in(folder)
    line = {
        "what": what,
        "steps": int(saved[0].stem.rpartition("-")[2]) if saved else 0,
        "time": round(time.time(), 3),
        "host": socket.gethostname(),
        "process": getpid(),
    }
    with (
        contextlib.suppress(OSError),
        (folder / _ATTEMPTS).open("a", encoding="utf-8") as file,
    ):
        file.write(json.dumps(line) + "\n")


def attempts(folder: Path) -> list[dict[str, Any]]:
    """What `note` wrote; a line that a crash cut short is left out."""
    path, out = folder / _ATTEMPTS, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            out.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return out
