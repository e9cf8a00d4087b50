"""Where an agent's environment came from, in words that can be written down."""

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import numpy as np

from downside._registration import JAX_IDS
from downside.envs.core import AbstractJaxEnv
from downside.envs.gymnasium.env import GymnasiumEnv
from downside.envs.gymnasium.vector_env import GymnasiumVectorEnv
from downside.envs.simulators.simulator import Simulator
from downside.envs.simulators.vector_env import SimulatorVectorEnv

_NOT_THE_PROBLEM = ("render_mode", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""What Gymnasium keeps among the parameters of an environment although it is none."""


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """An id and parameters that make the same environment again, if there are such."""

    description: str
    """What it is called."""
    id: str | None = None
    """Its id in Gymnasium's registry, or `module:Class`; None if it can only be handed over."""
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    num_envs: int | None = None
    """Of a vector environment, how many there were."""
    digest: str | None = None
    """Of a JAX environment without an id: what tells it from others of its class."""

    @classmethod
    def of(cls, env: Any, parameters: Mapping[str, Any] | None = None) -> "EnvSpec":
        """Of an environment that was handed over, or of an id."""
        if isinstance(env, str):
            return cls(env, env, dict(parameters or {}))
        if isinstance(env, GymnasiumEnv | GymnasiumVectorEnv | SimulatorVectorEnv):
            return cls.of(env.core)
        if isinstance(env, Simulator):
            return cls._of_simulator(env.simulator)
        if isinstance(env, AbstractJaxEnv):
            ids = [env_id for env_id, name in JAX_IDS.items() if type(env).__name__ == name]
            given = {
                field.name: _plain(getattr(env, field.name)) for field in dataclasses.fields(env)
            }
            if ids and type(env).__module__.startswith("downside.") and _is_json(given):
                return cls(ids[0], ids[0], given)
            return cls(type(env).__name__, digest=_digest(env))
        count = env.num_envs if isinstance(env, gym.vector.VectorEnv) else None
        spec = getattr(env, "spec", None)
        if spec is None:
            return cls(str(env), num_envs=count)
        given = {name: value for name, value in spec.kwargs.items() if name not in _NOT_THE_PROBLEM}
        given |= _time_limit(spec)
        added = getattr(spec, "additional_wrappers", ()) or spec.kwargs.get("wrappers")
        by_hand = isinstance(env, gym.vector.VectorWrapper) or bool(added)
        plain = not by_hand and _is_json(given)
        return cls(spec.id, spec.id if plain else None, given if plain else {}, count)

    @classmethod
    def _of_simulator(cls, simulator: Any) -> "EnvSpec":
        """`module:Class`, if the attributes of the object have the values of its arguments."""
        kind = type(simulator)
        name = f"{kind.__module__}:{kind.__qualname__}"
        given = _arguments(simulator)
        known = given is not None and "<locals>" not in name and _is_json(given)
        if known:
            return cls(kind.__name__, name, given or {})
        return cls(kind.__name__, digest=_digest_of(sorted(vars(simulator).items())))

    def as_json(self) -> dict[str, Any]:
        """Plain types."""
        parameters = dict(self.parameters) if _is_json(dict(self.parameters)) else None
        known = parameters is not None
        digest = {} if self.digest is None else {"digest": self.digest}
        return {
            "description": self.description,
            "id": self.id if known else None,
            "parameters": parameters or {},
            "num_envs": self.num_envs,
            **digest,
        }

    def __str__(self) -> str:
        return self.description


def _digest(env: AbstractJaxEnv) -> str:
    """Of its numbers: those in arrays, and in fields that are plain values."""
    named = [(field.name, getattr(env, field.name)) for field in dataclasses.fields(env)]
    return _digest_of(named, jax.tree.leaves(env))


def _digest_of(named: Iterable[tuple[str, Any]], leaves: Iterable[Any] | None = None) -> str:
    """Of the arrays among the leaves, by default of those among the values, and of plain values."""
    named = list(named)
    digest = hashlib.sha256()
    for leaf in [value for _, value in named] if leaves is None else leaves:
        if eqx.is_array_like(leaf):
            values = np.asarray(leaf)
            digest.update(f"{values.dtype}{values.shape}".encode() + values.tobytes())
    for name, value in named:
        if _is_json(value):
            digest.update(f"{name}={json.dumps(value)}".encode())
    return digest.hexdigest()[:12]


def _arguments(simulator: Any) -> dict[str, Any] | None:
    """The arguments that make a simulator again, read from its attributes of the same name; None if
    there is an argument without one."""
    kind = type(simulator)
    if kind.__init__ is object.__init__:
        return None if vars(simulator) else {}  # attributes that were set by hand
    arguments = inspect.signature(kind).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if not all(one.kind in plain and hasattr(simulator, one.name) for one in arguments):
        return None
    return {one.name: _plain(getattr(simulator, one.name)) for one in arguments}


def _time_limit(spec: Any) -> dict[str, int]:
    """The time limit as a parameter, where it is another than the one that the id has."""
    registered = gym.registry.get(spec.id)
    if registered is None or spec.max_episode_steps == registered.max_episode_steps:
        return {}
    none = -1  # as Gymnasium says that there is to be no limit
    return {"max_episode_steps": none if spec.max_episode_steps is None else spec.max_episode_steps}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _is_json(value: Any) -> bool:
    try:
        return json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        return False
