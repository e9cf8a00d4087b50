"""What stable-baselines3 calls things, so that its scripts need no change but the class."""

import math
from collections.abc import Mapping
from typing import Any

POLICIES = ("MlpPolicy", "MultiInputPolicy")
"""Names that a script may pass as its first argument."""

_SAME: Mapping[str, str] = {
    "learning_starts": "warmup_steps",
    "tau": "target_rate",
    "exploration_initial_eps": "exploration_initial",
    "exploration_final_eps": "exploration_final",
    "train_freq": "update_interval",
    "gradient_steps": "updates_per_step",
}
_IGNORED = ("device", "_init_setup_model", "stats_window_size", "optimize_memory_usage")


def translate(named: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments under the names of our settings; what is ours already stays as it is.

    `base` is what holds for the settings that are not named: theirs count environment steps, ours
    rounds of all environments, or updates.
    """
    out: dict[str, Any] = {}
    for name, value in named.items():
        if name in _IGNORED:
            continue
        if name == "policy_kwargs":
            out.update(_network(value or {}))
        elif name in _SAME:
            out[_SAME[name]] = value
        elif name != "target_update_interval":
            out[name] = value
    whole = {**base, **out}
    steps = max(1, int(whole["update_interval"]) * int(whole["num_envs"]))
    if named.get("gradient_steps") == -1:  # as many as there were steps
        out["updates_per_step"] = whole["updates_per_step"] = steps
    if "target_update_interval" in named:
        rounds = math.ceil(int(named["target_update_interval"]) / steps)
        out["target_interval"] = max(1, rounds * int(whole["updates_per_step"]))
        out.setdefault("target_rate", 1.0)
    return out


def _network(given: Mapping[str, Any]) -> dict[str, Any]:
    names = {"n_quantiles": "quantiles", "net_arch": "hidden"}
    for name in given:
        if name not in names:
            raise TypeError(
                f"`policy_kwargs` may have n_quantiles and net_arch, got {name!r}. For any other "
                "network pass network=, an eqx.Module from observation to features."
            )
    out = {names[name]: value for name, value in given.items()}
    if "hidden" in out and isinstance(out["hidden"], list):
        out["hidden"] = tuple(out["hidden"])
    return out
