"""The environments of a study: every combination of their parameters, each made once to check."""

import itertools
import json
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from downside._registration import JAX_IDS
from downside.agents.policy_head import PolicyHead
from downside.envs import make_jax
from downside.envs.env_spec import EnvSpec
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter
from downside.envs.registry import class_of, import_environment, is_jax_id, jax_parameters
from downside.studies.problems import KeyPath, Problems, named_in


class Environment(NamedTuple):
    """One combination of parameters."""

    id: str
    parameters: dict[str, Any]
    in_jax: bool
    discrete: bool = True
    """Whether its actions are of a Discrete space."""


def read_environment(
    table: Mapping[str, Any], path: KeyPath, problems: Problems
) -> list[Environment]:
    """The environments of one table of a study; what is wrong is added to `problems`."""
    env_id = table.get("id")
    if not isinstance(env_id, str):
        problems.add((*path, "id"), 'An environment needs an `id`, e.g. "CartPole-v1".')
        return []
    bare = env_id.rpartition(":")[2]
    try:
        import_environment(env_id)
    except Exception as error:  # a user's module may raise anything
        text = f"{type(error).__name__}: {error}"
        problems.add((*path, "id"), f"The module in {env_id!r} cannot be imported: {text}.")
        return []
    try:
        if not is_jax_id(env_id):
            make_jax(bare)
    except ValueError as error:
        problems.add((*path, "id"), error)
        return []
    given = {name: value for name, value in table.items() if name != "id"}
    known = jax_parameters(env_id)
    known = tuple(given) if known is None else known
    problems.check_keys(given, path, known, bare)
    swept = {
        name: _values(name, given[name], (*path, name), problems) for name in given if name in known
    }
    environments = []
    for chosen in itertools.product(*swept.values()):
        try:
            environments.append(_make(env_id, dict(zip(swept, chosen, strict=True))))
        except Exception as error:  # a user's environment may raise anything
            _locate(env_id, given, swept, error, path, problems)
            break
    # A problem keeps the study from running; the agents are still checked against this kind.
    return environments or [Environment(env_id, {}, in_jax=is_jax_id(env_id))]


def _make(env_id: str, parameters: dict[str, Any]) -> Environment:
    """The environment with these parameters, after making it once."""
    bare = env_id.rpartition(":")[2]
    if class_of(env_id) is not None:
        make_jax(env_id, **parameters)
        return Environment(env_id, parameters, in_jax=True)
    core = make_jax(bare, **parameters) if is_jax_id(bare) else None
    if core is not None:
        complete = dict(EnvSpec.of(core).parameters) if bare in JAX_IDS else parameters
        return Environment(env_id, complete, in_jax=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter = VectorEnvAdapter(bare, 1, parameters)
    adapter.close()
    if not adapter.num_actions:  # what AC-SRM cannot do, nobody can
        PolicyHead.of(adapter.action_space, adapter.name)
    return Environment(env_id, parameters, in_jax=False, discrete=adapter.num_actions > 0)


def _locate(
    env_id: str,
    given: Mapping[str, Any],
    swept: Mapping[str, list[Any]],
    error: Exception,
    path: KeyPath,
    problems: Problems,
) -> None:
    """Adds every value that is wrong alone; if none is, the error of the combination."""
    before = len(problems)
    for name, values in swept.items():
        for i, value in enumerate(values):
            try:
                _make(env_id, {name: value})
            except Exception as alone:
                where = (*path, name, i) if isinstance(given[name], list) else (*path, name)
                if named_in(alone, [name]):  # not a conflict with another parameter
                    problems.add(where, alone)
    if len(problems) == before:
        name = named_in(error, swept)
        problems.add(path if name is None else (*path, name), error)


def _values(name: str, given: Any, path: KeyPath, problems: Problems) -> list[Any]:
    """The values of a parameter; the text "none" stands for None, which TOML does not have."""
    values = given if isinstance(given, list) else [given]
    if not values:
        problems.add(path, f"`{name}` has no values. Leave it out, or name some.")
    for value in values:
        try:
            json.dumps(value)
        except TypeError:
            problems.add(path, f"`{name}` must be numbers, text, or lists of them, got {value}.")
    return [None if isinstance(v, str) and v.lower() == "none" else v for v in values]
