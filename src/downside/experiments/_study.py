"""A study: agents that are trained one by one and written down, so that it can go on any time."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from downside._files import locked
from downside.experiments._options import Options
from downside.experiments._rows import (
    Row,
    read_about,
    read_rows,
    select,
    without_agent,
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
        diverged = self._about().get("diverged", {})
        return [cell for cell in self.cells if not self._is_there(cell, found, diverged)]

    def _is_there(
        self, cell: Cell, found: Mapping[str, Sequence[Row]], diverged: Mapping[str, str]
    ) -> bool:
        row = cell.row()
        key = {name: row[name] for name in self.keys}
        own = {part: select(rows, **key) for part, rows in found.items()}
        whole = len(own[""]) >= max(1, len(self.measures)) and all(own.values())
        if not whole and str(cell) not in diverged:
            return False
        made = {row.get("settings") for row in own[""]} if whole else {diverged[str(cell)]}
        return made == {self._settings(cell)}

    def _settings(self, cell: Cell) -> str:
        return fingerprint(make_agent(self.env, cell, self.options.quick), self.options.quick)

    def _about(self) -> dict[str, Any]:
        return read_about(self.path().with_suffix(".json"))

    def train(self, title: str, watch: Callable[[Agent], Any] | None = None) -> list[Row]:
        """Trains the missing agents, writes each down when it is done; returns all values."""
        for one in train_cells(self.env, self.missing(), title, self.options, watch):
            made: dict[str, list[Row]] = {}
            if isinstance(one, Trained):
                # The values last: they say that the rest is there.
                made = {part: make(one) for part, make in self.parts.items()}
                made[""] = self._values(one)
            with locked(self.path()):  # another command may be writing other agents
                for part in (*self.parts, ""):  # of one that diverged, what was there is no more
                    rows = without_agent(self.rows(part), one.cell.row(), *self.keys)
                    rows = sorted([*rows, *made.get(part, ())], key=self.order)
                    if rows or self.path(part).exists():
                        write_rows(self.path(part), rows)
                self._write_about(one)
        return self.rows()

    def _values(self, one: Trained) -> list[Row]:
        extra = {} if self.extra is None else self.extra(one)
        measures = self.measures or (one.cell.objective,)
        return [{**row, **extra} for row in one.rows(*measures)]

    def _write_about(self, latest: Trained | Diverged) -> None:
        diverged = {**self._about().get("diverged", {})}
        diverged.pop(str(latest.cell), None)
        if isinstance(latest, Diverged):
            diverged[str(latest.cell)] = self._settings(latest.cell)
        write_about(
            self.path().with_suffix(".json"),
            self.command,
            environment=self.env,
            **self.facts,
            seeds=sorted({int(row["seed"]) for row in self.rows()}),
            episodes=episodes(self.options.quick),
            **({"diverged": diverged} if diverged else {}),
        )
