"""From a checkpoint to an agent. Classes are looked up among those that are defined; nothing is
imported or executed because a file says so."""

import dataclasses
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym

from downside.agents import AbstractAlgorithm, Settings
from downside.envs.gymnasium.sb3_vector_env import from_sb3
from downside.envs.registry import EnvironmentNotFoundError, is_jax_id
from downside.risk import AbstractSpectralRisk, Dial, RiskSyntaxError, as_risk, parse
from downside.train import family  # noqa: F401  (defines the public agents)
from downside.train.agent import Agent
from downside.train.checkpoints.checkpoint import (
    CheckpointError,
    MissingPartError,
    from_arrays,
    read,
)
from downside.train.checkpoints.schema import MAX_GYMNASIUM_ENVS, check_dial
from downside.train.dial import FoundTarget, stand
from downside.train.monitor import saved_in

_MAX_SIZE = 10_000_000
"""Of an environment of ours that is made because a file says so."""


def agents_by_name() -> dict[str, type[Agent]]:
    """The agents by the names that files and commands have for them: qrsrm and so on."""
    return {name.lower(): kind for name, kind in Agent.classes.items()}


def load(
    path: str | Path,
    env: Any = None,
    *,
    risk: AbstractSpectralRisk | str | None = None,
    network: Any = None,
    tensorboard_log: str | Path | None = None,
) -> Agent:
    """The agent that `agent.save(path)` wrote, as it was: it acts, and training can go on.

    Arguments:
        path: the file, with or without its suffix; or a run folder, whose latest checkpoint that
            is whole is taken.
        env: the environment, if it is not one that an id and parameters make again.
        risk: the measure, if it was one of your own that has no text.
        network: the network, if it was one of your own.
        tensorboard_log: where further training writes its log.

    An agent of your own must be defined before: import its module.
    """
    options = {"risk": risk, "network": network, "tensorboard_log": tensorboard_log}
    env = from_sb3(env)
    if Path(path).is_dir():
        return _load_latest(Path(path), env, options)
    return _load_file(path, env, **options)


def _load_file(
    path: str | Path,
    env: Any,
    *,
    risk: AbstractSpectralRisk | str | None,
    network: Any,
    tensorboard_log: str | Path | None,
) -> Agent:
    arrays, about = read(path)
    agent = _make(_class(about["agent"], path), path, env, about, risk, network)
    agent.preset, agent.tensorboard_log = about["preset"], tensorboard_log
    driver, levels = agent._driver, about["levels"]
    try:
        if levels != driver.algorithm.objective.levels.shape[0]:  # trained together with others
            driver.algorithm = _padded(agent, levels, path)
        driver.spec = dataclasses.replace(driver.new_spec(1), chunks=about["chunks"])
        skeleton = driver.backend.skeleton(driver.spec, driver.algorithm)
        driver.state = driver.backend.from_tree(from_arrays(skeleton, arrays, str(path)))
        if agent.family is not None:
            stand(agent, parse(about["risk"]) if risk is None else as_risk(risk))
            targets = about["dial"]["targets"]
            agent.targets = {name: FoundTarget(*numbers) for name, numbers in targets.items()}
    except CheckpointError as error:
        if env is None or isinstance(error, MissingPartError):
            raise
        raise CheckpointError(_other_environment(path, about, agent, error)) from error
    except Exception as error:  # settings that fit no memory, or not each other
        raise CheckpointError(
            f"The agent in {path} cannot be made again: {type(error).__name__}: {error}"
        ) from error
    driver.fitted, driver.history = about["fitted"], about["history"]
    return agent


def _other_environment(
    path: str | Path, about: dict[str, Any], agent: Agent, error: Exception
) -> str:
    """What to say where an agent does not fit the environment that was passed: that first."""
    backend = agent._driver.backend
    size, count = backend.shown_size, backend.num_actions
    actions = f" and {count} actions" if count else ""
    return (
        f"`env` must be an environment like the one that the agent in {path} was trained in, "
        f"{about['env']['description'][:200]}, got {agent.env_spec}, with {size} numbers to see"
        f"{actions}. In detail: {error}"
    )


def _padded(agent: Agent, levels: int, path: str | Path) -> AbstractAlgorithm:
    """The algorithm with its measure in as many numbers as in training."""
    least = agent._driver.algorithm.objective.levels.shape[0]
    if levels < least:
        raise CheckpointError(f"{path} has a measure of {levels} levels, but it has {least}.")
    return agent.algorithm_class.make(agent.risk, agent.settings, levels)


def _class(name: str, path: str | Path) -> type[Agent]:
    """The class of an agent, by the name in a file."""
    known = Agent.classes
    if name in known:
        return known[name]
    module, _, short = name.rpartition(":")
    # The same file under another name, such as __main__; never one of ours for one of yours.
    same = [kind for full, kind in known.items() if full.endswith(f":{short}")]
    if len(same) == 1 and module:
        return same[0]
    remedy = f"import {module}" if module else "import the module that defines it"
    raise MissingPartError(
        f"{path} holds an agent of class {name!r}, which is none of {', '.join(known)}. If it is "
        f"one of your own, {remedy} before loading it (on the command line: --import MODULE)."
    )


def _dial(about: Any, path: str | Path) -> Dial:
    """The family of a dial."""
    try:
        check_dial(about, "dial")
        return Dial(about["levels"], about["start"])
    except ValueError as error:
        raise CheckpointError(f"{path} holds a dial that is none: {error}") from error


def _make(
    kind: type[Agent],
    path: str | Path,
    env: Any,
    about: dict[str, Any],
    risk: AbstractSpectralRisk | Dial | str | None,
    network: Any,
) -> Agent:
    """An untrained agent with what the checkpoint says."""
    spec, parameters = about["env"], None
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in about["settings"].items()
    }
    unknown = settings.keys() - _setting_names(Settings)
    if unknown:  # an argument of an agent may be something else than a setting
        raise CheckpointError(
            f"The agent in {path} cannot be made again: There is no setting `{min(unknown)}`."
        )
    if env is None:
        _check_id(spec, path)
        env, parameters = spec["id"], spec["parameters"]
        in_jax = is_jax_id(env)
        if in_jax:
            _check_size(parameters, path)
        count = settings.get("num_envs", 1)
        if not in_jax and isinstance(count, int) and count > MAX_GYMNASIUM_ENVS:
            raise MissingPartError(
                f"`env` must be given: {path} was trained in {count:,} environments side by side, "
                f"and at most {MAX_GYMNASIUM_ENVS:,} are made because a file says so. Pass a "
                "vector environment."
            )
    if risk is None:
        try:
            risk = parse(about["risk"])
        except RiskSyntaxError as error:
            raise MissingPartError(
                f"`risk` must be given: {path} was trained for {about['risk'][:200]}, which no "
                "text makes again."
            ) from error
    if "dial" in about:
        risk = _dial(about["dial"], path)
    try:
        if isinstance(env, str) and spec["num_envs"] is not None and parameters is not None:
            env, parameters = _vector(spec), None
        if isinstance(env, gym.Env | gym.vector.VectorEnv):
            settings.pop("num_envs", None)
        return kind(
            env, risk=risk, seed=about["seed"], env_kwargs=parameters, network=network, **settings
        )
    except Exception as error:  # a user's environment or network may raise anything
        if isinstance(error, EnvironmentNotFoundError):
            raise MissingPartError(
                f"{path} was trained in {spec['id']}, which is not registered here. Import the "
                "module that registers it (on the command line: --import MODULE), or pass `env`."
            ) from error
        raise CheckpointError(f"The agent in {path} cannot be made again: {error}") from error


def _setting_names(kind: type[Settings]) -> set[str]:
    """The names of all settings that any agent has."""
    names = {field.name for field in dataclasses.fields(kind)}
    return names.union(*map(_setting_names, kind.__subclasses__()))


def _check_id(spec: dict[str, Any], path: str | Path) -> None:
    """Refuses an environment for which something would have to be imported."""
    if spec["id"] is None:
        raise MissingPartError(
            f"`env` must be given: {path} was trained in {spec['description'][:200]}, which no id "
            "makes again. Pass the environment."
        )
    module, colon, _ = spec["id"].rpartition(":")  # Gymnasium imports what stands before the colon
    if colon and module not in sys.modules:
        raise MissingPartError(
            f"{path} names the environment {spec['id']!r}, for which the module {module} would be "
            "imported. Nothing is imported because a file says so: import it yourself (on the "
            f"command line: --import {module}), or pass `env`."
        )


def _check_size(parameters: dict[str, Any], path: str | Path) -> None:
    """Refuses one of our environments that is too large to be made: its size is at most the product
    of its whole numbers, such as periods and trades."""
    sizes = [value for value in parameters.values() if type(value) is int and value > 1]
    if math.prod(sizes) > _MAX_SIZE:
        raise CheckpointError(
            f"The environment in {path} cannot be made again: the product of its whole numbers, "
            f"{', '.join(map(str, sizes))}, must be at most {_MAX_SIZE:,}."
        )


def _vector(spec: dict[str, Any]) -> gym.vector.VectorEnv:
    return gym.make_vec(
        spec["id"],
        num_envs=spec["num_envs"],
        vectorization_mode="sync",
        **spec["parameters"],
    )


def _load_latest(folder: Path, env: Any, options: dict[str, Any]) -> Agent:
    """From the latest checkpoint that is whole; a damaged one is passed over with a warning."""
    paths = saved_in(folder)
    if not paths:
        raise FileNotFoundError(f"There is no checkpoint in {folder}.")
    for path in paths[:-1]:
        try:
            return _load_file(path, env, **options)
        except MissingPartError:
            raise  # it would be missing from the one before it, too
        except (CheckpointError, OSError) as error:
            warnings.warn(f"{error} Taking the one before it.", stacklevel=3)
    return _load_file(paths[-1], env, **options)
