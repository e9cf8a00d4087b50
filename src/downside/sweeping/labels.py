"""What the runs of a study are called: their names, and whatever the study varies."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from downside.sweeping.cells import Cell


def labels(cells: Sequence[Cell]) -> dict[str, tuple[str, str]]:
    """By key, what environment and agent are called: the name, and what varies under it."""
    told = {
        one.key: {**one.settings, "total_timesteps": one.total_timesteps, "preset": one.preset}
        for one in cells
    }
    parameters = _varying((one.env, one.parameters) for one in cells)
    presets = _varying(((one.env, one.agent), {"preset": one.preset}) for one in cells)
    # Presets differ in much, and environments in which of it can be had: neither is to be listed.
    settings = _varying(((one.env, one.agent, one.preset), told[one.key]) for one in cells)
    short = {one.env: one.bare_id.rpartition("/")[2] for one in cells}
    # Two environments of one name are told apart by all of it.
    names = {
        env: name if list(short.values()).count(name) == 1 else env for env, name in short.items()
    }
    return {
        one.key: (
            _label(names[one.env], one.parameters, parameters[one.env]),
            _label(
                one.agent,
                told[one.key],
                presets[one.env, one.agent] | settings[one.env, one.agent, one.preset],
            ),
        )
        for one in cells
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
    return repr(value) if isinstance(value, float) else str(value)
