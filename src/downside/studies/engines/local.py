"""The local engine: worker processes on this machine, one run at a time in each.

Each run has its own process, so that no run can stop another, even by using up all memory. Each
process is limited to its share of the cores. It stays for the next run, so that runs of the same
shape share compiled programs.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import wait
from typing import IO, Any

from downside.studies.engines.base import AbstractEngine, Report, thread_limits

_TAIL = 2000
"""Characters of a dead worker's output that go into the error."""


@dataclasses.dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    answers: IO[bytes]
    output: IO[bytes]
    """Its stdout and stderr."""
    key: str | None = None
    """The key of its task."""


class LocalEngine(AbstractEngine):
    """Worker processes, started when they are needed.

    Arguments:
        workers: how many at a time.
        cpus_per_cell: cores that each may use.
    """

    def __init__(self, workers: int, cpus_per_cell: int):
        self._max_workers, self._cpus = workers, cpus_per_cell
        self._workers: list[_Worker] = []

    @property
    def room(self) -> int:
        """Workers that are idle or not started yet."""
        return self._max_workers - sum(worker.key is not None for worker in self._workers)

    def submit(self, key: str, task: Mapping[str, Any]) -> None:
        """Gives the task to an idle worker, or to a new one."""
        idle = [worker for worker in self._workers if worker.key is None]
        worker = idle[0] if idle else self._start()
        worker.key = key
        assert worker.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead; `poll` reports it
            worker.process.stdin.write(json.dumps(task).encode() + b"\n")
            worker.process.stdin.flush()

    def poll(self, seconds: float) -> list[Report]:
        """An answer is a line; the end of the file is the end of the worker."""
        reports = []
        lines = {worker.answers.fileno(): worker for worker in self._workers}
        for worker in (lines[number] for number in wait(list(lines), seconds)):  # pyright: ignore
            line = worker.answers.readline()
            if line.endswith(b"\n"):
                answer = json.loads(line)
                reports.append(Report(worker.key or "", answer["outcome"], answer.get("error", "")))
                worker.key = None
            elif (report := self._reap(worker)) is not None:
                reports.append(report)
        return reports

    def end(self, key: str, *, at_once: bool) -> None:
        """As Ctrl-C does for the worker that has the task; or kills it."""
        for worker in self._workers:
            if worker.key == key and worker.process.poll() is None:
                worker.process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)

    def stop(self, patience: float) -> None:
        """Closes the input of every worker, which then saves and exits."""
        for worker in self._workers:
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):
                worker.process.stdin.close()
        deadline = time.monotonic() + patience
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Kills what still runs."""
        for worker in list(self._workers):
            if worker.process.poll() is None:
                idle = worker.key is None
                worker.process.send_signal(signal.SIGTERM if idle else signal.SIGKILL)
            self._reap(worker)

    def _start(self) -> _Worker:
        reading, writing = os.pipe()
        output = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "downside.studies.worker", str(writing)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(writing,),
                start_new_session=True,  # Ctrl-C goes to the driver, which stops the workers
                env={
                    **os.environ,
                    **thread_limits(self._cpus),
                    "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
                },
            )
        finally:
            os.close(writing)
        worker = _Worker(process, os.fdopen(reading, "rb", buffering=0), output)
        self._workers.append(worker)
        return worker

    def _reap(self, worker: _Worker) -> Report | None:
        """Cleans up after a worker that ended; a report if it had a task."""
        code = worker.process.wait()
        worker.output.seek(0)
        last = worker.output.read().decode(errors="replace")[-_TAIL:].strip()
        for file in (worker.answers, worker.output, worker.process.stdin):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        self._workers.remove(worker)
        if worker.key is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Report(worker.key, "died", f"The process {how}.\n{last}".strip())
