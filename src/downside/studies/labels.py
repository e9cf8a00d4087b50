"""Labels of runs: environment and agent, with whatever the study varies."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from downside.studies.spec import RunSpec


def labels(runs: Sequence[RunSpec]) -> dict[str, tuple[str, str]]:
    """By key, the labels of environment and agent: the name, and the values that vary."""
    changes = {
        run.key: {**run.settings, "total_timesteps": run.total_timesteps, "preset": run.preset}
        for run in runs
    }
    parameters = _varying((run.env, run.parameters) for run in runs)
    presets = _varying(((run.env, run.agent), {"preset": run.preset}) for run in runs)
    # Within a preset and an environment: between them many settings differ that nobody chose.
    settings = _varying(((run.env, run.agent, run.preset), changes[run.key]) for run in runs)
    short = {run.env: run.bare_id.rpartition("/")[2] for run in runs}
    # Two environments with the same short name get their whole id.
    names = {
        env: name if list(short.values()).count(name) == 1 else env for env, name in short.items()
    }
    return {
        run.key: (
            _label(names[run.env], run.parameters, parameters[run.env]),
            _label(
                run.agent,
                changes[run.key],
                presets[run.env, run.agent] | settings[run.env, run.agent, run.preset],
            ),
        )
        for run in runs
    }


def _varying(given: Iterable[tuple[Any, Mapping[str, Any]]]) -> dict[Any, set[str]]:
    """For each owner, the names that have more than one value."""
    first: dict[Any, dict[str, Any]] = {}
    varying: dict[Any, set[str]] = {}
    for owner, values in given:
        known = first.setdefault(owner, dict(values))
        names = {*known, *values}
        varying.setdefault(owner, set()).update(
            name for name in names if known.get(name) != values.get(name)
        )
    return varying


def _label(name: str, values: Mapping[str, Any], varying: set[str]) -> str:
    return " ".join([name, *(f"{key}={_text(values.get(key))}" for key in sorted(varying))])


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "x".join(map(_text, value))
    return repr(value) if isinstance(value, float) else str(value)
