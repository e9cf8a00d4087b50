"""What the runs of a study are called: their names, and whatever the study varies."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from downside.sweeping.cells import Cell


def labels(cells: Sequence[Cell]) -> dict[str, tuple[str, str]]:
    """By key, what environment and agent are called: the name, and what varies under it."""
    parameters = _varying((one.env, one.parameters) for one in cells)
    told = [(one.agent, {**one.settings, "total_timesteps": one.total_timesteps}) for one in cells]
    # The same agent has other settings where it cannot simulate: that is no choice of the study.
    settings = _varying(((one.env, name), own) for one, (name, own) in zip(cells, told, strict=True))
    return {
        one.key: (
            _label(one.bare_id.rpartition("/")[2], one.parameters, parameters[one.env]),
            _label(name, own, settings[one.env, name]),
        )
        for one, (name, own) in zip(cells, told, strict=True)
    }


def _varying(given: Iterable[tuple[Any, Mapping[str, Any]]]) -> dict[Any, set[str]]:
    """For each owner the names that do not have the same value everywhere."""
    first: dict[Any, dict[str, Any]] = {}
    out: dict[Any, set[str]] = {}
    for owner, values in given:
        known = first.setdefault(owner, dict(values))
        names = {*known, *values}
        out.setdefault(owner, set()).update(
            name for name in names if known.get(name) != values.get(name)
        )
    return out


def _label(name: str, values: Mapping[str, Any], varying: set[str]) -> str:
    return " ".join([name, *(f"{one}={_text(values.get(one))}" for one in sorted(varying))])


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "x".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
