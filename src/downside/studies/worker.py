"""A worker process of the local engine: tasks come in as lines of JSON, outcomes go out.

python -m downside.studies.worker DESCRIPTOR

Outcomes go to the file descriptor, since environments may print. When the driver closes its end or
dies, the worker saves its run and exits.
"""

import json
import os
import queue
import signal
import sys
import threading
from typing import Any

_PATIENCE = 300
"""Seconds to save and stop after the driver is gone, before the system ends the process."""


def main() -> None:
    """Works until there are no more tasks."""
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    from downside.studies.work import work

    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        outcome = ""
        while outcome != "stopped" and (task := tasks.get()) is not None:
            answer = work(**task)
            outcome = answer["outcome"]
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    os._exit(0)  # without waiting for the listening thread


def _listen(tasks: "queue.SimpleQueue[Any]") -> None:
    with open(0, "rb", buffering=0, closefd=False) as lines:
        for line in lines:
            tasks.put(json.loads(line))
    tasks.put(None)
    os.kill(os.getpid(), signal.SIGTERM)  # training saves and stops
    if hasattr(signal, "alarm"):
        signal.alarm(_PATIENCE)  # an environment that hangs does not outlive the driver


if __name__ == "__main__":
    main()
