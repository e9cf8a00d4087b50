"""What a worker does with a run: start or resume it, evaluate it, report the outcome."""

import contextlib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from downside._files import write_text
from downside.envs.registry import import_environment
from downside.runs import (
    EVALUATION,
    evaluation_problem,
    is_valued,
    resume_run,
    train_run,
    value_run,
)
from downside.studies.spec import RunSpec
from downside.studies.storage import ERROR, lock, note, set_all_aside, state
from downside.train import load
from downside.train.checkpoints.checkpoint import CheckpointError, MissingPartError
from downside.train.monitor import saved_in


def work(folder: str, spec: Mapping[str, Any], every_seconds: float | int) -> dict[str, str]:
    """Runs to the end, from the latest checkpoint if there is one.

    Arguments:
        folder: the folder of the run; no other run has it.
        spec: the fields of a `RunSpec`.
        every_seconds: time between two checkpoints.

    Returns:
        The `outcome`: finished; failed, with the `error`, which is also in the folder; busy, if
        another process has the run; stopped, if this process was asked to stop.
    """
    try:
        return _work(Path(folder), RunSpec(**spec), every_seconds)
    except (OSError, RuntimeError) as error:  # disk full, no locks, no permission
        return {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}


def _work(folder: Path, spec: RunSpec, every_seconds: float | int) -> dict[str, str]:
    if not folder.parent.is_dir():
        return {
            "outcome": "failed",
            "error": f"There is no folder {folder.parent} on this machine. All machines of a "
            "cluster must share the folder of the study under one path.",
        }
    with lock(folder) as locked:
        if not locked:
            return {"outcome": "busy"}
        if state(folder, spec.episodes) == "finished":
            return {"outcome": "finished"}
        (folder / ERROR).unlink(missing_ok=True)
        damage = evaluation_problem(folder, spec.episodes)
        note(folder, "began", damage or None)
        try:
            _run(folder, spec, every_seconds)
        except KeyboardInterrupt:
            note(folder, "stopped")
            return {"outcome": "stopped"}
        except Exception as error:  # the other runs go on, whatever it is
            with contextlib.suppress(OSError):
                write_text(folder / ERROR, traceback.format_exc())
            note(folder, "failed")
            return {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}
        note(folder, "finished")
        return {"outcome": "finished"}


def _run(folder: Path, spec: RunSpec, every_seconds: float | int) -> None:
    import_environment(spec.env)
    if saved_in(folder):
        try:
            if is_valued(folder):  # in another number of episodes
                value_run(load(folder), folder, spec.episodes)
            else:
                resume_run(
                    folder,
                    episodes=spec.episodes,
                    every_seconds=every_seconds,
                    callback=spec.make_callback(),
                )
            return
        except MissingPartError:
            raise
        except CheckpointError as error:  # of the last checkpoint that there was
            note(folder, "damaged", str(error))
            set_all_aside(folder)
    (folder / EVALUATION).unlink(missing_ok=True)  # of a run that cannot be read any more
    train_run(
        spec.make_agent(),
        folder,
        total_timesteps=spec.total_timesteps,
        episodes=spec.episodes,
        every_seconds=every_seconds,
        callback=spec.make_callback(),
    )
