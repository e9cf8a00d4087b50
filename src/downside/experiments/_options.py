"""What can be asked of every experiment."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from downside.experiments._progress import StudyBar

SEEDS = (0, 1, 2, 3, 4)
QUICK_SEEDS = (0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How an experiment is to be run."""

    results: Path | None = None
    """The folder of the results: `results`, or `runs/quick` if `quick`."""
    seeds: tuple[int, ...] = ()
    """Of the agents; the experiment's own if there are none."""
    preset: str = "both"
    """With which settings agents are trained: "default", "paper" or "both"."""
    quick: bool = False
    """Tiny agents that learn next to nothing, to see that all of it runs."""
    only: tuple[str, ...] = ()
    """Parts of the names of the agents to train; the others are left out. All if there are none."""
    timesteps: int | None = None
    """Environment steps of each lunar lander; the experiment's own if None."""
    bar: "StudyBar | None" = None
    """Where progress is shown, if several experiments share a bar."""

    def __post_init__(self):
        if any(isinstance(seed, bool) or seed < 0 for seed in self.seeds):
            raise ValueError(f"`seeds` must be whole numbers >= 0, got {self.seeds}.")
        if self.timesteps is not None and self.timesteps < 1:
            raise ValueError(f"`timesteps` must be a whole number >= 1, got {self.timesteps}.")
        if self.preset not in ("default", "paper", "both"):
            raise ValueError(f"`preset` must be 'default', 'paper' or 'both', got {self.preset!r}.")

    @property
    def folder(self) -> Path:
        """Where results are read and written."""
        if self.results is not None:
            return self.results
        return Path("runs/quick") if self.quick else Path("results")

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets that are asked for."""
        return ("default", "paper") if self.preset == "both" else (self.preset,)

    def wants(self, name: str) -> bool:
        """Whether an agent of this name is asked for."""
        return not self.only or any(part in name for part in self.only)

    def seeds_or(self, own: tuple[int, ...] = SEEDS) -> tuple[int, ...]:
        """The seeds that are asked for, or the experiment's `own`; two if it is to be quick."""
        return self.seeds or (QUICK_SEEDS[: len(own)] if self.quick else own)
