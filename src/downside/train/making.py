"""Which settings and which backend an agent has in an environment."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from downside.agents import AbstractAlgorithm, Settings
from downside.envs import AbstractJaxEnv
from downside.train.backends.gymnasium.adapting import WarmUp
from downside.train.backends.jax.backend import AbstractJaxBackend
from downside.train.config import resolve
from downside.train.driver import Backend

if TYPE_CHECKING:
    from downside.train.agent import Agent


def make_backend(
    agent: "Agent",
    env: Any,
    jax_env: AbstractJaxEnv | None,
    env_kwargs: Mapping[str, Any] | None,
    changes: Mapping[str, Any],
    network: Any,
    warm_up: WarmUp | None = None,
    total_timesteps: int | None = None,
) -> tuple[Settings, Backend]:
    """The settings, and where transitions come from; with what a `warm_up` shows, once it has been
    played, and the length of the run, if that is given."""
    algorithm = agent.algorithm_class
    if jax_env is not None and agent.jax_backend is not None:
        kind = agent.jax_backend
        settings = jax_settings(algorithm, kind, jax_env, agent.preset, changes, network)
        return settings, kind(jax_env)
    if jax_env is not None and jax_env.default_gamma is not None:
        changes = {"gamma": jax_env.default_gamma, **changes}
    if agent.gym_backend is None:
        raise ValueError(
            f"`env` must be written in JAX for {agent.name}, which differentiates simulated "
            f"episodes, or be a ds.Simulator; got {agent.env_spec}. Write the problem in JAX or "
            "in NumPy (docs: Which door?), or use ds.ACSRM."
        )
    kind, num_envs = agent.gym_backend, count_of(env)
    settings = resolve(
        algorithm,
        kind.settings_class,
        agent.preset,
        changes,
        num_envs,
        network,
        warm_up,
        total_timesteps,
    )
    return settings, kind.make(env if jax_env is None else jax_env, env_kwargs, settings)


def jax_settings(
    algorithm: type[AbstractAlgorithm],
    backend: type[AbstractJaxBackend],
    env: AbstractJaxEnv,
    preset: str,
    changes: Mapping[str, Any],
    network: Any = None,
) -> Settings:
    """The settings in an environment written in JAX, with its own discount factor if it has one."""
    if env.default_gamma is not None:
        changes = {"gamma": env.default_gamma, **changes}
    if preset == "default":
        changes = {**backend.defaults_for(env), **changes}
    settings = resolve(algorithm, backend.settings_class, preset, changes, network=network)
    return backend.complete(settings, env)


def count_of(env: Any) -> int | None:
    """How many environments there are, if that is given."""
    if isinstance(env, gym.vector.VectorEnv):
        return env.num_envs
    return 1 if isinstance(env, gym.Env) else None
