"""What an agent is made from: its environment, its settings, its length, checked and completed."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

from downside.agents import AbstractAlgorithm, Settings, settings
from downside.agents.settings import LIVED, PRESETS, tidy
from downside.train.sb3 import POLICIES, translate

_NOT_HOSTED: Mapping[str, tuple[Any, ...]] = {
    "near_greedy": (0,),
    "random_actions": (0,),
    "critic": ("quantiles",),
    "outer": ("lived", "learned"),
    "shifts": (1,),
    "distribution_fraction": (0.0,),
    "rescale_until": (0.0,),
}
"""What is left where an environment cannot be simulated from any state."""
_NOT_IN_JAX: Mapping[str, tuple[Any, ...]] = {
    "n_steps": (1,),
    "exchange": (0.0,),
    "discreet": (False,),
    "past_steps": (0,),
    "least_discount": (0.0,),
    "trials": (0,),
    "averaging": (0.0,),
    "outer": ("simulated", "learned"),
}
"""What is left where it can."""


def agent_settings(
    algorithm: type[AbstractAlgorithm],
    preset: str,
    changes: Mapping[str, Any],
    in_jax: bool,
    num_envs: int | None,
    network: Any = None,
) -> Settings:
    """The preset for this kind of environment, with changes."""
    fixed = dict(algorithm.fixed)
    one = isinstance(network, eqx.Module)
    if one and changes.get("ensemble", 1) != 1:
        raise ValueError(
            f"`ensemble` must be 1 with a `network` that is a module, got {changes['ensemble']!r}: "
            "all would start alike. Pass a function (key, observation size) -> module."
        )
    if in_jax:
        _refuse(changes, _NOT_IN_JAX, "written in JAX", "what follows is simulated there")
        changes = translate(changes, _counts(preset, algorithm.preset))
        return settings(preset, changes, fixed, algorithm.preset)
    defaults = {**LIVED, **algorithm.lived_preset}
    if one:
        defaults |= {"ensemble": 1, "double": True}
    if num_envs is not None:
        fixed["num_envs"] = num_envs
    count = tidy("num_envs", num_envs or changes.get("num_envs", LIVED["num_envs"]))
    # As many updates for each environment step, whatever the number of environments.
    ratio = LIVED["updates_per_step"] / LIVED["num_envs"]
    defaults["updates_per_step"] = max(1, round(ratio * count))
    defaults["update_interval"] = max(1, round(1 / (ratio * count)))
    _refuse(changes, _NOT_HOSTED, "that is not written in JAX", "it cannot be simulated")
    changes = translate(changes, {**_counts(preset, defaults), **fixed})
    if preset == "default":
        updates = tidy(
            "updates_per_step", changes.get("updates_per_step", defaults["updates_per_step"])
        )
        defaults["outer_interval"] = max(1, round(defaults["outer_interval"] / updates)) * updates
    only = {name: allowed[0] for name, allowed in _NOT_HOSTED.items() if len(allowed) == 1}
    return settings(preset, changes, {**fixed, **only}, defaults)


def _counts(preset: str, defaults: Mapping[str, Any]) -> dict[str, int]:
    """How often there are updates, unless somebody says otherwise."""
    own = {**PRESETS.get(preset, {}), **(defaults if preset == "default" else {})}
    names = ("num_envs", "update_interval", "updates_per_step")
    return {name: own.get(name, getattr(Settings, name)) for name in names}


def _refuse(
    changes: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]], kind: str, why: str
) -> None:
    for name, values in allowed.items():
        if name in changes and changes[name] not in values:
            raise ValueError(
                f"`{name}` must be {' or '.join(map(repr, values))} for an environment {kind}, "
                f"got {changes[name]!r}: {why}."
            )


def environment(policy: Any, env: Any) -> Any:
    """The environment, which may come first or after the name of a policy."""
    if env is None:
        env, policy = policy, POLICIES[0]
    if env is None or (isinstance(env, str) and env in POLICIES):
        raise TypeError("An agent needs an environment, for example 'downside/MeanReversion-v0'.")
    if policy not in POLICIES:
        raise TypeError(
            f"`policy` must be one of {', '.join(POLICIES)}, or left out, got {policy!r}. For "
            "another network pass network=, an eqx.Module from observation to features."
        )
    return env


def default_episodes(in_jax: bool) -> int:
    """How many episodes a policy is valued in unless told: fewer where they are slow."""
    return 100_000 if in_jax else 1_000


def check_timesteps(total_timesteps: Any, settings: Settings) -> int:
    """The steps of a run, or an error that says what they must be."""
    if total_timesteps is None:
        return settings.total_timesteps
    number = isinstance(total_timesteps, int | float | np.number)
    if not number or isinstance(total_timesteps, bool) or not total_timesteps >= 1:
        raise ValueError(
            f"`total_timesteps` must be a number >= 1, got {total_timesteps!r}. It counts "
            f"environment steps; the preset's is {settings.total_timesteps:,}."
        )
    return int(total_timesteps)
