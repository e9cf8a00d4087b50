"""An experiment: agents x seeds in one environment, run as a study, and its tables in `results/`.

Its runs go through `ds.sweep`: one process for each, resumed where they were interrupted. Each
finished run adds its rows to `NAME.csv`; `NAME.json` says how they were made. What has its rows is
not trained again. The column `settings` holds the key of an agent (`RunSpec.group_key`): rows with
other settings do not count, unless `kept_settings` in the JSON file lists their key.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from downside._files import DamagedFileError
from downside._locks import lock
from downside._machine import cores
from downside.evaluation import Evaluation
from downside.experiments._options import Options
from downside.experiments._paper import NAMES, agent_label
from downside.experiments._rows import (
    Row,
    read_about,
    read_rows,
    select,
    without_agent,
    write_about,
    write_rows,
)
from downside.experiments._tables import terminal
from downside.risk import parse
from downside.runs import run_returns
from downside.studies.driver import sweep
from downside.studies.spec import RunSpec
from downside.studies.storage import failure, state
from downside.studies.study import Study, read_study
from downside.train import Agent, load
from downside.train.checkpoints.checkpoint import CheckpointError

EPISODES, QUICK_SHARE = 100_000, 50
"""Fresh episodes that an agent is evaluated in, and by how many fewer if `quick`."""
RANKS = 200
"""How many quantiles of the returns are written."""
QUICK_ACTOR: Mapping[str, Any] = {
    "updates": 4,
    "batch_size": 16,
    "hidden_sizes": (4,),
    "outer_interval": 2,
    "outer_episodes": 32,
}
"""The same for PG-SRM."""
QUICK: Mapping[str, Any] = {
    "total_timesteps": 12_000,
    "hidden_sizes": (16, 16),
    "buffer_size": 5_000,
    "warmup_steps": 500,
    "outer_interval": 40,
    "outer_episodes": 256,
}
"""Settings under which an agent takes a second, once they are compiled."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One agent of an experiment, for all seeds."""

    label: str
    """Its name, as in the paper's tables."""
    columns: Mapping[str, Any]
    """The first columns of its rows."""
    agent: Mapping[str, Any]
    """Its table in the study: name, preset, risks, settings."""


def entry(
    algorithm: str, objective: str, *, label: str = "", row: Row | None = None, **settings: Any
) -> Entry:
    """An agent by the paper's names; `row` adds columns to its rows."""
    name = NAMES[algorithm]
    risks = {} if name == "qrdqn" else {"risks": [objective]}  # QR-DQN maximises the mean
    return Entry(
        label or agent_label(algorithm, objective),
        {**(row or {}), "algorithm": algorithm, "objective": objective},
        {"name": name, **risks, **settings},
    )


@dataclasses.dataclass(frozen=True)
class Run:
    """One agent and seed of an experiment."""

    entry: Entry
    spec: RunSpec
    folder: Path
    """Its run folder."""

    def __str__(self) -> str:
        return f"{self.entry.label}, seed {self.spec.seed}"

    @functools.cached_property
    def columns(self) -> Row:
        """The first columns of its rows."""
        return {**self.entry.columns, "seed": self.spec.seed}

    @functools.cached_property
    def agent(self) -> Agent:
        """The trained agent."""
        return load(self.folder)

    @functools.cached_property
    def evaluation(self) -> Evaluation:
        """Its returns in fresh episodes."""
        return run_returns(self.folder)

    def values(self, measures: Sequence[str], workers: int) -> list[Row]:
        """A row for each measure."""
        last = self.agent.history[-1]
        return [
            {
                **self.columns,
                "measure": measure,
                "value": round(self.evaluation.value(measure), 6),
                "standard_error": round(self.evaluation.standard_error(measure), 6),
                "predicted": round(last["predicted"], 6) if "predicted" in last else "",
                # By its objective, in the episodes that choose which policy is kept.
                "last": round(last["value"], 6),
                "best": round(last["best"], 6),
                "seconds": round(last["seconds"] / workers, 1),
                "settings": self.spec.group_key,
            }
            for measure in measures
        ]

    def returns(self) -> list[Row]:
        """The returns of the episodes, as quantiles at midpoint ranks."""
        return [
            {**self.columns, "rank": (i + 0.5) / RANKS, "value": round(float(value), 4)}
            for i, value in enumerate(self.evaluation.quantiles(RANKS))
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A study and its tables: `NAME.csv` with the values of each run, and others beside it."""

    name: str
    """The name of its files."""
    command: str | Callable[[Sequence[Row]], str]
    """The command that makes them; it may depend on the rows that are there."""
    env: str
    entries: Sequence[Entry]
    seeds: Sequence[int]
    measures: Sequence[str]
    """What each agent is evaluated by; if empty, its own objective."""
    order: Callable[[Row], Any]
    """The order of the rows."""
    options: Options
    episodes: int = EPISODES
    keys: tuple[str, ...] = ("algorithm", "objective", "seed")
    """The columns that identify a run."""
    parts: Mapping[str, Callable[[Run], list[Row]]] = dataclasses.field(default_factory=dict)
    """Further tables, by the suffix of their files."""
    extra: Callable[[Run], Row] | None = None
    """Further columns of each value."""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further entries of `NAME.json`."""
    callback: str | None = None
    """A callback of each run, as `package.module:Class`."""
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Parameters of the environment."""
    quick: Mapping[str, Any] = dataclasses.field(default_factory=lambda: QUICK)
    """Settings if `quick`."""

    def path(self, part: str = "") -> Path:
        """The file of the values, or of another part."""
        return self.options.folder / f"{self.name}{part}.csv"

    def rows(self, part: str = "") -> list[Row]:
        """The rows that are written."""
        return read_rows(self.path(part))

    @functools.cached_property
    def runs(self) -> list[Run]:
        """All runs, seed by seed, so that a table without holes comes first."""
        runs = [
            Run(entry, spec, self.options.storage(self.name) / spec.name)
            for entry in self.entries
            for spec in self._study(entry).runs
        ]
        return sorted(runs, key=lambda run: self.seeds.index(run.spec.seed))

    def _study(self, entry: Entry) -> Study:
        quick = self.options.quick
        small = {"quantiles": 8} if quick and self.quick is QUICK else {}
        study = {
            "name": self.name,
            "seeds": list(self.seeds),
            "episodes": self.episodes // QUICK_SHARE if quick else self.episodes,
        }
        return read_study(
            {
                "study": study | ({"callback": self.callback} if self.callback else {}),
                "environments": [{"id": self.env, **self.parameters}],
                "agents": [{**small, **entry.agent, **(self.quick if quick else {})}],
            }
        )

    def missing(self) -> list[Run]:
        """The runs without all their rows."""
        written = {part: self.rows(part) for part in ("", *self.parts)}
        about = self._about()
        return [run for run in self.runs if not self._is_written(run, written, about)]

    def _is_written(
        self, run: Run, written: Mapping[str, Sequence[Row]], about: Mapping[str, Any]
    ) -> bool:
        key = {name: run.columns[name] for name in self.keys}
        rows = {part: select(all_rows, **key) for part, all_rows in written.items()}
        known = self._known(run, about)
        if len(rows[""]) >= max(1, len(self.measures)) and all(rows.values()):
            return {row.get("settings") for row in rows[""]} <= known
        return about.get("diverged", {}).get(str(run)) in known

    def _known(self, run: Run, about: Mapping[str, Any]) -> set[str]:
        """The keys of rows that count for a run."""
        return {run.spec.group_key, *about.get("kept_settings", ())}

    def _about(self) -> dict[str, Any]:
        return read_about(self.path().with_suffix(".json"))

    def train(self) -> list[Row]:
        """Trains the missing runs, writes their rows, and returns all values."""
        missing = self.missing()
        if missing:
            study = Study(
                name=self.name,
                runs=tuple(run.spec for run in missing),
                measures=tuple(str(parse(measure)) for measure in self.measures) or ("mean",),
                text=json.dumps({"runs": [str(run) for run in missing]}, indent=2) + "\n",
            )
            try:
                sweep(study, folder=self.options.storage(self.name), progress_bar=True)
            finally:  # an interruption loses nothing that is finished
                self._write(missing)
        return self.rows()

    def _write(self, runs: Sequence[Run]) -> None:
        """Writes the rows of the runs that are finished or diverged; prints other failures."""
        workers = min(len(runs), cores())
        for run in runs:
            if state(run.folder, run.spec.episodes) == "finished":
                try:
                    # The values last: they say that the other parts are there.
                    made = {part: make(run) for part, make in self.parts.items()}
                    extra = {} if self.extra is None else self.extra(run)
                    values = run.values(self.measures or (run.columns["objective"],), workers)
                except (CheckpointError, DamagedFileError) as error:  # the others go on
                    terminal().print(f"{run} cannot be read: {error}", markup=False, soft_wrap=True)
                    continue
                self._add(run, {**made, "": [{**row, **extra} for row in values]})
            elif error := failure(run.folder):
                last = error.splitlines()[-1]
                terminal().print(f"{run} failed: {last}", markup=False, soft_wrap=True)
                if "DivergenceError" in last:  # it would diverge again
                    self._add(run, {})

    def _add(self, run: Run, made: Mapping[str, list[Row]]) -> None:
        """Replaces the rows of a run; of one that diverged there are none.

        Rows of other seeds with other settings go: they must not be averaged with these.
        """
        with lock(self.path().parent, wait=True):  # another command may be writing other runs
            about = self._about()
            agent = {name: run.columns[name] for name in self.keys if name != "seed"}
            others = {
                row["seed"]
                for row in select(self.rows(), **agent)
                if row.get("settings") not in self._known(run, about)
            }
            for part in (*self.parts, ""):
                rows = without_agent(self.rows(part), run.columns, *self.keys)
                for seed in others:
                    rows = without_agent(rows, {**agent, "seed": seed}, *self.keys)
                if not part and not rows:  # nothing is left of what made earlier rows
                    self.path().with_suffix(".json").unlink(missing_ok=True)
                rows = sorted([*rows, *made.get(part, ())], key=self.order)
                if rows or self.path(part).exists():
                    write_rows(self.path(part), rows)
            diverged = {**about.get("diverged", {})}
            diverged.pop(str(run), None)
            if not made:
                diverged[str(run)] = run.spec.group_key
            kept = about.get("kept_settings")
            write_about(
                self.path().with_suffix(".json"),
                self.command if isinstance(self.command, str) else self.command(self.rows()),
                environment=self.env,
                **self.facts,
                seeds=sorted({int(row["seed"]) for row in self.rows()}),
                episodes=run.spec.episodes,
                **({"diverged": diverged} if diverged else {}),
                **({"kept_settings": kept} if kept else {}),
            )
