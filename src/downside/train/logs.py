"""What is written down while an agent learns: TensorBoard events and lines of JSON."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

TAGS: Mapping[str, str] = {
    "episode_reward": "rollout/ep_rew_mean",
    "episode_length": "rollout/ep_len_mean",
    "exploration": "rollout/exploration_rate",
    "episodes": "time/episodes",
    "fps": "time/fps",
    "seconds": "time/time_elapsed",
    "timesteps": "time/total_timesteps",
    "critic_loss": "train/loss",
    "updates": "train/n_updates",
    "location": "train/utility_shift",
    "predicted": "train/predicted_value",
    "mean": "eval/mean_reward",
    "spread": "eval/std_reward",
    "best": "eval/best_value",
}
"""Our names for what there is to say, and TensorBoard's tags: stable-baselines3's, ours beside."""


class Log:
    """Writes the records of one call of `learn` into a folder; nothing without a folder."""

    def __init__(
        self, folder: str | Path | None, name: str, risk: str, *, fresh: bool, verbose: int
    ):
        self._risk, self._verbose = risk, verbose
        self._events: Any = None
        self._lines: Any = None
        self._console = Console(stderr=True, highlight=False)
        if folder is None:
            return
        self.folder = _numbered(Path(folder), name, fresh=fresh)
        self.folder.mkdir(parents=True, exist_ok=True)
        from tensorboardX import SummaryWriter

        self._events = SummaryWriter(logdir=str(self.folder), write_to_disk=True)
        self._lines = (self.folder / "progress.jsonl").open("a", encoding="utf-8")

    def write(self, record: Mapping[str, float]) -> None:
        """One record."""
        step = int(record["timesteps"])
        # Nothing is kept yet where `best` is infinite; neither JSON nor TensorBoard has that.
        record = {name: value for name, value in record.items() if math.isfinite(value)}
        if self._events is not None:
            for name, tag in TAGS.items():
                if name in record:
                    self._events.add_scalar(tag, record[name], step)
            own = {name: value for name, value in record.items() if name.startswith("eval/")}
            for tag, value in {f"eval/{self._risk}": record["value"], **own}.items():
                self._events.add_scalar(tag, value, step)
        if self._lines is not None:
            self._lines.write(json.dumps(dict(record)) + "\n")
            self._lines.flush()
        if self._verbose:
            self._console.print(
                f"{step:>10,} steps  {record.get('fps', 0.0):>8,.0f}/s  {self._risk} "
                f"{record['value']:.4g}  mean {record['mean']:.4g}  "
                f"loss {record['critic_loss']:.3g}"
            )

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._events is not None:
            self._events.close()
        if self._lines is not None:
            self._lines.close()


def _numbered(folder: Path, name: str, *, fresh: bool) -> Path:
    """`name_1`, `name_2` and so on, as stable-baselines3 does it; the last one to go on with it."""
    numbers = [
        int(one.name.rpartition("_")[2])
        for one in folder.glob(f"{name}_*")
        if one.name.rpartition("_")[2].isdigit()
    ]
    last = max(numbers, default=0)
    return folder / f"{name}_{max(1, last + 1 if fresh else last)}"
