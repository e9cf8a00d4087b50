"""The settings that agents of a study have in its environments."""

import dataclasses
import json
from typing import Any

import jax

from downside.agents import Settings
from downside.envs import make_jax
from downside.studies.agent_tables import AgentEntry
from downside.studies.environments import Environment
from downside.studies.problems import Problems, named_in
from downside.train.agent import Agent
from downside.train.backends.gymnasium.adapting import WarmUp
from downside.train.backends.gymnasium.backend import GymBackend
from downside.train.backends.gymnasium.base import AbstractGymBackend
from downside.train.checkpoints.loading import agents_by_name
from downside.train.config import resolve
from downside.train.making import jax_settings

_MAX_WARMUP_SECONDS = 10.0
"""Time for the look at an environment that is not written in JAX, from which defaults follow."""


class SettingsOfAgents:
    """The settings of agents in environments; what does not go together is added to `problems`.

    An environment whose warm-up decides the defaults is looked at once.
    """

    def __init__(self, problems: Problems):
        self._warm_ups: dict[str, WarmUp | None] = {}
        self._problems = problems

    def of(self, env: Environment, agent: AgentEntry, steps: int | None) -> Settings | None:
        """All settings of an agent in an environment; None if they do not go together."""
        kind = agents_by_name()[agent.name]
        try:
            if not env.in_jax:
                if kind.gym_backend is None:
                    raise ValueError(
                        f"{kind.algorithm_class.name} learns only in environments written in JAX, "
                        f"got {env.id}. Put it into a study of its own."
                    )
                if not env.discrete and kind.gym_backend is GymBackend:
                    raise ValueError(
                        f"{kind.algorithm_class.name} needs discrete actions, and {env.id} has "
                        "others. Use acsrm there, or put it into a study of its own."
                    )
                return self._adapted(env, kind, agent, steps)
            backend, core = kind.jax_backend, make_jax(env.id, **env.parameters)
            assert core is not None
            if backend is None:  # it lives through its episodes, here as elsewhere
                gamma = {} if core.default_gamma is None else {"gamma": core.default_gamma}
                agent = dataclasses.replace(agent, changes={**gamma, **agent.changes})
                return self._adapted(env, kind, agent, steps)
            backend(core)  # raises if they do not go together
            return jax_settings(kind.algorithm_class, backend, core, agent.preset, agent.changes)
        except (TypeError, ValueError) as error:
            name = named_in(error, agent.changes)
            self._problems.add(agent.path if name is None else (*agent.path, name), error)
            return None

    def _adapted(
        self, env: Environment, kind: type[Agent], agent: AgentEntry, steps: int | None
    ) -> Settings:
        """The settings with the defaults that follow from the environment's warm-up."""
        algorithm, backend = kind.algorithm_class, kind.gym_backend
        assert backend is not None
        settings = resolve(algorithm, backend.settings_class, agent.preset, agent.changes)
        if not getattr(settings, "adapt", False):
            return settings
        place = json.dumps(
            [env.id, dict(env.parameters), backend.__name__], sort_keys=True, default=str
        )
        if place not in self._warm_ups:
            self._warm_ups[place] = _warm_up(env, backend, settings)
        return resolve(
            algorithm,
            backend.settings_class,
            agent.preset,
            agent.changes,
            warm_up=self._warm_ups[place],
            total_timesteps=agent.changes.get("total_timesteps") or steps,
        )


def _warm_up(env: Environment, kind: type[AbstractGymBackend], settings: Any) -> WarmUp | None:
    """What random play shows; None where it fails, which the run will report."""
    try:
        backend = kind.make(env.id, env.parameters, settings)
        try:
            return backend.warm_up(settings, jax.random.key(0), _MAX_WARMUP_SECONDS)
        finally:
            backend.adapter.close()
    except Exception:  # an environment may raise anything
        return None
