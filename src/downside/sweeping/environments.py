"""The environments of a study: every combination of their parameters, each tried out."""

import itertools
import json
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from downside._registration import JAX_IDS
from downside.envs import make_jax
from downside.envs.problems import PROBLEMS, parameter_names
from downside.sweeping.lines import Path as Place
from downside.sweeping.problems import Problems, named_in
from downside.sweeping.work import import_environment
from downside.train.host import Host
from downside.train.origin import Origin


class Environment(NamedTuple):
    """One combination of parameters."""

    id: str
    parameters: dict[str, Any]
    in_jax: bool


def read_environment(
    table: Mapping[str, Any], place: Place, problems: Problems
) -> list[Environment]:
    """The environments that one table of a study stands for; what is wrong with it is reported."""
    env_id = table.get("id")
    if not isinstance(env_id, str):
        problems.add((*place, "id"), 'An environment needs an `id`, e.g. "CartPole-v1".')
        return []
    bare = env_id.rpartition(":")[2]
    try:
        import_environment(env_id)
    except Exception as error:  # a module of somebody else may raise anything
        said = f"{type(error).__name__}: {error}"
        problems.add((*place, "id"), f"The module in {env_id!r} cannot be imported: {said}.")
        return []
    try:
        if bare not in JAX_IDS:
            make_jax(bare)
    except ValueError as error:
        problems.add((*place, "id"), error)
        return []
    given = {name: value for name, value in table.items() if name != "id"}
    known = parameter_names(PROBLEMS[JAX_IDS[bare]]) if bare in JAX_IDS else tuple(given)
    problems.keys(given, place, known, bare)
    swept = {
        name: _values(name, given[name], (*place, name), problems)
        for name in given
        if name in known
    }
    out = []
    for chosen in itertools.product(*swept.values()):
        try:
            out.append(_make(env_id, dict(zip(swept, chosen, strict=True))))
        except Exception as error:  # an environment of somebody else may raise anything
            _blame(env_id, given, swept, error, place, problems)
            break
    # What is wrong keeps the study from running; agents are checked against this kind all the same.
    return out or [Environment(env_id, {}, in_jax=bare in JAX_IDS)]


def _make(env_id: str, parameters: dict[str, Any]) -> Environment:
    """The environment with these parameters, after it was made once."""
    bare = env_id.rpartition(":")[2]
    core = make_jax(bare, **parameters) if bare in JAX_IDS else None
    if core is not None:
        return Environment(env_id, dict(Origin.of(core).parameters), in_jax=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Host(bare, 1, parameters).env.close()
    return Environment(env_id, parameters, in_jax=False)


def _blame(
    env_id: str,
    given: Mapping[str, Any],
    swept: Mapping[str, list[Any]],
    error: Exception,
    place: Place,
    problems: Problems,
) -> None:
    """Reports every value that is wrong on its own; if there is none, what was wrong together."""
    before = len(problems)
    for name, values in swept.items():
        for i, value in enumerate(values):
            try:
                _make(env_id, {name: value})
            except Exception as own:
                where = (*place, name, i) if isinstance(given[name], list) else (*place, name)
                if named_in(own, [name]):  # not another one that it does not go together with
                    problems.add(where, own)
    if len(problems) == before:
        guilty = named_in(error, swept)
        problems.add(place if guilty is None else (*place, guilty), error)


def _values(name: str, given: Any, place: Place, problems: Problems) -> list[Any]:
    """The values of a parameter; the text "none" stands for None, which TOML does not have."""
    values = given if isinstance(given, list) else [given]
    if not values:
        problems.add(place, f"`{name}` has no values. Leave it out, or name some.")
    for value in values:
        try:
            json.dumps(value)
        except TypeError:
            problems.add(place, f"`{name}` must be numbers, text, or lists of them, got {value}.")
    return [None if isinstance(one, str) and one.lower() == "none" else one for one in values]
