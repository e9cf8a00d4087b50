"""Run folders: the configuration of a run, its checkpoints, its log and its evaluation.

runs/<env>__<agent>__<risk>__<seed>/
    run.json                        the configuration, and the versions
    checkpoint-<steps>.safetensors  the last two; `ds.load(folder)` takes the latest
    log_1/                          TensorBoard events and progress.jsonl
    evaluation.json, returns.npy    the policy in fresh episodes, once the run is finished

Whoever writes a run folder holds its lock. JSON files carry a digest of themselves, and
evaluation.json that of the returns, so that a damaged file is noticed.
"""

import contextlib
import dataclasses
import importlib.metadata
import re
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from downside._files import (
    DamagedFileError,
    atomic_write,
    check_regular,
    file_digest,
    read_json,
    write_json,
)
from downside._locks import is_being_written, lock
from downside.envs.registry import import_environment
from downside.evaluation import Evaluation, evaluate
from downside.risk import AbstractSpectralRisk, Dial, as_risk
from downside.train import Agent, Checkpoints, DivergenceError, EnvironmentFaultError, load
from downside.train.log import LINES, read_lines
from downside.train.monitor import saved_at, saved_in, set_aside

EVALUATION_SEED = 1_000_000
"""The seed of the episodes that run 0 is evaluated in; see `evaluation_seed`."""
_RUN, EVALUATION, _RETURNS = "run.json", "evaluation.json", "returns.npy"


def evaluation_seed(seed: int) -> int:
    """The seed of the episodes that a run with this seed is evaluated in.

    Runs with the same seed meet the same noise, so that it cancels in their difference. Training
    never uses it.
    """
    return EVALUATION_SEED + seed


def run_folder(env: str, agent: str, risk: AbstractSpectralRisk | Dial, seed: int) -> Path:
    """`runs/<env>__<agent>__<risk>__<seed>`, without special characters."""
    text = str(risk).replace("(", "-")
    bare = env.rpartition(":")[2].rpartition("/")[2]
    parts = (bare, agent, text, str(seed))
    return Path("runs") / "__".join(re.sub(r"[^A-Za-z0-9.+-]", "", part) for part in parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A run folder in short, without loading the agent."""

    folder: str
    agent: str
    env: str
    risk: str
    seed: int
    timesteps: int
    """Environment steps so far."""
    simulated_steps: int
    """Environment steps that were simulated beside them."""
    total_timesteps: int
    """Environment steps at the end."""
    status: str
    """finished; running (a process writes it); unfinished (it can be resumed); no checkpoint (it
    ended before the first one, and begins anew when it is trained again); or damaged."""
    value: float | None = None
    """The risk measure's value in fresh episodes, of a finished run."""
    low: float | None = None
    high: float | None = None
    problem: str | None = None
    """The file of a damaged run that cannot be read, and why."""


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
        if (folder / _RUN).exists():  # killed before its first checkpoint: it begins anew
            for log in folder.glob("log_*"):
                shutil.rmtree(log, ignore_errors=True)
        agent.adapt(total_timesteps)
        about = describe_run(agent, total_timesteps, episodes)
        write_json(folder / _RUN, about)
        agent.tensorboard_log = folder
        with _hint(folder):
            agent.learn(
                about["total_timesteps"],
                callback=[callback, Checkpoints(folder, every_seconds=every_seconds)],
                tb_log_name="log",
                progress_bar=progress_bar,
            )
        return _finish(agent, folder, about, episodes)


def describe_run(
    agent: Agent, total_timesteps: int | None = None, episodes: int | None = None
) -> dict[str, Any]:
    """The configuration of a run, for run.json; plain types."""
    timesteps = agent.settings.total_timesteps if total_timesteps is None else int(total_timesteps)
    settings = dataclasses.asdict(agent.settings)
    return {
        "agent": agent.full_name(),
        "env": agent.env_spec.as_json(),
        "risk": str(agent.risk),
        "dial": None if agent.family is None else str(agent.family),
        "seed": agent.seed,
        "preset": agent.preset,
        "total_timesteps": timesteps,
        "episodes": episodes,
        # As JSON has them, so that they can be compared with those that were written.
        "settings": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
        },
        "versions": {
            name: importlib.metadata.version(name) for name in ("downside", "jax", "gymnasium")
        },
    }


def check_same_run(
    agent: Agent, folder: str | Path, total_timesteps: int | None = None
) -> dict[str, Any]:
    """The configuration in a folder; an error unless it is the run that `agent` would make."""
    about, wanted = read_run(folder), describe_run(agent, total_timesteps)
    names = ("agent", "env", "risk", "dial", "seed", "total_timesteps")
    pairs = {name: (about.get(name), wanted[name]) for name in names}
    before, now = about.get("settings") or {}, wanted["settings"]
    pairs |= {name: (before.get(name), now.get(name)) for name in sorted({*before, *now})}
    apart = [f"{name} {old!r}, now {new!r}" for name, (old, new) in pairs.items() if old != new]
    if apart:
        raise ValueError(
            f"`folder` has a run that was trained in another way: {folder} has "
            f"{'; '.join(apart)}. Take another folder, or delete that run."
        )
    return about


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
        write_json(folder / _RUN, describe_run(agent, total_timesteps, episodes))
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
    if not (folder / _RUN).exists() and not saved_in(folder):
        raise _no_run(folder)
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
        write_json(folder / _RUN, about)
    return evaluation


def value_run(
    agent: Agent,
    folder: str | Path,
    episodes: int | None = None,
    risks: Iterable[AbstractSpectralRisk | str] = (),
    seed: int | None = None,
) -> Evaluation:
    """Evaluates the agent of a run in fresh episodes, and writes the result into its folder."""
    folder = Path(folder)
    seed = evaluation_seed(agent.seed) if seed is None else seed
    evaluation = evaluate(agent, episodes=episodes, seed=seed)
    summary = evaluation.summary(_distinct([agent.risk, *map(as_risk, risks), *_ALWAYS]))
    with lock(folder):
        for path in (folder / EVALUATION, folder / _RETURNS):
            if path.is_dir() and not path.is_symlink():  # which no file can replace
                set_aside(path)
        (folder / EVALUATION).unlink(missing_ok=True)  # it belongs to other returns
        with atomic_write(folder / _RETURNS) as temporary:
            np.save(temporary, evaluation.returns, allow_pickle=False)
        write_json(  # last: a run that has it is finished
            folder / EVALUATION,
            {
                "seed": seed,
                "episodes": len(evaluation),
                "aligned": evaluation.aligned,
                "values": summary,
                "returns_sha256": file_digest(folder / _RETURNS),
            },
        )
    return evaluation


def is_valued(folder: str | Path, episodes: int | None = None) -> bool:
    """Whether a run has its evaluation, undamaged; if `episodes` is given, in that many."""
    return evaluation_problem(folder, episodes) is None


def evaluation_problem(folder: str | Path, episodes: int | None = None) -> str | None:
    """Why a run has no evaluation that counts: empty if there is none, the file and the reason if
    it is damaged; None if all is well."""
    try:
        about = _read_evaluation(Path(folder))
    except FileNotFoundError:
        return ""
    except (DamagedFileError, OSError) as error:
        return str(error)
    return None if episodes is None or about["episodes"] == episodes else ""


def _read_evaluation(folder: Path) -> dict[str, Any]:
    """evaluation.json, after checking it and the returns."""
    path, returns = folder / EVALUATION, folder / _RETURNS
    about = read_json(path)
    for name, kind in (("seed", int), ("episodes", int), ("values", list)):
        if not isinstance(about.get(name), kind):
            raise DamagedFileError(f"{path} does not say `{name}`; it is not whole.")
    for row in about["values"]:
        numbers = [row.get(name) for name in ("value", "low", "high")] if _is_row(row) else [None]
        if not all(map(_is_number, numbers)):
            raise DamagedFileError(f"{path} has a value that is none: {repr(row)[:80]}.")
    check_regular(returns)
    digest = about.get("returns_sha256")
    if digest is not None and digest != file_digest(returns):
        raise DamagedFileError(f"{returns} was changed after it was written: its digest differs.")
    return about


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("risk"), str)


def run_returns(folder: str | Path) -> Evaluation:
    """The evaluation of a finished run."""
    folder = Path(folder)
    about = _read_evaluation(folder)
    try:
        returns = np.load(folder / _RETURNS, allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise DamagedFileError(f"{folder / _RETURNS} cannot be read: {error}.") from error
    if not isinstance(returns, np.ndarray) or returns.shape != (about["episodes"],):
        raise DamagedFileError(f"{folder / _RETURNS} must hold {about['episodes']} returns.")
    if not np.issubdtype(returns.dtype, np.floating) or not np.isfinite(returns).all():
        raise DamagedFileError(f"{folder / _RETURNS} holds returns that are not finite numbers.")
    aligned = about.get("aligned") is True  # older runs do not say
    return Evaluation(returns, seed=about["seed"], label=folder.name, aligned=aligned)


_ALWAYS = tuple(map(as_risk, ("mean", "cvar(0.5)", "cvar(0.2)", "cvar(0.05)")))
"""Measures of every evaluation."""


def _distinct(risks: Sequence[AbstractSpectralRisk]) -> list[AbstractSpectralRisk]:
    return list({str(risk): risk for risk in risks}.values())


def _no_run(folder: Path) -> FileNotFoundError:
    return FileNotFoundError(
        f"{folder} is no run: it has no {_RUN}. `downside runs` lists the runs."
    )


def read_run(folder: str | Path) -> dict[str, Any]:
    """The configuration in a run folder.

    Raises:
        FileNotFoundError: if there is none.
        DamagedFileError: if it cannot be read, or says too little.
    """
    path = Path(folder) / _RUN
    if not path.exists():
        raise _no_run(Path(folder))
    about = read_json(path)
    kinds = {"agent": str, "env": dict, "risk": str, "seed": int, "total_timesteps": int}
    for name, kind in kinds.items():
        if not isinstance(about.get(name), kind):
            raise DamagedFileError(f"{path} does not say `{name}`; it is not whole.")
    if not isinstance(about["env"].get("description"), str):
        raise DamagedFileError(f"{path} does not say `env.description`; it is not whole.")
    return about


def import_run_environment(folder: str | Path) -> None:
    """Imports the module of a run whose environment was named with one, `module:Id-v0`.

    For commands, whose user has named the module when the run was trained. `ds.load` imports
    nothing: see docs/how-to/checkpoints.md.
    """
    try:
        env_id = read_run(folder)["env"].get("id")
    except (DamagedFileError, OSError):  # whoever needs the run will say so
        return
    if isinstance(env_id, str):
        import_environment(env_id)


def load_run(path: str | Path, **more: Any) -> Agent:
    """The agent of a run folder or of a file, for commands; of a folder, after
    `import_run_environment`."""
    if Path(path).is_dir():
        import_run_environment(path)
    return load(path, **more)


def list_runs(folder: str | Path = "runs") -> list[RunInfo]:
    """The runs in a folder, by name."""
    return [run_info(path.parent) for path in sorted(Path(folder).glob(f"*/{_RUN}"))]


def _simulated_steps(folder: Path) -> int:
    """As the last line of the log says; 0 without a log."""
    logs = sorted(folder.glob(f"log_*/{LINES}"), key=lambda path: path.stat().st_mtime)
    lines = read_lines(logs[-1]) if logs else {}
    steps = lines[max(lines)].get("simulated_steps", 0) if lines else 0
    return int(steps) if _is_number(steps) else 0


def _is_number(value: Any) -> bool:
    """Whether a value of a JSON file is a finite number that a float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def run_info(folder: str | Path) -> RunInfo:
    """A run folder in short; of a damaged one, what is wrong with it."""
    folder = Path(folder)
    saved = saved_in(folder)
    steps = {
        "timesteps": saved_at(saved[0]) if saved else 0,
        "simulated_steps": _simulated_steps(folder),
    }
    try:
        about = read_run(folder)
    except (DamagedFileError, OSError) as error:
        return RunInfo(
            folder=str(folder),
            agent="",
            env="",
            risk="",
            seed=0,
            **steps,
            total_timesteps=0,
            status="damaged",
            problem=str(error),
        )
    problem = evaluation_problem(folder)
    values = _read_evaluation(folder)["values"] if problem is None else []
    value = next((row for row in values if row["risk"] == about["risk"]), {})
    if values:
        status = "finished"
    elif is_being_written(folder):
        status, problem = "running", None
    else:
        status = "unfinished" if saved else "no checkpoint"
    return RunInfo(
        folder=str(folder),
        agent=about["agent"],
        env=about["env"]["description"],
        risk=about["risk"],
        seed=about["seed"],
        **steps,
        total_timesteps=about["total_timesteps"],
        status="damaged" if problem else status,
        value=value.get("value"),
        low=value.get("low"),
        high=value.get("high"),
        problem=problem or None,
    )
