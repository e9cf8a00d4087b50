"""A process of the local engine: cells come in as lines of JSON, what became of them goes out.

python -m downside.sweeping.worker DESCRIPTOR

The answers go to the file descriptor, since environments may print. When nobody is at the other
end any more, because the driver is done or dead, the worker saves what it has and ends.
"""

import json
import os
import queue
import signal
import sys
import threading
from typing import Any


def main() -> None:
    """Works until there is nothing more to come."""
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    from downside.sweeping.work import work

    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        outcome = ""
        while outcome != "stopped" and (job := jobs.get()) is not None:
            answer = work(**job)
            outcome = answer["outcome"]
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    os._exit(0)  # not waiting for the thread that listens


def _listen(jobs: "queue.SimpleQueue[Any]") -> None:
    with open(0, "rb", buffering=0, closefd=False) as lines:
        for line in lines:
            jobs.put(json.loads(line))
    jobs.put(None)
    os.kill(os.getpid(), signal.SIGTERM)  # training saves and stops; anything else just ends


if __name__ == "__main__":
    main()
