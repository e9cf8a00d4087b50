"""The local engine: worker processes on this machine, one run at a time in each.

A process of its own is what a run needs so that nothing it does can stop the others, not even using
up all memory. Each is held to its share of the cores, so that together they never want more than
there are. It stays for the next run: what it has compiled for one it has for all of the same shape.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import wait
from typing import IO, Any

from downside.sweeping.engines.base import AbstractEngine, Report, thread_limits

_PATIENCE = 300.0
"""Seconds that a worker has to save what it has."""
_TAIL = 2000
"""Characters of what a worker said last, for the error of a run that it died with."""


@dataclasses.dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    answers: IO[bytes]
    said: IO[bytes]
    """What it writes to stdout and stderr."""
    key: str | None = None
    """Of the task that it is at."""


class LocalEngine(AbstractEngine):
    """Worker processes, started when they are needed.

    Arguments:
        workers: how many at a time.
        cpus_per_cell: cores that each may use.
    """

    def __init__(self, workers: int, cpus_per_cell: int):
        self._most, self._cpus = workers, cpus_per_cell
        self._workers: list[_Worker] = []

    @property
    def room(self) -> int:
        """Workers that are idle or were not started yet."""
        return self._most - sum(one.key is not None for one in self._workers)

    def submit(self, key: str, task: Mapping[str, Any]) -> None:
        """To the first worker that is idle, or to a new one."""
        idle = [one for one in self._workers if one.key is None]
        worker = idle[0] if idle else self._start()
        worker.key = key
        assert worker.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead, which `poll` will find
            worker.process.stdin.write(json.dumps(task).encode() + b"\n")
            worker.process.stdin.flush()

    def poll(self, seconds: float) -> list[Report]:
        """An answer is a line; the end of the file is the end of the worker."""
        out = []
        lines = {one.answers.fileno(): one for one in self._workers}
        for worker in (lines[number] for number in wait(list(lines), seconds)):  # pyright: ignore
            line = worker.answers.readline()
            if line.endswith(b"\n"):
                answer = json.loads(line)
                out.append(Report(worker.key or "", answer["outcome"], answer.get("error", "")))
                worker.key = None
            elif (report := self._bury(worker)) is not None:
                out.append(report)
        return out

    def stop(self) -> None:
        """Closes the line to every worker, which then saves and ends."""
        for one in self._workers:
            assert one.process.stdin is not None
            with contextlib.suppress(OSError):
                one.process.stdin.close()
        for one in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(_PATIENCE)

    def close(self) -> None:
        """Kills what still runs."""
        for one in list(self._workers):
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGTERM if one.key is None else signal.SIGKILL)
            self._bury(one)

    def _start(self) -> _Worker:
        reading, writing = os.pipe()
        said = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "downside.sweeping.worker", str(writing)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                pass_fds=(writing,),
                start_new_session=True,  # Ctrl-C is for the driver, which tells the workers
                env={
                    **os.environ,
                    **thread_limits(self._cpus),
                    "PYTHONPATH": os.pathsep.join(one or os.getcwd() for one in sys.path),
                },
            )
        finally:
            os.close(writing)
        worker = _Worker(process, os.fdopen(reading, "rb", buffering=0), said)
        self._workers.append(worker)
        return worker

    def _bury(self, worker: _Worker) -> Report | None:
        """What became of the task of a worker that has ended."""
        code = worker.process.wait()
        worker.said.seek(0)
        last = worker.said.read().decode(errors="replace")[-_TAIL:].strip()
        for file in (worker.answers, worker.said, worker.process.stdin):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        self._workers.remove(worker)
        if worker.key is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Report(worker.key, "died", f"The process {how}.\n{last}".strip())
