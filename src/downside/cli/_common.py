"""What several commands need."""

import importlib
import json
from typing import Any

import tyro

from downside._names import did_you_mean

STEPS: Any = tyro.conf.arg(aliases=["--total-timesteps", "--timesteps"])
"""`--steps` also goes by the name of the argument of `learn`, and by that of stable-baselines3."""


def as_parameters(pairs: tuple[str, ...]) -> dict[str, Any]:
    """name=value pairs; values are numbers, true, false, none, or text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"`params` must be given as name=value, got {pair!r}.")
        out[name] = _value(text)
    return out


def _value(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def agent_class(name: str) -> Any:
    """The agent that a user means: one of ours by name, or `module:Class` for one of theirs."""
    from downside.train import Agent
    from downside.train.checkpoints.loading import agents_by_name

    module, colon, attribute = name.partition(":")
    if colon:
        kind = getattr(import_module(module), attribute, None)
        if not (isinstance(kind, type) and issubclass(kind, Agent)):
            raise ValueError(
                f"`agent` must be the name of an agent or module:Class, got {name!r}: {module} has "
                f"no subclass of ds.Agent of that name."
            )
        return kind
    kinds = agents_by_name()
    if name.lower() not in kinds:
        raise ValueError(unknown("agent", name, tuple(kinds)))
    return kinds[name.lower()]


def import_module(name: str) -> Any:
    """A module of the user's, from the present folder or from what is installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0] and error.name != name:
            raise
        raise ValueError(
            f"There is no module {name!r} in this folder or among the installed packages."
        ) from error


def changed_settings(command: Any) -> dict[str, Any]:
    """The settings that were given as flags of a command (`downside.cli.settings`)."""
    given = {name: getattr(command, name) for name in command.changes}
    return {name: value for name, value in given.items() if value is not None}


def unknown(kind: str, name: str, known: tuple[str, ...]) -> str:
    """A sentence on a name that does not exist, with the closest one that does."""
    hint = did_you_mean(name, known) or f" There are: {', '.join(known)}."
    return f"There is no {kind} {name!r}.{hint}"


def print_next(*commands: str) -> None:
    """Says what to do next."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for number, command in enumerate(commands):
        console.print("Next: " if number == 0 else "   or ", end="", markup=False)
        console.print(command, style="bold", markup=False)


def print_json(data: Any) -> None:
    """Prints data for other programs."""
    print(json.dumps(data, indent=2))  # noqa: T201
