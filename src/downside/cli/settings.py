"""A flag for every setting that the agent has in the environment; left out, the preset's value
holds."""

import dataclasses
import re
from typing import Annotated, Any, get_type_hints

import tyro

from downside.agents import (
    GymnasiumSettings,
    OnPolicySettings,
    PathwiseSettings,
    Settings,
    SimulatorSettings,
)
from downside.agents._fields import docstrings
from downside.cli._common import agent_class
from downside.envs.registry import import_environment, is_jax_id
from downside.risk import as_dial
from downside.train.backends.gymnasium.adapting import AN_EXAMPLE
from downside.train.config import resolve, unknown_setting

_VERSIONED = re.compile(r"[^-=].*-v\d+")
"""What looks like the id of an environment."""


def with_settings(commands: Any, arguments: list[str]) -> Any:
    """The union of commands, those that have `changes` replaced by commands with a flag for every
    setting of the agent and the environment in `arguments`, which shows the default it will get
    there."""
    kind = _kind(arguments[1:])
    _check_flags(kind, arguments)
    defaults = _defaults(kind, arguments)
    where = "default in environments written in JAX" if kind is Settings else "default here"
    short = _short_defaults(kind, arguments, defaults)
    hints, texts = get_type_hints(kind), docstrings(kind)
    fields = [
        (
            field.name,
            Annotated[
                hints[field.name] | None,
                tyro.conf.arg(
                    help=texts[field.name],
                    help_behavior_hint=f"({where}: {_shown(field.name, defaults, short)})",
                ),
            ],
            dataclasses.field(default=None),
        )
        for field in dataclasses.fields(kind)
        if field.name != "total_timesteps"  # --steps
    ]
    names = tuple(name for name, _, _ in fields)
    union: Any = None
    for part in commands.__args__:
        command, metadata = part.__origin__, part.__metadata__
        if hasattr(command, "changes"):
            namespace = {"changes": names, "__doc__": command.__doc__}
            command = dataclasses.make_dataclass(
                command.__name__, fields, bases=(command,), frozen=True, namespace=namespace
            )
        annotated: Any = Annotated[command, *metadata]
        union = annotated if union is None else union | annotated
    return union


def _kind(arguments: list[str]) -> type[Settings]:
    """Which settings the agent has in the environment, whose id comes first, or behind flags."""
    agent = _agent(arguments)
    if agent is not None and None in (agent.gym_backend, agent.jax_backend):
        return (agent.gym_backend or agent.jax_backend).settings_class  # the same everywhere
    ids = [a for a in arguments if _VERSIONED.fullmatch(a)] or [
        a for a in arguments[:1] if not a.startswith("-")
    ]
    if not ids:  # no environment yet: what every environment has
        return Settings
    if not _is_in_jax(ids[0]):
        return GymnasiumSettings if agent is None else agent.gym_backend.settings_class
    return SimulatorSettings if agent is None else agent.jax_backend.settings_class


def _is_in_jax(env_id: str) -> bool:
    try:
        import_environment(env_id)
    except Exception:  # the command itself will say what is wrong
        return False
    return is_jax_id(env_id)


def _agent(arguments: list[str]) -> Any:
    """The class of the agent; None if there is none of that name: the command will say so."""
    try:
        return agent_class(
            _flag(arguments, "--agent", "pgsrm" if "--dial" in arguments else "qrsrm")
        )
    except (ValueError, TypeError, ImportError):
        return None


def _check_flags(kind: type[Settings], arguments: list[str]) -> None:
    """Refuses the flag of a setting that only other environments or agents have."""
    kinds = (SimulatorSettings, GymnasiumSettings, PathwiseSettings, OnPolicySettings)
    every = {field.name for other in kinds for field in dataclasses.fields(other)}
    elsewhere = every - {field.name for field in dataclasses.fields(kind)}
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--").replace("-", "_")
        if argument.startswith("--") and name in elsewhere and kind is not Settings:
            raise ValueError(unknown_setting(name, kind))


def _defaults(kind: type[Settings], arguments: list[str]) -> Settings:
    """The settings that the agent will get without further flags."""
    if kind is Settings:
        return SimulatorSettings()
    agent = _agent(arguments)
    try:
        assert agent is not None
        is_dial = "--dial" in arguments or as_dial(_flag(arguments, "--risk", "")) is not None
        algorithm = agent.dial_algorithm if is_dial else agent.algorithm_class
        assert algorithm is not None
        return resolve(algorithm, kind, _flag(arguments, "--preset", "default"), {})
    except (AssertionError, ValueError, TypeError):  # the command itself will say what is wrong
        return kind()


def _short_defaults(kind: type[Settings], arguments: list[str], defaults: Settings) -> Settings:
    """The settings that the agent will get if the warm-up shows that episodes are short."""
    agent = _agent(arguments)
    preset = _flag(arguments, "--preset", "default")
    kinds = (GymnasiumSettings, OnPolicySettings)
    if kind not in kinds or agent is None or preset != "default":
        return defaults
    return resolve(agent.algorithm_class, kind, preset, {}, warm_up=AN_EXAMPLE)


def _shown(name: str, defaults: Settings, short: Settings) -> str:
    value, other = getattr(defaults, name), getattr(short, name)
    return f"{value}" if value == other else f"{value}; where all episodes are short: {other}"


def _flag(arguments: list[str], name: str, default: str) -> str:
    for i, argument in enumerate(arguments):
        if argument == name and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return default
