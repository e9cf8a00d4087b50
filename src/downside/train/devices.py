"""Jobs in threads, shared among the devices of the process."""

import contextlib
import queue
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import jax

Job = Callable[[Any, threading.Event], None]
"""Takes its device, and looks now and then whether it is to stop."""


def used_devices() -> list[Any]:
    """All devices of the process, or the default one that `jax.config` names."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return jax.local_devices() if chosen is None else [chosen]


def share(jobs: Iterable[Job], workers: int) -> None:
    """Does so many jobs at a time, each on a device that as few others as possible use."""
    devices, stop = used_devices(), threading.Event()
    free = queue.SimpleQueue()
    for number in range(workers):
        free.put(devices[number % len(devices)])

    def work(job: Job) -> None:
        device = free.get()
        alone = len(devices) == 1  # nothing to say, and what is compiled is that of other calls
        try:
            with contextlib.nullcontext() if alone else jax.default_device(device):
                job(device, stop)
        finally:
            free.put(device)

    with ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(work, job) for job in jobs]
        try:
            for future in as_completed(waiting):
                future.result()
        finally:  # an error or Ctrl-C in one of them ends them all, after their present step
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


class Compiling:
    """Whoever needs a program first compiles it, alone; those who wait for it find it compiled."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, threading.Lock] = {}
        self._compiled: set[Hashable] = set()

    @contextlib.contextmanager
    def first(self, program: Hashable) -> Iterator[None]:
        """Around the first use of a program in a thread; later threads are not held up."""
        if program not in self._compiled:
            with self._locks.setdefault(program, threading.Lock()):
                if program not in self._compiled:
                    yield
                    self._compiled.add(program)
                    return
        yield
