"""The Ray engine: a Ray task for each run, on an existing cluster or on one for this study.

Results go through the folder of the study, which all machines share. Ray carries the tasks and
their outcomes.
"""

import os
import warnings
from collections.abc import Mapping
from typing import Any

from downside._machine import cores
from downside.studies.engines.base import AbstractEngine, Report, thread_limits

_LOOPBACK = "127.0.0.1"
_STORE = 128 * 2**20
"""Bytes of memory for Ray's objects, of which there are few."""


_OWN_CLUSTER = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_register_timeout_seconds": "600",
}
"""For a cluster that the engine starts; read when Ray is imported. The first one limits it to
127.0.0.1, as on macOS and Windows. The others are for busy machines: the priority of the local
engine, and a long timeout for workers that start slowly."""


class RayEngine(AbstractEngine):
    """Ray tasks.

    Arguments:
        address: of a cluster: "auto", "host:port" or "ray://host:port". None for one on this
            machine that only this machine can reach, and that ends with the study.
        workers: how many runs at a time; by default as many as there are resources for.
        cpus_per_cell: cores for each run.
        gpus_per_cell: accelerators for each run; may be a fraction.
    """

    def __init__(
        self, *, address: str | None, workers: int | None, cpus_per_cell: int, gpus_per_cell: float
    ):
        self._ray = ray = _import(starting=address is None)
        self._owned = not ray.is_initialized()
        if self._owned:
            _begin(ray, address)
        self._max_workers, self._cpus, self._gpus = workers, cpus_per_cell, gpus_per_cell
        self._running: dict[Any, str] = {}
        if address is None and self._owned and not self._fit():
            self.close()
            raise ValueError(
                f"`cpus_per_cell` and `gpus_per_cell` must be at most what this machine has, got "
                f"{cpus_per_cell} and {gpus_per_cell:g}. For a cluster pass its `address`."
            )
        if address is not None and not self._owned:
            warnings.warn(
                f"This program is connected to Ray already: `address` ({address!r}) is not used.",
                stacklevel=2,
            )
        if not self._has_room():
            warnings.warn(
                f"No machine of the cluster has {cpus_per_cell} CPUs and {gpus_per_cell:g} GPUs "
                "(`cpus_per_cell`, `gpus_per_cell`): runs wait until one joins.",
                stacklevel=2,
            )
        self._task = ray.remote(_work).options(
            num_cpus=cpus_per_cell,
            num_gpus=gpus_per_cell,
            max_retries=0,  # the driver retries, and knows the progress
        )

    def _fit(self) -> int:
        """How many runs the cluster has resources for; it may grow."""
        total = self._ray.cluster_resources()
        fit = int(total.get("CPU", 0) // self._cpus)
        return min(fit, int(total.get("GPU", 0) // self._gpus)) if self._gpus else fit

    def _has_room(self) -> bool:
        """Whether a run fits on a single machine of the cluster."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return any(
            resources.get("CPU", 0) >= self._cpus and resources.get("GPU", 0) >= self._gpus
            for resources in machines
        )

    @property
    def room(self) -> int:
        """Free slots of `workers`, or of the cluster."""
        return (self._max_workers or max(1, self._fit())) - len(self._running)

    def submit(self, key: str, task: Mapping[str, Any]) -> None:
        """Submits a Ray task."""
        self._running[self._task.remote(dict(task), self._cpus)] = key

    def poll(self, seconds: float) -> list[Report]:
        """A task whose process or machine is gone has died; any other has an outcome."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        reports = []
        for task in ready:
            key = self._running.pop(task)
            try:
                answer = self._ray.get(task)
                reports.append(Report(key, answer["outcome"], answer.get("error", "")))
            except self._ray.exceptions.RayTaskError as error:
                reports.append(Report(key, "failed", str(error)))
            except self._ray.exceptions.RayError as error:
                reports.append(Report(key, "died", f"{type(error).__name__}: {error}".strip()))
        return reports

    def end(self, key: str, *, at_once: bool) -> None:
        """Interrupts the task, as Ctrl-C would; or kills its process."""
        for task, running in self._running.items():
            if running == key:
                self._ray.cancel(task, force=at_once)

    def stop(self, patience: float) -> None:
        """Interrupts every task, as Ctrl-C would: it then saves and ends."""
        for task in self._running:
            self._ray.cancel(task)
        if self._running:
            waiting = list(self._running)
            self._ray.wait(waiting, num_returns=len(waiting), timeout=patience)

    def close(self) -> None:
        """Disconnects; ends the cluster if the engine started it."""
        if self._owned and self._ray.is_initialized():
            self._ray.shutdown()


def _import(*, starting: bool) -> Any:
    for name, value in _OWN_CLUSTER.items() if starting else ():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise RuntimeError(
            "The engine 'ray' needs Ray: pip install 'downside[ray]'. The engine 'local' needs "
            "nothing more."
        ) from error
    return ray


def _begin(ray: Any, address: str | None) -> None:
    """Connects to a cluster, or starts one that listens on the loopback only."""
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is not None:
        ray.init(address=address, **quiet)
        return
    ray.init(
        address="local",
        num_cpus=cores(),
        include_dashboard=False,
        object_store_memory=_STORE,
        _node_ip_address=_LOOPBACK,
        **quiet,
    )
    if ray.util.get_node_ip_address() != _LOOPBACK:
        ray.shutdown()
        raise RuntimeError(
            "Ray would listen to the whole network, because it was imported before with other "
            "settings. Call ds.sweep before you import ray, or start a cluster and pass `address`."
        )


def _work(task: dict[str, Any], cpus: int) -> dict[str, str]:
    """In a Ray process: limits the cores before JAX is imported."""
    os.environ.update(thread_limits(cpus))
    from downside.studies.work import work

    return work(**task)
