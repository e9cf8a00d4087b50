"""From a checkpoint to an agent. Classes are looked up by name among ours; nothing is executed."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym

from downside.agents import Settings
from downside.risk import AbstractSpectralRisk, RiskSyntaxError, parse
from downside.train.agent import QRDQN, QRSRM, Agent, QRCVaR, QRiCVaR
from downside.train.callbacks import saved_in
from downside.train.checkpoint import CheckpointError, from_arrays, read
from downside.train.program import Program

AGENTS: dict[str, type[Agent]] = {one.__name__: one for one in (QRSRM, QRCVaR, QRiCVaR, QRDQN)}


def agents_by_name() -> dict[str, type[Agent]]:
    """The agents by the names that files and commands have for them: qrsrm and so on."""
    return {name.lower(): kind for name, kind in AGENTS.items()}


def load(
    path: str | Path,
    env: Any = None,
    *,
    risk: AbstractSpectralRisk | str | None = None,
    network: Any = None,
    tensorboard_log: str | Path | None = None,
    own: type[Agent] | None = None,
) -> Agent:
    """The agent that `agent.save(path)` wrote, as it was: it acts, and training can go on.

    Arguments:
        path: the file, with or without its suffix; or a run folder, whose latest checkpoint that
            is whole is taken.
        env: the environment, if it is not one that an id and parameters make again.
        risk: the measure, if it was one of your own that has no text.
        network: the network, if it was one of your own.
        tensorboard_log: where further training writes its log.
        own: the class of the agent, if it is one of your own: `YourAgent.load(path)` passes it.
    """
    if Path(path).is_dir():
        more = {"risk": risk, "network": network, "tensorboard_log": tensorboard_log, "own": own}
        return _load_latest(Path(path), env=env, **more)
    arrays, about = read(path)
    try:
        kind, chosen, seed = about["agent"], about["settings"], about["seed"]
        chunks, settled, history = about["chunks"], about["settled"], about["history"]
        origin, text, preset = about["env"], about["risk"], about["preset"]
    except KeyError as error:
        raise CheckpointError(f"{path} does not say {error}; it is not whole.") from error
    known = dict(AGENTS) if own is None else {own.__name__: own, **AGENTS}
    if kind not in known:
        raise CheckpointError(
            f"{path} holds an agent of class {kind!r}, which is none of {', '.join(known)}. If it "
            "is one of your own, call its `load`."
        )
    agent = _make(known[kind], path, env, origin, risk, text, network, chosen, seed)
    agent.preset, agent.tensorboard_log = preset, tensorboard_log
    if not isinstance(chunks, int) or not isinstance(history, list):
        raise CheckpointError(f"{path} has steps or a history that are none.")
    program = Program(agent._core, agent.settings, agent._make_trunk, chunks)
    try:
        skeleton = agent._loop.skeleton(program, agent._algorithm)
    except (MemoryError, OverflowError) as error:
        raise CheckpointError(f"{path} has settings that no memory holds: {error}.") from error
    agent._run = from_arrays(skeleton, arrays, str(path))
    agent._program, agent._settled, agent.history = program, int(settled), history
    return agent


def _make(
    kind: type[Agent],
    path: str | Path,
    env: Any,
    origin: dict[str, Any],
    risk: AbstractSpectralRisk | str | None,
    text: str,
    network: Any,
    chosen: dict[str, Any],
    seed: int,
) -> Agent:
    """An untrained agent with what the checkpoint says."""
    if env is None and origin.get("id") is None:
        raise ValueError(
            f"`env` must be given: {path} was trained in {origin.get('description')}, which no id "
            "makes again. Pass the environment."
        )
    if env is None and ":" in str(origin["id"]):  # Gymnasium imports what stands before the colon
        raise CheckpointError(
            f"{path} names the environment {origin['id']!r}, for which a module would be imported. "
            "Nothing is imported because a file says so: import it yourself and pass `env`."
        )
    parameters = None
    if env is None:
        env, parameters = origin["id"], origin["parameters"]
        if origin.get("num_envs") is not None:
            env, parameters = _vector(origin), None
    if risk is None:
        try:
            risk = parse(text)
        except RiskSyntaxError as error:
            raise ValueError(
                f"`risk` must be given: {path} was trained for {text}, which no text makes again."
            ) from error
    known = {field.name for field in dataclasses.fields(Settings)}
    if not isinstance(chosen, dict) or not set(chosen) <= known:
        raise CheckpointError(f"{path} has settings that this version does not know.")
    chosen = {name: tuple(value) if name == "hidden" else value for name, value in chosen.items()}
    try:
        if isinstance(env, gym.Env | gym.vector.VectorEnv):
            chosen.pop("num_envs", None)
        return kind(env, risk=risk, seed=seed, env_kwargs=parameters, network=network, **chosen)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"The agent in {path} cannot be made again: {error}") from error


def _vector(origin: dict[str, Any]) -> gym.vector.VectorEnv:
    return gym.make_vec(
        origin["id"],
        num_envs=origin["num_envs"],
        vectorization_mode="sync",
        **origin["parameters"],
    )


def _load_latest(folder: Path, **arguments: Any) -> Agent:
    """From the latest checkpoint that is whole; a damaged one is passed over with a warning."""
    found = saved_in(folder)
    if not found:
        raise FileNotFoundError(f"There is no checkpoint in {folder}.")
    for path in found[:-1]:
        try:
            return load(path, **arguments)
        except CheckpointError as error:
            warnings.warn(f"{error} Taking the one before it.", stacklevel=3)
    return load(found[-1], **arguments)
