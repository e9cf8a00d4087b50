"""The environments under their Gymnasium ids."""

import dataclasses
import importlib
import inspect
import re
import sys
from typing import Any

import gymnasium as gym

from downside._names import closest, did_you_mean
from downside._registration import JAX_IDS, LANDER_IDS
from downside.envs.core import AbstractJaxEnv
from downside.envs.gymnasium.env import GymnasiumEnv
from downside.envs.gymnasium.vector_env import GymnasiumVectorEnv
from downside.envs.memory_env import JaxMemoryAware
from downside.envs.problems.by_name import PROBLEMS, build, parameter_names
from downside.envs.problems.lunar_lander import LANDERS
from downside.envs.simulators.simulator import Simulator
from downside.envs.simulators.vector_env import SimulatorVectorEnv
from downside.envs.wrappers.memory_aware import MemoryAware, ReturnAware, TargetAware
from downside.envs.wrappers.vector_memory_aware import VectorMemoryAware


class EnvironmentNotFoundError(ValueError):
    """An id that no environment is registered under."""


_ENTRY_POINTS = tuple(
    f"downside.{module}:GymnasiumEnv" for module in ("envs.gymnasium.env", "envs")
)
# Wrappers that leave the problem as it is.
_HARMLESS = (
    gym.wrappers.PassiveEnvChecker,
    gym.wrappers.OrderEnforcing,
    gym.wrappers.RecordEpisodeStatistics,
    gym.wrappers.RenderCollection,
    gym.wrappers.HumanRendering,
    gym.wrappers.RecordVideo,
    gym.wrappers.vector.RecordEpisodeStatistics,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Registered:
    """What there is to say about one environment."""

    id: str
    """What to pass to `gymnasium.make`."""
    description: str
    """One line."""
    problem: type[AbstractJaxEnv] | None
    """Its class in JAX; None if it only exists as a Gymnasium environment."""
    parameters: dict[str, Any]
    """The names of its parameters and their default values."""

    def spaces(self) -> tuple[gym.Space, gym.Space]:
        """Observation and action space for the default parameters."""
        if self.problem is not None:
            core = self.problem()
            return core.observation_space, core.action_space
        env = gym.make(self.id)
        try:
            return env.observation_space, env.action_space
        finally:
            env.close()


def registered() -> tuple[Registered, ...]:
    """All environments of this package, in the order of the documentation."""
    ours = [
        Registered(
            id=env_id,
            description=_first_line(PROBLEMS[name]),
            problem=PROBLEMS[name],
            parameters={f.name: f.default for f in dataclasses.fields(PROBLEMS[name])},
        )
        for env_id, name in JAX_IDS.items()
    ]
    landers = [
        Registered(
            id=env_id,
            description=_first_line(LANDERS[name].make),
            problem=None,
            parameters=dict(LANDERS[name].parameters),
        )
        for env_id, name in LANDER_IDS.items()
    ]
    return (*ours, *landers)


def make_jax(env: Any, **parameters: Any) -> AbstractJaxEnv | None:
    """The JAX core of an environment, or None if it has none.

    Args:
        env: An id such as "downside/MeanReversion-v0"; `module:Class` of a simulator; an
            `AbstractJaxEnv`; or a Gymnasium environment or vector environment over one.
        **parameters: With an id: the parameters of that environment.

    Returns:
        The core. A core with (s, c) or b appended for an environment wrapped in `ReturnAware` or
        `TargetAware`. None for environments that are not written in JAX, and for those with a
        wrapper that changes the problem in a way the core does not know of.
    """
    if isinstance(env, str):
        return _from_id(env, parameters)
    if isinstance(env, AbstractJaxEnv):
        return build(env, parameters)
    if not isinstance(env, gym.Env | gym.vector.VectorEnv):
        if hasattr(env, "initial_state") and hasattr(env, "step"):
            name = getattr(env, "__name__", type(env).__name__)
            raise TypeError(
                f"`env` must be an environment, got {name}. If it is a simulator in NumPy, pass "
                f"ds.Simulator({name}...)."
            )
        raise TypeError(
            "`env` must be an environment id, an AbstractJaxEnv, or a Gymnasium environment, got "
            f"{env!r}. For example 'downside/MeanReversion-v0'."
        )
    if parameters:
        raise TypeError(
            f"`env` is an environment already, so {sorted(parameters)} cannot be set. Pass its id "
            "together with the parameters."
        )
    return _unwrap(env)


def _from_id(env_id: str, parameters: dict[str, Any]) -> AbstractJaxEnv | None:
    name = env_id.rpartition(":")[2]
    import_environment(env_id)
    entry = _jax_entry(name)
    if entry is not None:
        core, given = entry
        return build(core, {**given, **parameters})
    kind = class_of(env_id)
    if kind is not None:
        in_jax = issubclass(kind, AbstractJaxEnv)
        return kind(**parameters) if in_jax else Simulator(kind, **parameters)
    if name in gym.registry:
        return None
    if env_id != name and not re.search(r"-v\d+$", name):
        raise EnvironmentNotFoundError(_no_such_class(env_id))
    ids = (*JAX_IDS, *LANDER_IDS)
    ours = {env_id.removeprefix("downside/").removesuffix("-v0"): env_id for env_id in ids}
    close = closest(name, (*ours.values(), *gym.registry)) or closest(name, ours)
    hint = f" Did you mean {ours.get(close, close)!r}?" if close else ""
    raise EnvironmentNotFoundError(
        f"`env` must be the id of a registered environment, got {env_id!r}.{hint} "
        f"Ours are: {', '.join(ours.values())}."
    )


def _no_such_class(env_id: str) -> str:
    """What is wrong with `module:Class`, and which classes there are in the module."""
    module = env_id.rpartition(":")[0]
    ids = (f"{module}:{name}" for name in vars(sys.modules[module]))
    there = [each for each in ids if class_of(each) is not None]
    return (
        "`env` must name a class of a simulator, with `initial_state` and `step`, or of an "
        f"environment in JAX, got {env_id!r}.{did_you_mean(env_id, there)} "
        f"Such classes in {module}: {', '.join(there) or 'none'}."
    )


def class_of(env_id: str) -> type | None:
    """The class that `module:Class` names, of a simulator or an environment in JAX, if its module
    is imported; None for all other ids."""
    module, _, name = env_id.rpartition(":")
    kind: Any = sys.modules.get(module)
    for part in name.split(".") if kind is not None else ():
        kind = getattr(kind, part, None)
    is_ours = isinstance(kind, type) and (
        issubclass(kind, AbstractJaxEnv)
        or (hasattr(kind, "initial_state") and hasattr(kind, "step"))
    )
    return kind if is_ours else None


def is_jax_id(env_id: str) -> bool:
    """Whether an id is that of an environment in JAX or of a simulator: one that is registered, or
    `module:Class`. Its module must be imported."""
    return _jax_entry(env_id.rpartition(":")[2]) is not None or class_of(env_id) is not None


def jax_parameters(env_id: str) -> tuple[str, ...] | None:
    """The names of the parameters of an environment written in JAX; None if nobody knows them."""
    entry = _jax_entry(env_id.rpartition(":")[2])
    if entry is None:
        return None
    core = PROBLEMS[entry[0]] if isinstance(entry[0], str) else entry[0]
    return parameter_names(core) if isinstance(core, type) else ()


def _jax_entry(name: str) -> tuple[Any, dict[str, Any]] | None:
    """The core behind a registered id, with parameters; None if it is not written in JAX.

    Yours are among them: `gym.register(id, GymnasiumEnv, kwargs={"core": MyJaxEnv})`.
    """
    spec = gym.registry.get(name)
    if spec is None or spec.max_episode_steps is not None or spec.additional_wrappers:
        return None
    if spec.entry_point is not GymnasiumEnv and spec.entry_point not in _ENTRY_POINTS:
        return None
    given = dict(spec.kwargs)
    core = given.pop("core", None)
    return None if core is None else (core, given)


def import_environment(env_id: str) -> None:
    """Imports the module before the colon of `module:Id-v0`, as Gymnasium does."""
    module, colon, _ = env_id.rpartition(":")
    if not colon:
        return
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        raise ValueError(
            f"`env` names the module {module!r}, which is neither in this folder nor among the "
            f"installed packages, got {env_id!r}."
        ) from error


def _unwrap(env: gym.Env | gym.vector.VectorEnv) -> AbstractJaxEnv | None:
    if isinstance(env, GymnasiumEnv | GymnasiumVectorEnv | SimulatorVectorEnv):
        return env.core
    if isinstance(env, MemoryAware | ReturnAware | TargetAware | VectorMemoryAware):
        inner = _unwrap(env.env)
        return inner and JaxMemoryAware(inner, env.next_inputs, env.gamma, env.reward_scale)
    if isinstance(env, gym.wrappers.TimeLimit):
        inner = _unwrap(env.env)
        # A limit that the episode never reaches is no part of the problem.
        horizon = None if inner is None else inner.horizon
        return inner if horizon is not None and horizon <= env._max_episode_steps else None
    return _unwrap(env.env) if isinstance(env, _HARMLESS) else None


def _first_line(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").splitlines()[0]
