"""What a worker does with one cell: begin it or go on with it, value it, and say how it went."""

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
from downside.train.loading import AGENTS


def work(
    folder: str, cell: Mapping[str, Any], episodes: int | None, every_seconds: float | int
) -> dict[str, str]:
    """Runs a cell to its end, from its last checkpoint if there is one.

    Arguments:
        folder: of the cell, one that no other cell has.
        cell: the fields of a `Cell`.
        episodes: fresh episodes that it is valued in.
        every_seconds: time between two checkpoints.

    Returns:
        The `outcome`: finished; failed, with the `error`, which is also in the folder; busy, where
        another process has the cell; or stopped, where this one was asked to stop.
    """
    own = Path(folder)
    if not own.parent.is_dir():
        return {
            "outcome": "failed",
            "error": f"There is no folder {own.parent} on this machine. All machines of a cluster "
            "have to share the folder of the study under one path.",
        }
    with claim(own) as mine:
        if not mine:
            return {"outcome": "busy"}
        if state(own, episodes) == "finished":
            return {"outcome": "finished"}
        (own / ERROR).unlink(missing_ok=True)
        note(own, "began")
        try:
            _run(own, Cell(**cell), episodes, every_seconds)
        except KeyboardInterrupt:
            note(own, "stopped")
            return {"outcome": "stopped"}
        except Exception as error:  # whatever it is, the other cells go on
            write_text(own / ERROR, traceback.format_exc())
            note(own, "failed")
            return {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}
        note(own, "finished")
        return {"outcome": "finished"}


def _run(folder: Path, cell: Cell, episodes: int | None, every_seconds: float | int) -> None:
    import_environment(cell.env)
    if is_valued(folder):  # in another number of episodes
        value_run(load(folder), folder, episodes)
    elif saved_in(folder):
        agent, _ = resume_run(folder, every_seconds=every_seconds)
        if not is_valued(folder, episodes):
            value_run(agent, folder, episodes)
    else:
        train_run(
            make_agent(cell),
            folder,
            total_timesteps=cell.total_timesteps,
            episodes=episodes,
            every_seconds=every_seconds,
        )


def make_agent(cell: Cell) -> Agent:
    """The agent of a cell, before it has learned anything."""
    kinds = {name.lower(): kind for name, kind in AGENTS.items()}
    return kinds[cell.agent](
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
