"""Run folders in short, without loading their agents."""

import contextlib
import dataclasses
from pathlib import Path

from downside._files import DamagedFileError
from downside._locks import is_being_written
from downside.runs.evaluation import is_number, read_evaluation
from downside.runs.folders import RUN, read_run
from downside.train.log import LINES, read_lines
from downside.train.monitor import saved_at, saved_in


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


def list_runs(folder: str | Path = "runs") -> list[RunInfo]:
    """The runs in a folder, by name."""
    return [run_info(path.parent) for path in sorted(Path(folder).glob(f"*/{RUN}"))]


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
    values, problem = [], None
    try:
        values = read_evaluation(folder)["values"]
    except FileNotFoundError:  # it is not there yet
        pass
    except (DamagedFileError, OSError) as error:
        problem = str(error)
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


def _simulated_steps(folder: Path) -> int:
    """As the last line of the log says; 0 without a log."""
    lines = {}
    with contextlib.suppress(OSError):  # a run that begins anew deletes its log
        logs = sorted(folder.glob(f"log_*/{LINES}"), key=lambda path: path.stat().st_mtime)
        lines = read_lines(logs[-1]) if logs else {}
    steps = lines[max(lines)].get("simulated_steps", 0) if lines else 0
    return int(steps) if is_number(steps) else 0
