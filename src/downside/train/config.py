"""From what a user writes to the settings of an agent: presets, overrides, stable-baselines3's
names."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np

from downside._names import did_you_mean
from downside.agents import (
    AbstractAlgorithm,
    GymnasiumSettings,
    OnPolicySettings,
    PathwiseSettings,
    Settings,
    SimulatorSettings,
)
from downside.envs.gymnasium.sb3_vector_env import from_sb3
from downside.train.backends.gymnasium.adapting import (
    LONG_ON_POLICY,
    WarmUp,
    on_policy_defaults,
    short_defaults,
)

PAPER: Mapping[str, Any] = {
    "activation": "relu",
    "layer_norm": False,
    "critic": "quantiles",
    "normalise": False,
    "optimiser": "adam",
    "learning_rate": 2.5e-4,
    "final_learning_rate": 1.0,
    "batch_size": 256,
    "kappa": 1.0,
    "target_rate": 1.0,
    "target_interval": 500,
    "n_steps": 1,
    "num_critics": 1,
    "updates_per_step": 1,
    "update_interval": 1,
    "top_actions": 0,
    "random_actions": 0,
    "samples_per_action": 1,
    "advantage_weight": 1.0,
    "num_envs": 10,
    "buffer_size": 100_000,
    "exploration_final": 0.05,
    "exploration_fraction": 0.5,
    "memory_noise": 0.0,
    "memory_shuffle": 0.0,
    "hide_memory_until_risk": False,
    "history_length": 0,
    "min_discount": 0.0,
    "adapt": False,
    "mean_weight": 0.0,
    "outer": "learned",
    "outer_interval": 1000,
    "outer_rate": 1.0,
    "shifts": 1,
    "risk_neutral_fraction": 0.1,
    "keep_best": False,
    "evaluation_fraction": 0.0,
    "averaging": 0.0,
    "total_timesteps": 500_000,
}
"""What the paper states (quantiles, batch, layers, learning rate, γ), completed by the customs of
the code it builds on: it prints neither κ nor the optimiser nor the number of steps. Nothing is
simulated beside the counted steps that would decide anything, and the last policy is the result."""

PRESETS: Mapping[str, Mapping[str, Any]] = {"default": {}, "paper": PAPER}

WINDOW = 100
"""Finished episodes of a Gymnasium environment that policies are judged by, at least."""

GYMNASIUM: Mapping[str, Any] = {
    "layer_norm": True,
    "optimiser": "adam",
    "learning_rate": 1e-3,
    "final_learning_rate": 0.02,
    "batch_size": 128,
    "kappa": 0.001,
    "target_rate": 0.005,
    "num_critics": 2,
    "updates_per_step": 2,
    "num_envs": 8,
    "buffer_size": 300_000,
    "warmup_steps": 2_000,
    "exploration_final": 0.02,
    "exploration_fraction": 0.1,
    "mean_weight": 0.1,
    "critic": "quantiles",
    "outer_interval": 500,
    "outer_episodes": WINDOW,
    "evaluation_fraction": 0.1,
    "risk_neutral_fraction": 0.5,
    "total_timesteps": 300_000,
}
"""Where the preset `default` differs for environments that are not written in JAX."""

PICTURES: Mapping[str, Any] = {
    "hidden_sizes": (512,),
    "activation": "relu",
    "layer_norm": False,
    "learning_rate": 3e-4,
    "batch_size": 32,
    "num_critics": 1,
    "buffer_size": 50_000,
    "history_length": 0,
}
"""Where the preset `default` differs with convolutions (`cnn`)."""

_ELSEWHERE: Mapping[type[Settings], str] = {
    GymnasiumSettings: "It is for environments that are not written in JAX.",
    SimulatorSettings: "It is for environments written in JAX, which can be simulated from any "
    "state.",
    PathwiseSettings: "It is for PG-SRM.",
    OnPolicySettings: "It is for AC-SRM.",
}
"""What to say of a setting that only these settings have."""


def resolve(
    algorithm: type[AbstractAlgorithm],
    kind: type[Settings],
    preset: str,
    changes: Mapping[str, Any],
    num_envs: int | None = None,
    network: Any = None,
    warm_up: WarmUp | None = None,
    total_timesteps: int | None = None,
) -> Settings:
    """The settings of a preset with some changes, checked.

    Arguments:
        algorithm: which has `fixed` settings and defaults.
        kind: `SimulatorSettings` or `GymnasiumSettings`.
        preset: "default" or "paper".
        changes: what the user passes, by our names or by stable-baselines3's.
        num_envs: how many environments there are, if that is given.
        network: a network of the user's own.
        warm_up: what the warm-up shows, once it has been played.
        total_timesteps: the length of the run, if that is given.
    """
    if preset not in PRESETS:
        raise ValueError(
            f"`preset` must be one of {', '.join(PRESETS)}, got {preset!r}."
            f"{did_you_mean(str(preset), PRESETS)}"
        )
    if preset == "paper" and kind is PathwiseSettings:
        raise ValueError(
            f"`preset` must be 'default' for {algorithm.name}, got 'paper': the paper has no such "
            "agent."
        )
    is_module = isinstance(network, eqx.Module)
    if is_module and changes.get("num_critics", 1) != 1:
        raise ValueError(
            "`num_critics` must be 1 with a `network` that is a module, got "
            f"{changes['num_critics']!r}: all would start alike. Pass a function "
            "(key, observation size) -> module."
        )
    names = [field.name for field in dataclasses.fields(kind)]
    fixed = {name: value for name, value in algorithm.fixed.items() if name in names}
    if num_envs is not None:
        fixed["num_envs"] = num_envs
    defaults = _defaults(algorithm, kind, preset, {**changes, **fixed}, is_module)
    given = translate(sampled_schedule(changes), {**_counts(kind, defaults), **fixed})
    if warm_up is not None and warm_up.is_long and kind is OnPolicySettings and not is_module:
        defaults = {**defaults, **LONG_ON_POLICY}
    if warm_up is not None and warm_up.is_short and not given.get("cnn"):
        stays = {**given, **fixed}
        if kind is OnPolicySettings:
            short = on_policy_defaults(warm_up, stays, OnPolicySettings().num_envs)
        else:
            short = short_defaults(warm_up, stays, total_timesteps)
            if is_module:  # made for as many numbers as the environment shows so far
                del short["history_length"]
        defaults = {**defaults, **short}
    changes = given
    for name, value in changes.items():
        if name not in names:
            raise TypeError(unknown_setting(name, kind))
        if name in fixed and value != fixed[name]:
            raise ValueError(
                f"`{name}` must be {fixed[name]!r} for this agent, got {value!r}. Leave it out."
            )
    if preset == "default" and kind is GymnasiumSettings:
        every = checked(kind, "updates_per_step", {**defaults, **changes}["updates_per_step"])
        defaults["outer_interval"] = max(1, round(defaults["outer_interval"] / every)) * every
    chosen = {**defaults, **changes, **fixed}
    return kind(**{name: value for name, value in chosen.items() if name in names})


def _defaults(
    algorithm: type[AbstractAlgorithm],
    kind: type[Settings],
    preset: str,
    given: Mapping[str, Any],
    is_module: bool,
) -> dict[str, Any]:
    """The preset for this kind of environment and this algorithm."""
    if preset != "default":
        judged = {} if kind is not GymnasiumSettings else {"outer_episodes": WINDOW}
        return {**PRESETS[preset], **judged}
    if kind is not GymnasiumSettings:
        return dict(algorithm.preset)
    defaults = {**GYMNASIUM, **algorithm.gymnasium_preset}
    if given.get("cnn"):
        defaults.update(PICTURES)
    if is_module:
        defaults["num_critics"] = 1
    # As many updates for each environment step, whatever the number of environments.
    count = checked(kind, "num_envs", given.get("num_envs", GYMNASIUM["num_envs"]))
    updates = GYMNASIUM["updates_per_step"] / GYMNASIUM["num_envs"] * count
    defaults["updates_per_step"] = max(1, round(updates))
    defaults["update_interval"] = max(1, round(1 / updates))
    return defaults


def checked(kind: type[Settings], name: str, value: Any) -> Any:
    """The value of a setting in its proper type, or an error that says what is allowed."""
    (field,) = (field for field in dataclasses.fields(kind) if field.name == name)
    return field.metadata["check"](name, value)


def unknown_setting(name: str, kind: type[Settings]) -> str:
    """A sentence on a setting that this kind of environment or agent does not have."""
    owners = [
        other for other in _ELSEWHERE if name in {field.name for field in dataclasses.fields(other)}
    ]
    actors = {PathwiseSettings: "PG-SRM", OnPolicySettings: "AC-SRM"}
    if owners and kind in actors:
        owner = _ELSEWHERE[owners[0]] if owners[0] in actors else "It is for the QR agents."
        return f"There is no setting `{name}` for {actors[kind]}. {owner}"
    if owners:
        return f"There is no setting `{name}` for this environment. {_ELSEWHERE[owners[0]]}"
    names = [field.name for field in dataclasses.fields(kind)]
    return f"There is no setting `{name}`.{did_you_mean(name, names)} The settings are: " + (
        f"{', '.join(names)}."
    )


def _counts(kind: type[Settings], defaults: Mapping[str, Any]) -> dict[str, int]:
    """How often there are updates, unless the user says otherwise."""
    names = ("num_envs", "update_interval", "updates_per_step")
    return {name: defaults.get(name, getattr(kind, name, 1)) for name in names}


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


# --- stable-baselines3 --------------------------------------------------------------------------

POLICIES = ("MlpPolicy", "MultiInputPolicy", "CnnPolicy")
"""Names that a script may pass as its first argument."""

_SAME: Mapping[str, str] = {
    "learning_starts": "warmup_steps",
    "tau": "target_rate",
    "exploration_final_eps": "exploration_final",
    "train_freq": "update_interval",
    "gradient_steps": "updates_per_step",
    "n_epochs": "epochs",
}
_IGNORED = ("device", "_init_setup_model", "stats_window_size", "optimize_memory_usage")


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
    return from_sb3(env)


_POINTS = 51
"""Points of the run at which a function for the learning rate is asked."""


def sampled_schedule(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """With a `learning_rate` that is a function of the share of the run that is left, from 1 down
    to 0, as its values at evenly spaced points: numbers can be saved, a function cannot."""
    function = given.get("learning_rate")
    if not callable(function):
        return given
    values = [function(1.0 - i / (_POINTS - 1)) for i in range(_POINTS)]
    try:
        rates = np.array(values, float)
    except (TypeError, ValueError):
        rates = np.array(np.nan)
    if (
        rates.shape != (_POINTS,)
        or not (np.isfinite(rates) & (rates >= 0)).all()
        or not rates.any()
    ):
        raise ValueError(
            "`learning_rate` as a function must return a number >= 0 for every share of the run "
            f"that is left, from 1 to 0, and not always 0; got {values[0]!r}, ..., {values[-1]!r}."
        )
    peak = float(rates.max())
    schedule = tuple(float(share) for share in rates / peak)
    return {**given, "learning_rate": peak, "learning_rate_schedule": schedule}


def translate(given: Mapping[str, Any], counts: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments under the names of our settings; what is ours already stays as it is.

    `counts` holds for the settings that are not given: stable-baselines3 counts environment steps,
    we count rounds of all environments, or updates.
    """
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name in _IGNORED:
            continue
        if name == "policy_kwargs":
            out.update(_network(value or {}))
        elif name == "exploration_initial_eps":
            if value != 1.0:
                raise ValueError(
                    f"`exploration_initial_eps` must be 1, got {value!r}: exploration starts with "
                    "random actions. Leave it out."
                )
        elif name in _SAME:
            out[_SAME[name]] = value
        elif name != "target_update_interval":
            out[name] = value
    whole = {**counts, **out}
    steps = max(1, int(whole["update_interval"]) * int(whole["num_envs"]))
    if given.get("gradient_steps") == -1:  # as many as there were steps
        out["updates_per_step"] = whole["updates_per_step"] = steps
    if "target_update_interval" in given:
        rounds = math.ceil(int(given["target_update_interval"]) / steps)
        out["target_interval"] = max(1, rounds * int(whole["updates_per_step"]))
        out.setdefault("target_rate", 1.0)
    return out


def _network(given: Mapping[str, Any]) -> dict[str, Any]:
    names = {"n_quantiles": "quantiles", "net_arch": "hidden_sizes"}
    for name in given:
        if name not in names:
            raise TypeError(
                f"`policy_kwargs` may have n_quantiles and net_arch, got {name!r}. For any other "
                "network pass network=, an eqx.Module from observation to features."
            )
    return {
        names[name]: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
    }
