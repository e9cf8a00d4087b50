"""`downside sweep`: a whole study."""

import dataclasses
from typing import Annotated, Literal

import tyro

from downside.cli._common import print_json


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Run a study: environments x agents x measures x seeds, on all cores or on a Ray cluster."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY.toml")]
    """The file of the study."""
    engine: Literal["local", "ray"] = "local"
    """Processes on this machine, or tasks on a Ray cluster."""
    address: str | None = None
    """Of a Ray cluster, e.g. auto; by default one is started on this machine."""
    workers: int | None = None
    """Runs at a time; by default as many as there are cores for."""
    cpus_per_cell: int = 1
    """Cores for each run."""
    gpus_per_cell: float = 0.0
    """Accelerators for each run, with --engine ray."""
    folder: str | None = None
    """Where the runs go; by default studies/<name>. A cluster needs one that all machines share."""
    every: float = 60.0
    """Seconds between two checkpoints of a run."""
    timeout: float | None = None
    """Seconds that a run may take; then it is ended and has failed. By default as long as it
    takes."""
    dry_run: bool = False
    """Check the study and list its runs, and do nothing else."""
    json: bool = False
    """Print JSON, for other programs."""

    def run(self) -> None:
        """Runs the rest of the study and prints the table; an error if a run failed."""
        if self.dry_run:
            self._list()
            return
        from rich.console import Console

        from downside import sweep

        result = sweep(
            self.study,
            engine=self.engine,
            folder=self.folder,
            workers=self.workers,
            cpus_per_cell=self.cpus_per_cell,
            gpus_per_cell=self.gpus_per_cell,
            address=self.address,
            every_seconds=self.every,
            timeout=self.timeout,
            progress_bar=not self.json,
        )
        if self.json:
            groups = [
                {
                    "env": group.env,
                    "agent": group.agent,
                    "risk": group.risk,
                    "runs": [str(result.folder / run.name) for run in group.runs],
                    "finished": group.finished,
                    "failed": group.failed,
                    "values": {name: e._asdict() for name, e in group.estimates.items()},
                }
                for group in result.groups
            ]
            print_json({"report": str(result.report), "groups": groups, "failed": result.failed})
        else:
            console = Console(highlight=False)
            console.width = max(
                console.width, 110
            )  # a narrow terminal wraps lines instead of numbers
            console.print(*result.tables())
            console.print(f"Report: {result.report}", markup=False, soft_wrap=True)
        if result.failed:
            first, error = next(iter(result.failed.items()))
            raise RuntimeError(
                f"{len(result.failed)} of {len(result.study.runs)} runs failed; the first: "
                f"{result.folder / first}: {error.splitlines()[-1]}\n"
                "The same command tries them again."
            )

    def _list(self) -> None:
        from rich.console import Console

        from downside.studies.driver import study_folder
        from downside.studies.storage import states as states_of
        from downside.studies.study import read_study

        study = read_study(self.study)
        folder = study_folder(study, self.folder)
        states = states_of(folder, study.runs)
        if self.json:
            print_json({"folder": str(folder), "runs": states})
            return
        console = Console(highlight=False)
        for name, status in states.items():
            console.print(f"{status:<10}  {name}", markup=False, soft_wrap=True)
        left = sum(status != "finished" for status in states.values())
        console.print(
            f"{len(states)} runs in {folder}, {left} to do.", markup=False, soft_wrap=True
        )
