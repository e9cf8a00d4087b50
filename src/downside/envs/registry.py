"""The environments under their Gymnasium ids."""

import dataclasses
import inspect
from typing import Any

import gymnasium as gym

from downside._names import closest
from downside._registration import JAX_IDS, LUNAR_ID
from downside.envs.augment import JaxReturnAware, JaxTargetAware
from downside.envs.core import AbstractJaxEnv
from downside.envs.gymnasium_face import GymnasiumFace
from downside.envs.lunar_lander import PARAMETERS, windy_lunar_lander
from downside.envs.problems import PROBLEMS, build
from downside.envs.vector_face import GymnasiumVectorFace
from downside.envs.vector_wrappers import VectorReturnAware, VectorTargetAware
from downside.envs.wrappers import ReturnAware, TargetAware

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
    lunar = Registered(
        id=LUNAR_ID,
        description=_first_line(windy_lunar_lander),
        problem=None,
        parameters=dict(PARAMETERS),
    )
    return (*ours, lunar)


def make_jax(env: Any, **parameters: Any) -> AbstractJaxEnv | None:
    """The JAX core of an environment, or None if it has none.

    Args:
        env: An id such as "downside/MeanReversion-v0", an `AbstractJaxEnv`, or a Gymnasium
            environment or vector environment over one.
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
    name = env_id.rpartition(":")[2]  # Gymnasium's "module:id" imports the module first
    if name in JAX_IDS:
        return build(JAX_IDS[name], parameters)
    if name in gym.registry:
        return None
    ours = {one.removeprefix("downside/").removesuffix("-v0"): one for one in (*JAX_IDS, LUNAR_ID)}
    close = closest(name, (*ours.values(), *gym.registry)) or closest(name, ours)
    hint = f" Did you mean {ours.get(close, close)!r}?" if close else ""
    raise ValueError(
        f"`env` must be the id of a registered environment, got {env_id!r}.{hint} "
        f"Ours are: {', '.join(ours.values())}."
    )


def _unwrap(env: gym.Env | gym.vector.VectorEnv) -> AbstractJaxEnv | None:
    if isinstance(env, GymnasiumFace | GymnasiumVectorFace):
        return env.core
    if isinstance(env, ReturnAware | VectorReturnAware):
        inner = _unwrap(env.env)
        return inner and JaxReturnAware(inner, env.memory.gamma, env.memory.reward_scale)
    if isinstance(env, TargetAware | VectorTargetAware):
        inner, memory = _unwrap(env.env), env.memory
        return inner and JaxTargetAware(inner, memory.gamma, memory.target, memory.reward_scale)
    if isinstance(env, gym.wrappers.TimeLimit):
        inner = _unwrap(env.env)
        # A limit that the episode never reaches is no part of the problem.
        horizon = None if inner is None else inner.horizon
        return inner if horizon is not None and horizon <= env._max_episode_steps else None
    return _unwrap(env.env) if isinstance(env, _HARMLESS) else None


def _first_line(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").splitlines()[0]
