"""What an agent is made from: its environment, its settings, its length, checked and completed."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from downside.agents import AbstractAlgorithm, Settings, settings
from downside.agents.settings import LIVED
from downside.train.sb3 import POLICIES, translate

_NOT_HOSTED: Mapping[str, Any] = {
    "near_greedy": 0,
    "random_actions": 0,
    "outer": "learned",
    "shifts": 1,
    "distribution_fraction": 0.0,
    "rescale_until": 0.0,
}
"""What needs an environment that can be simulated from any state."""


def agent_settings(
    algorithm: type[AbstractAlgorithm],
    preset: str,
    changes: Mapping[str, Any],
    in_jax: bool,
    num_envs: int | None,
) -> Settings:
    """The preset for this kind of environment, with changes."""
    fixed = dict(algorithm.fixed)
    if in_jax:
        if changes.get("n_steps", 1) != 1:
            raise ValueError(
                f"`n_steps` must be 1 for an environment written in JAX, got "
                f"{changes['n_steps']!r}: what follows a step is simulated there."
            )
        changes = translate(changes, int(changes.get("num_envs", num_envs or 1)))
        return settings(preset, changes, fixed, algorithm.preset)
    defaults = dict(LIVED)
    if num_envs is not None:
        fixed["num_envs"] = num_envs
        # As many updates for each environment step, whatever the number of environments.
        ratio = LIVED["updates_per_step"] / LIVED["num_envs"]
        defaults["updates_per_step"] = max(1, round(ratio * num_envs))
        defaults["update_interval"] = max(1, round(1 / (ratio * num_envs)))
    for name, value in _NOT_HOSTED.items():
        if changes.get(name, value) != value:
            raise ValueError(
                f"`{name}` must be {value!r} for an environment that is not written in JAX, "
                f"got {changes[name]!r}: it cannot be simulated from any state."
            )
    changes = translate(changes, int(changes.get("num_envs", num_envs or LIVED["num_envs"])))
    if preset == "default":
        updates = changes.get("updates_per_step", defaults["updates_per_step"])
        whole = max(1, round(defaults["outer_interval"] / updates)) if updates else 1
        defaults["outer_interval"] = whole * updates
    return settings(preset, changes, {**fixed, **_NOT_HOSTED}, defaults)


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
