"""A study: agents that are trained one by one and written down, so that it can go on any time."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from downside.experiments._options import Options
from downside.experiments._rows import (
    Row,
    read_rows,
    select,
    with_agent,
    write_about,
    write_rows,
)
from downside.experiments._training import (
    Cell,
    Diverged,
    Trained,
    episodes,
    fingerprint,
    make_agent,
    train_cells,
)
from downside.train import Agent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Its files: `NAME.csv` with the values of each agent, others beside it, and how they were
    made."""

    name: str
    """What its files are called."""
    command: str
    """What makes them."""
    env: str
    """The environment that agents are trained in."""
    cells: Sequence[Cell]
    """All its agents, in the order that they are trained in."""
    measures: tuple[str, ...]
    """What each agent is valued by; if there are none, its own objective."""
    order: Callable[[Row], Any]
    """The order of the rows."""
    options: Options
    """Where, and with what."""
    keys: tuple[str, ...] = ("algorithm", "objective", "seed")
    """The entries that tell the rows of an agent from those of the others."""
    parts: Mapping[str, Callable[[Trained], list[Row]]] = dataclasses.field(default_factory=dict)
    """What is written of an agent besides its values, by how the names of the files end."""
    extra: Callable[[Trained], Row] | None = None
    """What is written beside each value."""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What there is to know of how it was made."""

    def path(self, part: str = "") -> Path:
        """Where the values are, or another part."""
        return self.options.folder / f"{self.name}{part}.csv"

    def rows(self, part: str = "") -> list[Row]:
        """What has been written."""
        return read_rows(self.path(part))

    def missing(self) -> list[Cell]:
        """The agents that are not there whole, with the settings that they would have now."""
        found = {part: self.rows(part) for part in ("", *self.parts)}
        return [cell for cell in self.cells if not self._is_there(cell, found)]

    def _is_there(self, cell: Cell, found: Mapping[str, Sequence[Row]]) -> bool:
        row = cell.row()
        key = {name: row[name] for name in self.keys}
        own = {part: select(rows, **key) for part, rows in found.items()}
        if len(own[""]) < max(1, len(self.measures)) or not all(own.values()):
            return False
        quick = self.options.quick
        now = fingerprint(make_agent(self.env, cell, quick), quick)
        return all(row.get("settings") == now for row in own[""])

    def train(self, title: str, watch: Callable[[Agent], Any] | None = None) -> list[Row]:
        """Trains the missing agents, writes each down when it is done; returns all values."""
        for one in train_cells(self.env, self.missing(), title, self.options, watch):
            if isinstance(one, Trained):
                # The values last: they say that the rest is there.
                for part, make in {**self.parts, "": self._values}.items():
                    # Read again: another command may have written other agents in the meantime.
                    rows = with_agent(self.rows(part), make(one), *self.keys)
                    write_rows(self.path(part), sorted(rows, key=self.order))
            self._write_about(one)
        return self.rows()

    def _values(self, one: Trained) -> list[Row]:
        extra = {} if self.extra is None else self.extra(one)
        measures = self.measures or (one.cell.objective,)
        return [{**row, **extra} for row in one.rows(*measures)]

    def _write_about(self, latest: Trained | Diverged) -> None:
        path = self.path().with_suffix(".json")
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        diverged = set(before.get("diverged", ())) - {str(latest.cell)}
        if isinstance(latest, Diverged):
            diverged.add(str(latest.cell))
        write_about(
            path,
            self.command,
            environment=self.env,
            **self.facts,
            seeds=sorted({int(row["seed"]) for row in self.rows()}),
            episodes=episodes(self.options.quick),
            **({"diverged": sorted(diverged)} if diverged else {}),
        )
