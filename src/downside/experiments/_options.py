"""The options of every experiment."""

import dataclasses
from pathlib import Path

SEEDS = (0, 1, 2, 3, 4)
QUICK_SEEDS = (0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How to run an experiment."""

    results: Path | None = None
    """The folder of the results: `results`, or `runs/quick` if `quick`."""
    seeds: tuple[int, ...] = ()
    """Seeds of the agents; by default those of the experiment."""
    preset: str = "both"
    """The settings of the agents: "default", "paper" or "both"."""
    quick: bool = False
    """Whether to train tiny agents, to check that everything runs."""
    only: tuple[str, ...] = ()
    """Parts of the names of the agents to train; by default all."""
    timesteps: int | None = None
    """Environment steps of each lunar lander; by default those of the experiment."""
    data: Path = Path("domains")
    """The folder of other people's files that an experiment reads."""

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

    def storage(self, name: str) -> Path:
        """Where the runs of an experiment are kept: beside the results, unless these are ours."""
        return Path("runs" if self.folder == Path("results") else self.folder / "runs") / name

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets to run."""
        return ("default", "paper") if self.preset == "both" else (self.preset,)

    def wants(self, name: str) -> bool:
        """Whether to train an agent of this name."""
        return not self.only or any(part in name for part in self.only)

    def seeds_or(self, default: tuple[int, ...] = SEEDS) -> tuple[int, ...]:
        """The seeds of the user, or the `default`, of which two if `quick`."""
        return self.seeds or (QUICK_SEEDS[: len(default)] if self.quick else default)
