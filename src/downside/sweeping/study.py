"""The file of a study, read and checked before anything starts.

[study]
name = "tails"
risks = ["mean", "cvar(0.2)"]
seeds = 3

[[environments]]
id = "downside/MeanReversion-v0"
sigma = [0.5, 1.0]                  # a list is swept

[[agents]]
name = "qrsrm"
learning_rate = [0.01, 0.003]
"""

import dataclasses
import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from downside._files import write_text
from downside._names import did_you_mean
from downside.agents import PRESETS, Settings
from downside.agents.settings import tidy
from downside.risk import parse
from downside.sweeping.cells import Cell
from downside.sweeping.environments import Environment, read_environment
from downside.sweeping.lines import Path as Place
from downside.sweeping.lines import key_lines
from downside.sweeping.problems import Problems, StudyError, named_in
from downside.train.loading import agents_by_name
from downside.train.setup import agent_settings, default_episodes

_STUDY = ("name", "risks", "seeds", "total_timesteps", "episodes", "measures")
_MEASURES = ("mean", "cvar(0.2)")
"""What every run is valued by, if the study does not say."""
_SETTINGS = tuple(field.name for field in dataclasses.fields(Settings))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study that was found to be in order."""

    name: str
    cells: tuple[Cell, ...]
    """The runs, those that can share a compiled program next to each other."""
    measures: tuple[str, ...]
    """What every run is valued by, beside its own measure."""
    text: str
    """The study as it was written; JSON if it came from Python."""

    def keep(self, folder: Path) -> None:
        """Writes a copy into the folder."""
        kind = "json" if self.text.startswith("{") else "toml"
        write_text(folder / f"study.{kind}", self.text)


def read_study(source: str | Path | Mapping[str, Any]) -> Study:
    """Reads a study from a TOML file or a dictionary of the same shape.

    Raises:
        StudyError: with everything that is wrong with it, and the lines.
    """
    if isinstance(source, Mapping):
        text = json.dumps(source, indent=2, default=str) + "\n"
        return _Reader(dict(source), Problems("", {}), text).read()
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"There is no study {path}. It is a TOML file; see docs/sweeps.md.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise StudyError(f"{path} is no text in UTF-8: {error}.") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said, _, place = str(error).partition(" (at ")
        number = re.match(r"line (\d+)", place)
        line = number[1] if number else text.count("\n") + 1
        raise StudyError(
            f"the study is no TOML; nothing was started.\n{path.name}:{line}: {said}."
        ) from error
    return _Reader(table, Problems(path.name, key_lines(text)), text).read()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Agent:
    """One combination of an agent's settings, without the environment."""

    name: str
    preset: str
    changes: Mapping[str, Any]
    risks: tuple[str, ...]
    place: Place


class _Reader:
    def __init__(self, table: Mapping[str, Any], problems: Problems, text: str):
        self.table, self.problems, self.text = table, problems, text

    def read(self) -> Study:
        self.problems.keys(self.table, (), ("study", "environments", "agents"), "A study")
        study = self.table.get("study", {})
        if not isinstance(study, Mapping):
            self.problems.add(("study",), f"`study` must be a table, got {study!r}.")
            study = {}
        self.problems.keys(study, ("study",), _STUDY, "[study]")
        name = study.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.problems.add(
                ("study", "name"),
                "`name` must be letters, digits and any of . _ + -, for it becomes a folder; got "
                f"{name!r}." if "name" in study else "[study] needs a `name`, e.g. \"tails\".",
            )  # fmt: skip
        seeds = self.seeds(study.get("seeds", 1))
        steps = self.whole(study, "total_timesteps", least=1)
        episodes = self.whole(study, "episodes", least=2)
        measures = self.risks(study.get("measures", list(_MEASURES)), ("study", "measures"))
        shared = self.risks(study["risks"], ("study", "risks")) if "risks" in study else None
        environments = [
            one
            for place, entry in self.tables("environments")
            for one in read_environment(entry, place, self.problems)
        ]
        agents = [
            one
            for place, entry in self.tables("agents")
            for one in self.agent(entry, place, shared)
        ]
        cells = self.cells(environments, agents, seeds, steps, episodes)
        self.problems.check()
        return Study(name=str(name), cells=cells, measures=measures, text=self.text)

    # --- parts --------------------------------------------------------------------------------

    def tables(self, name: str) -> list[tuple[Place, Mapping[str, Any]]]:
        found = self.table.get(name, [])
        if not isinstance(found, Sequence) or not all(isinstance(one, Mapping) for one in found):
            self.problems.add((name,), f"`{name}` must be tables, each under [[{name}]].")
            return []
        if not found:
            self.problems.add((name,), f"A study needs at least one [[{name}]].")
        return [((name, number), one) for number, one in enumerate(found)]

    def whole(self, table: Mapping[str, Any], name: str, least: int) -> int | None:
        value = table.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.problems.add(
                ("study", name), f"`{name}` must be a whole number >= {least}, got {value!r}."
            )
            return None
        return value

    def seeds(self, value: Any) -> tuple[int, ...]:
        is_whole = lambda one: isinstance(one, int) and not isinstance(one, bool)  # noqa: E731
        if is_whole(value) and value >= 1:
            return tuple(range(value))
        if isinstance(value, Sequence) and value and not isinstance(value, str):
            wrong = [i for i, one in enumerate(value) if not is_whole(one) or one < 0]
            for i in wrong:
                said = f"A seed must be a whole number >= 0, got {value[i]!r}."
                self.problems.add(("study", "seeds", i), said)
            return tuple(dict.fromkeys(value)) if not wrong else ()
        self.problems.add(
            ("study", "seeds"),
            f"`seeds` must be how many, a whole number >= 1, or a list of them, got {value!r}.",
        )
        return ()

    def risks(self, value: Any, place: Place) -> tuple[str, ...]:
        """Measures in their canonical spelling; those that are none are reported."""
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not texts:
            self.problems.add(place, f'`{place[-1]}` must be measures, e.g. ["mean"]; got {value}.')
            return ()
        found = []
        for i, text in enumerate(texts):
            try:
                found.append(str(parse(text)))
            except (TypeError, ValueError) as error:
                self.problems.add(place if isinstance(value, str) else (*place, i), error)
        return tuple(dict.fromkeys(found))

    # --- agents -------------------------------------------------------------------------------

    def agent(
        self, table: Mapping[str, Any], place: Place, shared: tuple[str, ...] | None
    ) -> list[_Agent]:
        before = len(self.problems)
        known = agents_by_name()
        name = table.get("name")
        if not isinstance(name, str) or name not in known:
            there = ", ".join(known)
            several = " For several agents write [[agents]] several times."
            hint = several if isinstance(name, list) else did_you_mean(str(name), known)
            self.problems.add(
                (*place, "name"),
                f"`name` must be one of {there}, got {name!r}.{hint}"
                if "name" in table
                else f"An agent needs a `name`: one of {there}.",
            )
            name = None
        self.problems.keys(table, place, ("name", "preset", "risks", *_SETTINGS), "An agent")
        swept = {
            one: self.values(one, value, (*place, one))
            for one, value in table.items()
            if one in ("preset", *_SETTINGS)
        }
        risks = self.agent_risks(name, table, place, shared)
        if len(self.problems) > before or name is None:
            return []
        out = []
        for chosen in itertools.product(*swept.values()):
            changes = dict(zip(swept, chosen, strict=True))
            preset = changes.pop("preset", "default")
            out.append(_Agent(name=name, preset=preset, changes=changes, risks=risks, place=place))
        return out

    def values(self, name: str, given: Any, place: Place) -> list[Any]:
        """The values that a setting takes in the study, each checked on its own."""
        several = isinstance(given, list)
        if name == "hidden":  # is a list itself: a list of lists is swept
            several = several and any(isinstance(one, list) for one in given)
        values = given if several else [given]
        if not values:
            self.problems.add(place, f"`{name}` has no values. Leave it out, or name some.")
        out = []
        for i, value in enumerate(values):
            try:
                if name == "preset" and (not isinstance(value, str) or value not in PRESETS):
                    there = ", ".join(PRESETS)
                    raise ValueError(f"`preset` must be one of {there}, got {value!r}.")
                out.append(value if name == "preset" else tidy(name, value))
            except ValueError as error:
                self.problems.add((*place, i) if several else place, error)
        return out

    def agent_risks(
        self,
        name: str | None,
        table: Mapping[str, Any],
        place: Place,
        shared: tuple[str, ...] | None,
    ) -> tuple[str, ...]:
        """Its own measures, those of the study, or the mean, if it knows no other."""
        if "risks" in table:
            risks, where = self.risks(table["risks"], (*place, "risks")), (*place, "risks")
        elif name == "qrdqn":
            return ("mean",)
        elif shared is None:
            self.problems.add(place, "There are no `risks`, neither here nor in [study].")
            return ()
        else:
            risks, where = shared, (*place, "name")
        kinds = agents_by_name()
        for risk in risks if name is not None else ():
            try:
                kinds[str(name)].algorithm_class.check(parse(risk))
            except ValueError as error:
                hint = "" if "risks" in table else " Or give this agent `risks` of its own."
                self.problems.add(where, f"{error}{hint}")
        return risks

    # --- the grid -----------------------------------------------------------------------------

    def cells(
        self,
        environments: Sequence[Environment],
        agents: Sequence[_Agent],
        seeds: Sequence[int],
        steps: int | None,
        episodes: int | None,
    ) -> tuple[Cell, ...]:
        found: dict[str, Cell] = {}
        for env, agent in itertools.product(environments, agents):
            settings = self.settings(env, agent)
            if settings is None:
                continue
            own = agent.changes.get("total_timesteps", steps) or settings.total_timesteps
            for risk, seed in itertools.product(agent.risks, seeds):
                cell = Cell(
                    env=env.id,
                    parameters=env.parameters,
                    agent=agent.name,
                    preset=agent.preset,
                    settings=dataclasses.asdict(settings),
                    risk=risk,
                    seed=seed,
                    total_timesteps=own,
                    episodes=episodes or default_episodes(env.in_jax),
                )
                found.setdefault(cell.key, cell)
        return tuple(found.values())

    def settings(self, env: Environment, agent: _Agent) -> Settings | None:
        """All settings of an agent in an environment; what does not go together is reported."""
        kind = agents_by_name()[agent.name]
        try:
            return agent_settings(
                kind.algorithm_class, agent.preset, agent.changes, env.in_jax, None
            )
        except (TypeError, ValueError) as error:
            guilty = named_in(error, agent.changes)
            place = agent.place if guilty is None else (*agent.place, guilty)
            self.problems.add(place, error)
            return None
