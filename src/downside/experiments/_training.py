"""The agents of a study, trained and valued one by one, an agent to a core."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from downside._machine import cores
from downside.agents.settings import identity
from downside.evaluation import Evaluation, evaluate
from downside.experiments._options import Options
from downside.experiments._progress import StudyBar
from downside.experiments._rows import Row
from downside.train import QRDQN, QRSRM, Agent, DivergenceError, QRCVaR, QRiCVaR
from downside.train.many import Compiling

EPISODES, QUICK_EPISODES = 100_000, 2_000
"""Fresh episodes that an agent is valued in."""
EVALUATION_SEED = 1000
"""Of these episodes, plus the agent's own seed; training never sees it."""
RANKS = 200
"""How many quantiles of their returns are written down."""
ALGORITHMS: Mapping[str, type[Agent]] = {
    "QR-SRM": QRSRM,
    "QR-CVaR": QRCVaR,
    "QR-iCVaR": QRiCVaR,
    "QR-DQN": QRDQN,
}
QUICK: Mapping[str, Any] = {
    "total_timesteps": 12_000,
    "hidden": (16, 16),
    "buffer_size": 5_000,
    "warmup_steps": 500,
    "outer_interval": 40,
    "outer_episodes": 256,
}
"""Settings under which an agent takes a second, once they are compiled."""


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
    entries: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """What its rows say of it besides algorithm, objective and seed."""

    def __str__(self) -> str:
        return f"{self.label or agent_label(self.algorithm, self.objective)}, seed {self.seed}"

    def row(self) -> Row:
        """What every row of it begins with."""
        own = {"algorithm": self.algorithm, "objective": self.objective, "seed": self.seed}
        return {**self.entries, **own}


class Trained(NamedTuple):
    """One agent of a study, trained."""

    cell: Cell
    """What it is."""
    agent: Agent
    """The agent itself."""
    found: Evaluation
    """Its returns in fresh episodes."""
    settings: str
    """What it was made with, in short: `fingerprint`."""
    seconds: float
    """What training took, divided by the number of agents that are trained side by side."""
    watched: list[Any]
    """What `watch` said after each outer step."""

    def rows(self, *measures: str) -> list[Row]:
        """A row for each measure that the agent is valued by."""
        return [
            {
                **self.cell.row(),
                "measure": measure,
                "value": round(self.found.value(measure), 6),
                "standard_error": round(self.found.standard_error(measure), 6),
                "predicted": round(self.agent.history[-1]["predicted"], 6),
                # By its own objective, in the episodes that the policy to keep is chosen by.
                "last": round(self.agent.history[-1]["value"], 6),
                "best": round(self.agent.history[-1]["best"], 6),
                "seconds": round(self.seconds, 1),
                "settings": self.settings,
            }
            for measure in measures
        ]

    def returns(self) -> list[Row]:
        """The returns of the episodes, as quantiles at middle ranks."""
        found = self.found.quantiles(RANKS)
        return [
            {
                **self.cell.row(),
                "rank": (i + 0.5) / RANKS,
                "value": round(float(value), 4),
            }
            for i, value in enumerate(found)
        ]


class Diverged(NamedTuple):
    """One agent of a study whose losses grew without bound: there is nothing to value."""

    cell: Cell
    """What it is."""


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


def make_agent(env: str, cell: Cell, quick: bool) -> Agent:
    """The agent of a cell, untrained."""
    kind = ALGORITHMS[cell.algorithm]
    return kind(
        env,
        risk=None if kind is QRDQN else cell.objective,
        seed=cell.seed,
        **{**({"quantiles": 8} if quick else {}), **cell.settings, **(QUICK if quick else {})},
    )


def fingerprint(agent: Agent, quick: bool) -> str:
    """All settings of an agent and of its environment, and how it is valued, in a few letters: when
    one of them changes, the agent is another, and what was written of the old one does not count.
    """
    env: Any = agent.env
    about = {
        **identity(dataclasses.asdict(agent.settings)),
        "episodes": episodes(quick),
        "environment": {
            field.name: np.asarray(getattr(env, field.name)).tolist()
            for field in dataclasses.fields(env)
        },
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]


def episodes(quick: bool) -> int:
    """In how many an agent is valued."""
    return QUICK_EPISODES if quick else EPISODES


def train_cells(
    env: str,
    cells: Sequence[Cell],
    title: str,
    options: Options,
    watch: Callable[[Agent], Any] | None = None,
) -> Iterator[Trained | Diverged]:
    """Trains and values the agents, one on each core; yields each of them when it is done.

    `watch` looks at an agent after each outer step.
    """
    if not cells:
        return
    workers, waiting = min(len(cells), cores()), iter(cells)
    with contextlib.ExitStack() as stack:
        bar = options.bar or stack.enter_context(StudyBar(len(cells)))
        trainer = _Trainer(env, title, options, bar, workers, watch)
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        try:
            running: set[Future[Trained | Diverged | None]] = {
                pool.submit(trainer, cell) for cell in itertools.islice(waiting, workers)
            }
            while running:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {
                    pool.submit(trainer, cell) for cell in itertools.islice(waiting, len(finished))
                }
                for one in finished:
                    ended = one.result()
                    if ended is not None:
                        yield ended
        finally:  # an error or Ctrl-C ends them all, after their present step
            trainer.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


class _Trainer:
    """Trains an agent in a thread of its own."""

    def __init__(
        self,
        env: str,
        title: str,
        options: Options,
        bar: StudyBar,
        workers: int,
        watch: Callable[[Agent], Any] | None,
    ):
        self.env, self.title, self.options, self.bar = env, title, options, bar
        self.workers, self.watch = workers, watch
        self.stop = threading.Event()
        self._compiling = Compiling()

    def __call__(self, cell: Cell) -> Trained | Diverged | None:
        quick = self.options.quick
        agent = make_agent(self.env, cell, quick)
        begin = time.perf_counter()
        watched = []
        try:
            for done, total in self._steps(agent):
                watched += [] if self.watch is None else [self.watch(agent)]
                self.bar.update((self.title, cell), done / total, self.title)
                if self.stop.is_set():
                    return None
        except DivergenceError as error:
            self.bar.say(f"{self.title}: {cell}: {error}")
            return Diverged(cell)
        agent.settle()
        seconds = (time.perf_counter() - begin) / self.workers
        found = evaluate(agent, episodes=episodes(quick), seed=EVALUATION_SEED + cell.seed)
        value = found.value(cell.objective)
        self.bar.say(f"{self.title}: {cell}: {value:.4f} in its own measure, {seconds:.0f} s")
        return Trained(cell, agent, found, fingerprint(agent, quick), seconds, watched)

    def _steps(self, agent: Agent) -> Iterator[tuple[int, int]]:
        """The outer steps; whoever comes first compiles for those who wait."""
        steps = agent.training()
        program = type(agent), agent._algorithm.objective.levels.shape, agent.settings
        with self._compiling.first(program):
            first = next(steps)
        yield first
        yield from steps
