"""Training in a run folder: from the start, or from the latest checkpoint."""

import contextlib
import shutil
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from downside._files import DamagedFileError, write_json
from downside._locks import lock
from downside.evaluation import Evaluation
from downside.risk import AbstractSpectralRisk
from downside.runs.evaluation import EVALUATION, value_run
from downside.runs.folders import RUN, describe_run, no_run, read_run
from downside.train import Agent, Checkpoints, DivergenceError, EnvironmentFaultError, load
from downside.train.monitor import saved_at, saved_in


def train_run(
    agent: Agent,
    folder: str | Path,
    *,
    total_timesteps: int | None = None,
    episodes: int | None = None,
    every_seconds: float | int = 60.0,
    callback: Any = None,
    progress_bar: bool = False,
) -> Evaluation:
    """Trains an agent in a new run folder, and evaluates it.

    Arguments:
        agent: an agent that has not learned yet.
        folder: a new folder, or one without a checkpoint.
        total_timesteps: environment steps, by default the preset's.
        episodes: fresh episodes of the evaluation; by default as many as are cheap.
        every_seconds: time between two checkpoints.
        callback: as for `agent.learn`.
        progress_bar: whether to show the progress.

    Raises:
        FolderLockedError: if another process writes the folder.
    """
    folder = Path(folder)
    with lock(folder):
        if saved_in(folder) or (folder / EVALUATION).exists():
            raise ValueError(
                f"There is a run in {folder} already. Resume it (`downside resume {folder}`), take "
                "another folder or seed, or delete it."
            )
        if (folder / RUN).exists():  # killed before its first checkpoint: it begins anew
            for log in folder.glob("log_*"):
                shutil.rmtree(log, ignore_errors=True)
        agent.adapt(total_timesteps)
        about = describe_run(agent, total_timesteps, episodes)
        write_json(folder / RUN, about)
        agent.tensorboard_log = folder
        with _hint(folder):
            agent.learn(
                about["total_timesteps"],
                callback=[callback, Checkpoints(folder, every_seconds=every_seconds)],
                tb_log_name="log",
                progress_bar=progress_bar,
            )
        return _finish(agent, folder, about, episodes)


def keep_run(
    agent: Agent,
    folder: str | Path,
    *,
    total_timesteps: int | None = None,
    episodes: int | None = None,
    risks: Iterable[AbstractSpectralRisk | str] = (),
) -> Evaluation:
    """Makes the run folder of an agent that is already trained, and evaluates it.

    Arguments:
        agent: the agent.
        folder: the new run folder.
        total_timesteps: environment steps that its training was to have.
        episodes: fresh episodes of the evaluation.
        risks: measures of the evaluation beside its own.
    """
    folder = Path(folder)
    with lock(folder):
        write_json(folder / RUN, describe_run(agent, total_timesteps, episodes))
        Checkpoints(folder).on_end(agent)
        return value_run(agent, folder, episodes, risks)


def resume_run(
    folder: str | Path,
    *,
    env: Any = None,
    episodes: int | None = None,
    every_seconds: float | int = 60.0,
    callback: Any = None,
    progress_bar: bool = False,
    **more: Any,
) -> tuple[Agent, Evaluation]:
    """Resumes a run from its latest checkpoint, and evaluates it.

    Arguments:
        folder: the run folder.
        env: as for `ds.load`.
        episodes: fresh episodes of the evaluation; by default as the run was started with.
        every_seconds: time between two checkpoints.
        callback: as for `agent.learn`.
        progress_bar: whether to show the progress.
        **more: as for `ds.load`.
    """
    folder = Path(folder)
    if not (folder / RUN).exists() and not saved_in(folder):
        raise no_run(folder)
    with lock(folder):
        agent = load(folder, env, tensorboard_log=folder, **more)
        try:
            about = read_run(folder)
        except (DamagedFileError, FileNotFoundError) as error:
            warnings.warn(f"{error} It is made again from the checkpoint.", stacklevel=2)
            about = describe_run(agent, agent._driver.total_timesteps, episodes)
        with _hint(folder):
            agent.resume(
                callback=[callback, Checkpoints(folder, every_seconds=every_seconds)],
                tb_log_name="log",
                progress_bar=progress_bar,
            )
        episodes = about.get("episodes") if episodes is None else episodes
        return agent, _finish(agent, folder, about, episodes)


@contextlib.contextmanager
def _hint(folder: Path) -> Iterator[None]:
    """Adds to the error of a run where it can go on, if there is a checkpoint."""
    try:
        yield
    except (EnvironmentFaultError, DivergenceError) as error:
        saved = saved_in(folder)
        if not saved:
            raise
        raise type(error)(
            f"{error} The last checkpoint is after {saved_at(saved[0]):,} steps; go on from it: "
            f"downside resume {folder}"
        ) from error


def _finish(agent: Agent, folder: Path, about: dict[str, Any], episodes: int | None) -> Evaluation:
    """Evaluates a run that is trained; what was deleted or damaged meanwhile is written again."""
    evaluation = value_run(agent, folder, episodes)
    try:
        read_run(folder)
    except (DamagedFileError, FileNotFoundError):
        write_json(folder / RUN, about)
    return evaluation
