"""The interface of an engine: it takes tasks and reports their outcomes."""

import abc
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple

from downside._machine import cores

ENGINES = ("local", "ray")


class Report(NamedTuple):
    """The outcome of a task."""

    key: str
    """The key of the task."""
    outcome: str
    """The outcome of `work`; or died, if its process ended without one."""
    error: str = ""
    """The error, if there is one."""


class AbstractEngine(abc.ABC):
    """Runs tasks, a few at a time. A task is the arguments of `work`."""

    @property
    @abc.abstractmethod
    def room(self) -> int:
        """How many tasks it takes now."""

    @abc.abstractmethod
    def submit(self, key: str, task: Mapping[str, Any]) -> None:
        """Takes a task; only if there is room."""

    @abc.abstractmethod
    def poll(self, seconds: float) -> list[Report]:
        """Reports of tasks that ended; waits so long for the first."""

    @abc.abstractmethod
    def end(self, key: str, *, at_once: bool) -> None:
        """Lets one task save its state and end, or ends it at once; `poll` reports it."""

    @abc.abstractmethod
    def stop(self, patience: float) -> None:
        """Lets every task save its state; returns when all have ended, or after so many seconds."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends everything that still runs, at once."""

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
        from downside.studies.engines.ray import RayEngine

        return RayEngine(
            address=address,
            workers=workers,
            cpus_per_cell=cpus_per_cell,
            gpus_per_cell=gpus_per_cell,
        )
    from downside.studies.engines.local import LocalEngine

    return LocalEngine(workers or max(1, cores() // cpus_per_cell), cpus_per_cell)


def thread_limits(cpus: int) -> dict[str, str]:
    """Environment variables that limit a process to so many cores.

    They must be set before JAX is imported. XLA sizes its thread pool by NPROC. Results do not
    depend on them.
    """
    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(cpus))
