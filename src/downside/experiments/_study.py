"""What the studies share: agents trained and valued cell by cell, rows that grow in a CSV file, and
how they were made."""

import csv
import dataclasses
import importlib.metadata
import io
import itertools
import json
import os
import platform
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from downside._files import write_text
from downside.evaluation import Evaluation, evaluate
from downside.experiments._options import Options
from downside.experiments._progress import StudyBar
from downside.train import QRDQN, QRSRM, Agent, DivergenceError, QRCVaR, QRiCVaR

EPISODES, QUICK_EPISODES = 100_000, 2_000
"""Fresh episodes that an agent is valued in."""
EVALUATION_SEED = 1000
"""Of these episodes, plus the agent's own seed; training never sees it."""
ALGORITHMS: Mapping[str, type[Agent]] = {
    "QR-SRM": QRSRM,
    "QR-CVaR": QRCVaR,
    "QR-iCVaR": QRiCVaR,
    "QR-DQN": QRDQN,
}
QUICK: Mapping[str, Any] = {
    "total_timesteps": 6_000,
    "quantiles": 8,
    "hidden": (16, 16),
    "buffer_size": 5_000,
    "warmup_steps": 500,
    "outer_interval": 40,
    "outer_episodes": 256,
}
"""Settings under which an agent takes a second, once they are compiled."""

Row = dict[str, Any]


# --- agents -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cell:
    """One agent of a study, to be trained."""

    algorithm: str
    """A key of `ALGORITHMS`."""
    objective: str
    """The measure that it maximises."""
    seed: int
    """Of everything random."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """The preset, and what differs from it."""
    label: str = ""
    """What the study calls it, if not by algorithm and objective."""

    def __str__(self) -> str:
        return f"{self.label or agent_label(self.algorithm, self.objective)}, seed {self.seed}"


class Trained(NamedTuple):
    """One agent of a study, trained."""

    cell: Cell
    """What it is."""
    agent: Agent
    """The agent itself."""
    found: Evaluation
    """Its returns in fresh episodes."""
    seconds: float
    """What training took, divided by the number of agents that are trained side by side."""

    def rows(self, *measures: str) -> list[Row]:
        """A row for each measure that the agent is valued by."""
        return [
            {
                "algorithm": self.cell.algorithm,
                "objective": self.cell.objective,
                "seed": self.cell.seed,
                "measure": measure,
                "value": round(self.found.value(measure), 6),
                "standard_error": round(self.found.standard_error(measure), 6),
                "predicted": round(self.agent.history[-1]["predicted"], 6),
                "seconds": round(self.seconds, 1),
            }
            for measure in measures
        ]


def agent_label(algorithm: str, objective: str) -> str:
    """As the paper's tables call it: "QR-SRM cvar(0.5)", "QR-CVaR 0.5", "QR-DQN"."""
    if algorithm == "QR-DQN":
        return algorithm
    short = objective.removeprefix("cvar(").removesuffix(")")
    return f"{algorithm} {objective if algorithm == 'QR-SRM' else short}"


def agent_of(label: str) -> tuple[str, str]:
    """The algorithm and the objective that a label stands for."""
    algorithm, _, rest = label.partition(" ")
    if algorithm == "QR-DQN":
        return algorithm, "cvar(1.0)"
    return algorithm, rest if algorithm == "QR-SRM" else f"cvar({rest})"


def train_cells(env: str, cells: Sequence[Cell], title: str, options: Options) -> Iterator[Trained]:
    """Trains and values the agents, one on each core; yields each of them when it is done.

    One whose losses diverge is left out, with a line that says so.
    """
    if not cells:
        return
    workers = min(len(cells), _cores())
    stop, compiling = threading.Event(), {}
    waiting = iter(cells)
    own = StudyBar(len(cells)) if options.bar is None else None
    bar = options.bar or own
    assert bar is not None

    def train(cell: Cell) -> Trained | None:
        changes = {**cell.settings, **(QUICK if options.quick else {})}
        kind = ALGORITHMS[cell.algorithm]
        risk = None if kind is QRDQN else cell.objective
        agent = kind(env, risk=risk, seed=cell.seed, **changes)
        begin = time.perf_counter()
        steps = agent.training()
        # Whoever comes first compiles for those who wait.
        key = (kind, agent._algorithm.objective.levels.shape, agent.settings)
        try:
            with compiling.setdefault(key, threading.Lock()):
                next(steps)
            for done, total in steps:
                if stop.is_set():
                    return None
                bar.update(cell, done / total, title)
        except DivergenceError as error:
            bar.say(f"{title}: {cell}: {error}")
            return None
        agent.settle()
        seconds = (time.perf_counter() - begin) / workers
        episodes = QUICK_EPISODES if options.quick else EPISODES
        found = evaluate(agent, episodes=episodes, seed=EVALUATION_SEED + cell.seed)
        bar.update(cell, 1.0, title)
        value = found.value(cell.objective)
        bar.say(f"{title}: {cell}: {value:.4f} in {cell.objective}, {seconds:.0f} s")
        return Trained(cell, agent, found, seconds)

    with ThreadPoolExecutor(workers) as pool:
        if own is not None:
            own.__enter__()
        try:
            running: set[Future[Trained | None]] = {
                pool.submit(train, cell) for cell in itertools.islice(waiting, workers)
            }
            while running:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {
                    pool.submit(train, cell) for cell in itertools.islice(waiting, len(finished))
                }
                for one in finished:
                    trained = one.result()
                    if trained is not None:
                        yield trained
        finally:  # an error or Ctrl-C ends them all, after their present step
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if own is not None:
                own.__exit__(None, None, None)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- rows -------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes all rows, whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows with these entries."""
    return [
        row for row in rows if all(str(row[name]) == str(value) for name, value in wanted.items())
    ]


def values(rows: Sequence[Row], **wanted: Any) -> Float[np.ndarray, " seeds"]:
    """The value of each seed's agent, among the rows with these entries."""
    own = sorted(select(rows, **wanted), key=lambda row: int(row["seed"]))
    return np.array([float(row["value"]) for row in own])


def write_about(path: Path, command: str, **facts: Any) -> None:
    """Writes beside the rows how they were made."""
    about = {
        "command": command,
        **facts,
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("downside", "jax", "equinox", "optax", "numpy")
        },
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    write_text(path, json.dumps(about, indent=2) + "\n")
