"""What a worker does with one cell: begin it or go on with it, value it, and say how it went."""

import contextlib
import importlib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from downside._files import write_text
from downside.runs import is_valued, resume_run, train_run, value_run
from downside.sweeping.cells import ERROR, Cell, note, state
from downside.sweeping.claims import claim
from downside.train import Agent, load
from downside.train.callbacks import saved_in
from downside.train.loading import agents_by_name


def work(folder: str, cell: Mapping[str, Any], every_seconds: float | int) -> dict[str, str]:
    """Runs a cell to its end, from its last checkpoint if there is one.

    Arguments:
        folder: of the cell, one that no other cell has.
        cell: the fields of a `Cell`.
        every_seconds: time between two checkpoints.

    Returns:
        The `outcome`: finished; failed, with the `error`, which is also in the folder; busy, where
        another process has the cell; or stopped, where this one was asked to stop.
    """
    try:
        return _claimed(Path(folder), Cell(**cell), every_seconds)
    except (OSError, RuntimeError) as error:  # no room on the disk, no locks, no such right
        return {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}


def _claimed(own: Path, cell: Cell, every_seconds: float | int) -> dict[str, str]:
    """`work`, in a folder that no other process has."""
    if not own.parent.is_dir():
        return {
            "outcome": "failed",
            "error": f"There is no folder {own.parent} on this machine. All machines of a cluster "
            "have to share the folder of the study under one path.",
        }
    with claim(own) as mine:
        if not mine:
            return {"outcome": "busy"}
        if state(own, cell.episodes) == "finished":
            return {"outcome": "finished"}
        (own / ERROR).unlink(missing_ok=True)
        note(own, "began")
        try:
            _run(own, cell, every_seconds)
        except KeyboardInterrupt:
            note(own, "stopped")
            return {"outcome": "stopped"}
        except Exception as error:  # whatever it is, the other cells go on
            with contextlib.suppress(OSError):
                write_text(own / ERROR, traceback.format_exc())
            note(own, "failed")
            return {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}
        note(own, "finished")
        return {"outcome": "finished"}


def _run(folder: Path, cell: Cell, every_seconds: float | int) -> None:
    import_environment(cell.env)
    if is_valued(folder):  # in another number of episodes
        value_run(load(folder), folder, cell.episodes)
    elif saved_in(folder):
        resume_run(folder, episodes=cell.episodes, every_seconds=every_seconds)
    else:
        train_run(
            make_agent(cell),
            folder,
            total_timesteps=cell.total_timesteps,
            episodes=cell.episodes,
            every_seconds=every_seconds,
        )


def make_agent(cell: Cell) -> Agent:
    """The agent of a cell, before it has learned anything."""
    return agents_by_name()[cell.agent](
        cell.bare_id,
        risk=cell.risk,
        preset=cell.preset,
        seed=cell.seed,
        env_kwargs=cell.parameters,
        **cell.settings,
    )


def import_environment(env: str) -> None:
    """Imports what stands before the colon of an id, as Gymnasium does."""
    module, colon, _ = env.rpartition(":")
    if colon:
        importlib.import_module(module)
