"""The agents of a study: every combination of the settings in an [[agents]] table."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from downside._names import did_you_mean
from downside.agents import (
    GymnasiumSettings,
    OnPolicySettings,
    PathwiseSettings,
    Settings,
    SimulatorSettings,
)
from downside.risk import as_dial, parse
from downside.studies.problems import KeyPath, Problems
from downside.train.checkpoints.loading import agents_by_name
from downside.train.config import PRESETS, checked

_SETTINGS: Mapping[str, type[Settings]] = {
    field.name: kind
    for kind in (OnPolicySettings, PathwiseSettings, SimulatorSettings, GymnasiumSettings)
    for field in dataclasses.fields(kind)
}
"""All settings, each with a class that has it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentEntry:
    """One combination of an agent's settings, without the environment."""

    name: str
    preset: str
    changes: Mapping[str, Any]
    risks: tuple[str, ...]
    path: KeyPath


def read_agents(
    table: Mapping[str, Any], path: KeyPath, shared: tuple[str, ...] | None, problems: Problems
) -> list[AgentEntry]:
    """Every combination of the settings in one table."""
    before = len(problems)
    known = agents_by_name()
    name = table.get("name")
    if not isinstance(name, str) or name not in known:
        choices = ", ".join(known)
        hint = did_you_mean(str(name), known)
        if isinstance(name, list):
            hint = " For several agents write [[agents]] several times."
        problems.add(
            (*path, "name"),
            f"`name` must be one of {choices}, got {name!r}.{hint}"
            if "name" in table
            else f"An agent needs a `name`: one of {choices}.",
        )
        name = None
    problems.check_keys(table, path, ("name", "preset", "risks", *_SETTINGS), "An agent")
    swept = {
        key: _values(key, value, (*path, key), _owner(name, key), problems)
        for key, value in table.items()
        if key in ("preset", *_SETTINGS)
    }
    risks = _agent_risks(name, table, path, shared, problems)
    if len(problems) > before or name is None:
        return []
    agents = []
    for chosen in itertools.product(*swept.values()):
        changes = dict(zip(swept, chosen, strict=True))
        preset = changes.pop("preset", "default")
        agents.append(AgentEntry(name=name, preset=preset, changes=changes, risks=risks, path=path))
    return agents


def read_risks(value: Any, path: KeyPath, problems: Problems) -> tuple[str, ...]:
    """Measures in their canonical spelling."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not texts:
        problems.add(path, f'`{path[-1]}` must be measures, e.g. ["mean"]; got {value}.')
        return ()
    risks = []
    for i, text in enumerate(texts):
        try:
            if as_dial(text) is not None:
                raise ValueError(
                    f"A study takes a measure for each run, got {str(text)!r}. `downside frontier "
                    "ENV --dial` trains a dial and values it at many measures."
                )
            risks.append(str(parse(text)))
        except (TypeError, ValueError) as error:
            problems.add(path if isinstance(value, str) else (*path, i), error)
    return tuple(dict.fromkeys(risks))


def _values(
    name: str, given: Any, path: KeyPath, kind: type[Settings], problems: Problems
) -> list[Any]:
    """The values of a setting that `kind` has, each checked alone."""
    is_swept = isinstance(given, list)
    if name == "hidden_sizes":  # a list itself: a list of lists is swept
        is_swept = is_swept and any(isinstance(value, list) for value in given)
    values = given if is_swept else [given]
    if not values:
        problems.add(path, f"`{name}` has no values. Leave it out, or name some.")
    valid = []
    for i, value in enumerate(values):
        try:
            if name == "preset" and (not isinstance(value, str) or value not in PRESETS):
                choices = ", ".join(PRESETS)
                raise ValueError(f"`preset` must be one of {choices}, got {value!r}.")
            valid.append(value if name == "preset" else checked(kind, name, value))
        except ValueError as error:
            problems.add((*path, i) if is_swept else path, error)
    return valid


def _agent_risks(
    name: str | None,
    table: Mapping[str, Any],
    path: KeyPath,
    shared: tuple[str, ...] | None,
    problems: Problems,
) -> tuple[str, ...]:
    """The measures of an agent: its own, those of the study, or the mean for QR-DQN."""
    if "risks" in table:
        risks, where = read_risks(table["risks"], (*path, "risks"), problems), (*path, "risks")
    elif name == "qrdqn":
        return ("mean",)
    elif shared is None:
        problems.add(path, "There are no `risks`, neither here nor in [study].")
        return ()
    else:
        risks, where = shared, (*path, "name")
    for risk in risks if name is not None else ():
        try:
            agents_by_name()[str(name)].algorithm_class.check(parse(risk))
        except ValueError as error:
            hint = "" if "risks" in table else " Or give this agent its own `risks`."
            problems.add(where, f"{error}{hint}")
    return risks


def _owner(agent: str | None, setting: str) -> type[Settings]:
    """The settings class that says which values an agent's setting may have."""
    known = agents_by_name()
    backends = (known[agent].gym_backend, known[agent].jax_backend) if agent in known else ()
    if None in backends:
        (kind,) = (backend.settings_class for backend in backends if backend is not None)
        if setting in {field.name for field in dataclasses.fields(kind)}:
            return kind
    return _SETTINGS.get(setting, Settings)
