"""The log of a run: TensorBoard events and `progress.jsonl`, a line for each outer step.

The history that a checkpoint holds decides what is in the log. When training goes on, lines that
are missing are written again from the history, and lines after the checkpoint, whose steps are
made again, are dropped. So no line is lost and none is there twice, wherever a run was killed.
"""

import contextlib
import json
import math
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

from downside._files import make_folder, remove_debris, write_text

TAGS: Mapping[str, str] = {
    "episode_reward": "rollout/ep_rew_mean",
    "episode_length": "rollout/ep_len_mean",
    "exploration": "rollout/exploration_rate",
    "episodes": "time/episodes",
    "fps": "time/fps",
    "seconds": "time/time_elapsed",
    "timesteps": "time/total_timesteps",
    "simulated_steps": "time/simulated_steps",
    "critic_loss": "train/loss",
    "actor_loss": "train/loss",
    "updates": "train/n_updates",
    "location": "train/utility_shift",
    "predicted": "train/predicted_value",
    "mean": "eval/mean_reward",
    "spread": "eval/std_reward",
    "best": "eval/best_value",
}
"""Our names for what there is to say, and TensorBoard's tags: stable-baselines3's, ours beside."""
LINES = "progress.jsonl"
"""The file with a line of JSON for each outer step."""

Record = Mapping[str, Any]


class Log:
    """Writes the records of one call of `learn` into a folder; nothing without a folder.

    Arguments:
        folder: the folder of all logs.
        name: of this one, followed by a number.
        risk: the measure, as text.
        history: records of what was done before; empty for a run from its start, which gets a
            number of its own.
        interval: outer steps between two lines.
        verbose: 1 to print each record.
    """

    def __init__(
        self,
        folder: str | Path | None,
        name: str,
        risk: str,
        *,
        history: Sequence[Record] = (),
        interval: int = 1,
        verbose: int = 0,
    ):
        self._risk, self._verbose = risk, verbose
        self._events: Any = None
        self._lines: Any = None
        self._console = Console(stderr=True, highlight=False)
        if folder is None:
            return
        self.folder, lines = _choose(Path(folder), name, [_finite(record) for record in history])
        try:
            make_folder(self.folder)
            remove_debris(self.folder)
            self._events = _Events(self.folder, int(history[-1]["timesteps"]) if history else None)
            for record in self._mend(lines, history, interval):
                self._events.write(self._scalars(record), int(record["timesteps"]))
            self._lines = (self.folder / LINES).open("a", encoding="utf-8")
        except OSError as error:
            self._close()
            raise self._failed(error) from error

    def _mend(
        self, lines: Mapping[int, Record], history: Sequence[Record], interval: int
    ) -> list[Record]:
        """Writes the lines again that are missing, and drops those of later steps than the history
        has; returns those that were missing."""
        due = history[interval - 1 :: interval]
        known = {int(record["timesteps"]): _finite(record) for record in due}
        last = int(history[-1]["timesteps"]) if history else -1
        kept = {step: line for step, line in lines.items() if step <= last}
        missing = {step: record for step, record in known.items() if step not in kept}
        path = self.folder / LINES
        wanted = "".join(
            json.dumps(dict(record)) + "\n" for _, record in sorted({**kept, **missing}.items())
        )
        if wanted != (path.read_text(encoding="utf-8") if path.is_file() else ""):
            write_text(path, wanted)
        return [missing[step] for step in sorted(missing)]

    def write(self, record: Record) -> None:
        """One record."""
        step = int(record["timesteps"])
        record = _finite(record)
        if self._lines is not None:
            try:
                self._lines.write(json.dumps(dict(record)) + "\n")
                self._lines.flush()
                self._events.write(self._scalars(record), step)
            except OSError as error:
                raise self._failed(error) from error
        if self._verbose:
            loss = record.get("critic_loss", record.get("actor_loss", math.nan))
            self._console.print(
                f"{step:>10,} steps  {record['simulated_steps']:>12,} simulated  "
                f"{record.get('fps', 0.0):>8,.0f}/s  {self._risk} "
                f"{record['value']:.4g}  mean {record['mean']:.4g}  "
                f"loss {loss:.3g}",
                markup=False,
            )

    def _scalars(self, record: Record) -> dict[str, int | float]:
        numbers = {name: v for name, v in record.items() if isinstance(v, int | float)}
        values = {tag: numbers[name] for name, tag in TAGS.items() if name in numbers}
        if "value" in numbers:
            values[f"eval/{self._risk}"] = numbers["value"]
        return values | {name: v for name, v in numbers.items() if name.startswith("eval/")}

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._lines is not None:
                os.fsync(self._lines.fileno())
        except OSError as failure:
            if error is None:
                raise self._failed(failure) from failure
        finally:
            self._close()

    def _close(self) -> None:
        for file in (self._lines, self._events):
            if file is not None:
                with contextlib.suppress(OSError):  # everything was flushed before
                    file.close()

    def _failed(self, error: OSError) -> OSError:
        message = (
            f"The log in {self.folder} could not be written: {error.strerror or error}. When "
            "training goes on, it is written again from the history"
        )
        return OSError(error.errno, message) if error.errno is not None else OSError(message)


def _finite(record: Record) -> dict[str, Any]:
    """Without what is infinite: nothing is kept yet where `best` is, and neither JSON nor
    TensorBoard has that."""
    return {
        name: value
        for name, value in record.items()
        if not isinstance(value, float) or math.isfinite(value)
    }


class _Events:
    """A file of TensorBoard events, written at once: an error is raised where it happens."""

    def __init__(self, folder: Path, last: int | None):
        from tensorboardX.proto import event_pb2 as generated
        from tensorboardX.record_writer import masked_crc32c
        from tensorboardX.summary import scalar

        event_pb2: Any = generated  # its names are made when it is imported
        self._event, self._scalar, self._checksum = event_pb2.Event, scalar, masked_crc32c
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("ab")
        try:
            events = [self._event(wall_time=time.time(), file_version="brain.Event:2")]
            if last is not None:  # what follows is made again: TensorBoard forgets it
                start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                events.append(self._event(wall_time=time.time(), step=last + 1, session_log=start))
            self._add(events)
        except BaseException:
            self.close()
            raise

    def _add(self, events: Iterable[Any]) -> None:
        records = []
        for event in events:
            data = event.SerializeToString()
            size = struct.pack("<Q", len(data))
            records += [size, self._crc(size), data, self._crc(data)]
        self._file.write(b"".join(records))
        self._file.flush()

    def _crc(self, data: bytes) -> bytes:
        return struct.pack("<I", self._checksum(data))

    def write(self, values: Mapping[str, int | float], step: int) -> None:
        now = time.time()
        self._add(
            self._event(wall_time=now, step=step, summary=self._scalar(tag, value))
            for tag, value in values.items()
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):  # everything was flushed before
            self._file.close()


def read_lines(path: Path) -> dict[int, Record]:
    """The records of a log by their steps; what is no record, such as half a line, is left out."""
    lines: dict[int, Record] = {}
    if not path.is_file():
        return lines
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
            lines[int(record["timesteps"])] = record
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue
    return lines


def _choose(folder: Path, name: str, history: Sequence[Record]) -> tuple[Path, dict[int, Record]]:
    """`name_1`, `name_2` and so on, as stable-baselines3 does it; to go on with a run, the last
    one, with its lines, unless they are of another run."""
    numbers = [
        int(path.name.rpartition("_")[2])
        for path in folder.glob(f"{name}_*")
        if path.name.rpartition("_")[2].isdigit()
    ]
    last = max(numbers, default=0)
    if last and history:
        path = folder / f"{name}_{last}" / LINES
        lines = read_lines(path)
        times = {int(record["timesteps"]): record.get("seconds") for record in history}
        shared = [step for step in lines if step in times]
        if path.is_file() and all(lines[step].get("seconds") == times[step] for step in shared):
            return path.parent, lines
    return folder / f"{name}_{last + 1}", {}
