"""What several commands need."""

import json
from typing import Any

from downside._names import did_you_mean


def as_parameters(pairs: tuple[str, ...]) -> dict[str, Any]:
    """name=value pairs; values are numbers, none, or text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"`params` must be given as name=value, got {pair!r}.")
        out[name] = _value(text)
    return out


def _value(text: str) -> Any:
    if text.lower() == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def agent_class(name: str) -> Any:
    """The agent that a user means."""
    from downside.train.loading import agents_by_name

    kinds = agents_by_name()
    if name.lower() not in kinds:
        raise ValueError(unknown("agent", name, tuple(kinds)))
    return kinds[name.lower()]


def changed_settings(command: Any) -> dict[str, Any]:
    """The settings that were given as flags of a command (`downside.cli.settings`)."""
    given = {name: getattr(command, name) for name in command.changes}
    return {name: value for name, value in given.items() if value is not None}


def unknown(kind: str, name: str, known: tuple[str, ...]) -> str:
    """A sentence on a name that does not exist, with the closest one that does."""
    hint = did_you_mean(name, known) or f" There are: {', '.join(known)}."
    return f"There is no {kind} {name!r}.{hint}"


def print_json(data: Any) -> None:
    """Prints data for other programs."""
    print(json.dumps(data, indent=2))  # noqa: T201
