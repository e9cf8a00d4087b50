"""The description of a study, read and checked before anything starts.

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
from downside.studies.agent_settings import SettingsOfAgents
from downside.studies.agent_tables import AgentEntry, read_agents, read_risks
from downside.studies.environments import Environment, read_environment
from downside.studies.problems import KeyPath, Problems, StudyError
from downside.studies.spec import RunSpec, import_name
from downside.train.backends.gymnasium.backend import GymBackend
from downside.train.backends.jax.backend import JaxBackend
from downside.train.checkpoints.loading import agents_by_name

_STUDY = ("name", "risks", "seeds", "total_timesteps", "episodes", "measures", "callback")
_MEASURES = ("mean", "cvar(0.2)")
"""Measures of every run, if the study has none."""
_MAX_BYTES = 4 * 2**20
"""Bytes of a study's file."""
_LARGEST = 2**62
_MAX_SEEDS = 1_000_000
_MAX_DEPTH = 20
"""How deep its tables and lists may be nested."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study without errors."""

    name: str
    runs: tuple[RunSpec, ...]
    """The runs, those that can share a compiled program next to each other."""
    measures: tuple[str, ...]
    """What every run is evaluated by, beside its own measure."""
    text: str
    """The study as it was written; JSON if it comes from Python."""

    def save(self, folder: Path) -> None:
        """Writes a copy into the folder."""
        suffix = "json" if self.text.startswith("{") else "toml"
        write_text(folder / f"study.{suffix}", self.text)


def read_study(source: str | Path | Mapping[str, Any]) -> Study:
    """Reads a study from a TOML file or a dictionary of the same shape.

    Raises:
        StudyError: with everything that is wrong with it, each with the path of its key.
    """
    if isinstance(source, Mapping):
        try:
            text = json.dumps(source, indent=2, default=str) + "\n"
        except (ValueError, RecursionError) as error:
            raise StudyError(f"the study cannot be written as JSON: {error}.") from error
        return _Reader(dict(source), Problems(), text).read()
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no study {path}. It is a TOML file; see docs/how-to/sweeps.md."
        )
    if path.stat().st_size > _MAX_BYTES:
        raise StudyError(f"{path} has more than {_MAX_BYTES:,} bytes; it is no study.")
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise StudyError(f"{path} is no text in UTF-8: {error}.") from error
    except (ValueError, RecursionError) as error:  # also nested too deeply, or a huge number
        raise StudyError(
            f"the study is no TOML; nothing was started.\n{path.name}: {error}."
        ) from error
    return _Reader(table, Problems(path.name), text).read()


def _wrong_number(value: Any, path: KeyPath) -> KeyPath | None:
    """The place of the first whole number that no number of a computer holds, or of what is nested
    too deeply."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST:
        return path
    if isinstance(value, Mapping | list) and len(path) > _MAX_DEPTH:
        return path
    if isinstance(value, Mapping):
        pairs = value.items()
    else:
        pairs = enumerate(value) if isinstance(value, list) else ()
    return next((found for k, v in pairs if (found := _wrong_number(v, (*path, k)))), None)


class _Reader:
    def __init__(self, table: Mapping[str, Any], problems: Problems, text: str):
        self.table, self.problems, self.text = table, problems, text

    def read(self) -> Study:
        if (place := _wrong_number(self.table, ())) is not None:
            self.problems.add(
                place[:_MAX_DEPTH],
                f"Numbers must be in [-{_LARGEST:,}, {_LARGEST:,}], and lists nested at most "
                f"{_MAX_DEPTH} deep.",
            )
            self.problems.check()
        self.problems.check_keys(self.table, (), ("study", "environments", "agents"), "A study")
        study = self.table.get("study", {})
        if not isinstance(study, Mapping):
            self.problems.add(("study",), f"`study` must be a table, got {study!r}.")
            study = {}
        self.problems.check_keys(study, ("study",), _STUDY, "[study]")
        name = study.get("name")
        if "name" not in study:
            self.problems.add(("study",), '[study] needs a `name`, e.g. "tails".')
        elif not isinstance(name, str) or not _NAME.fullmatch(name):
            self.problems.add(
                ("study", "name"),
                "`name` must be letters, digits and any of . _ + -, for it becomes a folder; got "
                f"{name!r}.",
            )
        seeds = self.seeds(study.get("seeds", 1))
        steps = self.whole_number(study, "total_timesteps", least=1)
        episodes = self.whole_number(study, "episodes", least=2)
        measures, shared = _MEASURES, None
        if "measures" in study:
            measures = read_risks(study["measures"], ("study", "measures"), self.problems)
        if "risks" in study:
            shared = read_risks(study["risks"], ("study", "risks"), self.problems)
        callback = self.callback(study.get("callback"))
        environments = [
            environment
            for path, table in self.tables("environments")
            for environment in read_environment(table, path, self.problems)
        ]
        environments = self.check_actions(environments)
        agents = [
            agent
            for path, table in self.tables("agents")
            for agent in read_agents(table, path, shared, self.problems)
        ]
        runs = self.runs(environments, agents, seeds, steps, episodes, callback)
        self.problems.check()
        return Study(name=str(name), runs=runs, measures=measures, text=self.text)

    # --- parts --------------------------------------------------------------------------------

    def tables(self, name: str) -> list[tuple[KeyPath, Mapping[str, Any]]]:
        tables = self.table.get(name, [])
        if not isinstance(tables, Sequence) or not all(isinstance(t, Mapping) for t in tables):
            self.problems.add((name,), f"`{name}` must be tables, each under [[{name}]].")
            return []
        if not tables:
            self.problems.add((name,), f"A study needs at least one [[{name}]].")
        return [((name, i), table) for i, table in enumerate(tables)]

    def whole_number(self, table: Mapping[str, Any], name: str, least: int) -> int | None:
        value = table.get(name)
        if value is not None and (not _is_whole(value) or value < least):
            self.problems.add(
                ("study", name), f"`{name}` must be a whole number >= {least}, got {value!r}."
            )
            return None
        return value

    def seeds(self, value: Any) -> tuple[int, ...]:
        if _is_whole(value) and 1 <= value <= _MAX_SEEDS:
            return tuple(range(value))
        if isinstance(value, Sequence) and value and not isinstance(value, str):
            wrong = [i for i, seed in enumerate(value) if not _is_whole(seed) or seed < 0]
            for i in wrong:
                self.problems.add(
                    ("study", "seeds", i),
                    f"A seed must be a whole number >= 0, got {value[i]!r}.",
                )
            return () if wrong else tuple(dict.fromkeys(value))
        self.problems.add(
            ("study", "seeds"),
            f"`seeds` must be how many, a whole number >= 1 (and <= {_MAX_SEEDS:,}), or a list of "
            f"them, got {value!r}.",
        )
        return ()

    def callback(self, value: Any) -> str | None:
        if value is None:
            return None
        try:
            import_name(str(value))
        except Exception as error:  # a user's module may raise anything
            text = f"{type(error).__name__}: {error}"
            self.problems.add(("study", "callback"), f"{value!r} cannot be imported: {text}.")
        return str(value)

    # --- the grid -----------------------------------------------------------------------------

    def runs(
        self,
        environments: Sequence[Environment],
        agents: Sequence[AgentEntry],
        seeds: Sequence[int],
        steps: int | None,
        episodes: int | None,
        callback: str | None,
    ) -> tuple[RunSpec, ...]:
        runs: dict[str, RunSpec] = {}
        settings_of = SettingsOfAgents(self.problems)
        for env, agent in itertools.product(environments, agents):
            settings = settings_of.of(env, agent, steps)
            if settings is None:
                continue
            # An agent's `updates` count more than the steps that the study has for all agents.
            shared = None if "updates" in agent.changes else steps
            length = agent.changes.get("total_timesteps") or shared or settings.total_timesteps
            for risk in agent.risks:
                first = RunSpec(
                    env=env.id,
                    parameters=env.parameters,
                    agent=agent.name,
                    preset=agent.preset,
                    settings=dataclasses.asdict(settings),
                    risk=risk,
                    seed=0,
                    total_timesteps=length,
                    episodes=episodes or _backend(env.in_jax).default_episodes,
                    callback=callback,
                )
                for run in map(first.with_seed, seeds):
                    runs.setdefault(run.key, run)
        return tuple(runs.values())

    def check_actions(self, environments: list[Environment]) -> list[Environment]:
        """Reports environments in which no agent of the study can act; agents are then checked
        as if they could."""
        known = agents_by_name()
        tables = self.table.get("agents", ())
        names = [table.get("name") for table in tables if isinstance(table, Mapping)]
        backends = [known[name].gym_backend for name in names if name in known]
        if any(backend not in (None, GymBackend) for backend in backends):
            return environments
        places = {table.get("id"): path for path, table in self.tables("environments")}
        for env_id in {env.id for env in environments if not env.discrete}:
            self.problems.add(
                places[env_id],
                "`env` must have discrete actions for the agents of this study. Use acsrm, which "
                "takes any.",
            )
        return [env._replace(discrete=True) for env in environments]


def _backend(in_jax: bool) -> type[JaxBackend] | type[GymBackend]:
    return JaxBackend if in_jax else GymBackend


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
