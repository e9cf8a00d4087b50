"""What an engine is: somewhere to hand runs to, that says what became of them."""

import abc
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple

from downside._machine import cores

ENGINES = ("local", "ray")


class Report(NamedTuple):
    """What became of a task."""

    key: str
    """Of the task."""
    outcome: str
    """As `work` says; or died, where the process was gone before it could say anything."""
    error: str = ""
    """What went wrong."""


class AbstractEngine(abc.ABC):
    """Runs tasks, which are the arguments of `work`, a few at a time."""

    @property
    @abc.abstractmethod
    def room(self) -> int:
        """How many tasks it would take now."""

    @abc.abstractmethod
    def submit(self, key: str, task: Mapping[str, Any]) -> None:
        """Takes a task; only while there is room."""

    @abc.abstractmethod
    def poll(self, seconds: float) -> list[Report]:
        """What became of tasks, waiting for so long if there is nothing to say yet."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Lets every task save what it has, and returns when all have ended."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends everything that is left, at once."""

    def __enter__(self) -> "AbstractEngine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def make_engine(
    engine: str,
    *,
    address: str | None,
    workers: int | None,
    cpus_per_cell: int,
    gpus_per_cell: float,
) -> AbstractEngine:
    """The engine of that name, ready to take tasks."""
    if engine == "ray":
        from downside.sweeping.engines.ray import RayEngine

        return RayEngine(
            address=address,
            workers=workers,
            cpus_per_cell=cpus_per_cell,
            gpus_per_cell=gpus_per_cell,
        )
    from downside.sweeping.engines.local import LocalEngine

    return LocalEngine(workers or max(1, cores() // cpus_per_cell), cpus_per_cell)


def thread_limits(cpus: int) -> dict[str, str]:
    """Environment variables with which a process uses so many cores and no more.

    They have to be there before JAX is imported. NPROC is what XLA takes the size of its pool of
    threads from. The numbers that come out do not depend on it.
    """
    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(cpus))
