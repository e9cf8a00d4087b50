"""Defaults that follow from what a run sees in its warm-up.

The defaults of QR agents for Gymnasium environments were found in the lunar lander: episodes of
hundreds of steps whose length depends on what the agent does. Where all episodes are short and
equally long, as in trading and hedging simulators, others are far better
(docs/research-notes/short-episodes.md). There AC-SRM plays each seed several times
(docs/research-notes/acsrm-noise.md).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from downside.agents import Settings

LONGEST = 64
"""Steps of an episode that counts as short."""
_SHARE = 0.5
"""Share of the episodes that must have the greatest length: then a horizon ends them, not what the
agent does, and no policy makes them longer."""
PROBED = 8
"""Episodes of the warm-up that this takes."""
_SLOW = 1e-3
"""Seconds of an environment step from which on steps are worth more than updates."""


class WarmUp(NamedTuple):
    """What the warm-up of random play shows."""

    episodes: int
    """Episodes that ended."""
    longest: int
    """Steps of the longest one."""
    share: float
    """Share of episodes that were as long."""
    terminated: bool
    """Whether all of them ended by termination, none by a time limit."""
    seconds: float
    """Time of one step of one environment."""
    resets: bool = False
    """Whether a step that does nothing but reset follows each episode."""
    steps: int = 0
    """Environment steps that were played for this alone."""

    @property
    def rows(self) -> int:
        """Steps from the start of the longest episode to that of the next one."""
        return self.longest + self.resets

    @property
    def is_short(self) -> bool:
        """Whether episodes are short whatever the agent does."""
        return self.episodes >= PROBED and self.longest <= LONGEST and self.share >= _SHARE

    @property
    def is_long(self) -> bool:
        """Whether an episode was longer than short ones are."""
        return self.longest > LONGEST

    @property
    def is_slow(self) -> bool:
        """Whether steps take long, measured against updates."""
        return self.seconds > _SLOW

    def __str__(self) -> str:
        slow = ", slow steps" if self.is_slow else ""
        return f"episodes of {self.longest} steps{slow}"


AN_EXAMPLE = WarmUp(episodes=200, longest=10, share=1.0, terminated=True, seconds=1e-5)
"""Of short episodes, for pages and help that show the defaults they get."""

SHORT: Mapping[str, Any] = {
    "critic": "utility",
    "num_critics": 1,
    "layer_norm": False,
    "optimiser": "muon",
    "learning_rate": 0.005,
    "final_learning_rate": 0.005,
    "batch_size": 256,
    "target_rate": 0.01,
    "kappa": 0.02,
    "n_steps": 1,
    "history_length": 0,
    "memory_shuffle": 0.0,
    "mean_weight": 0.0,
    "risk_neutral_fraction": 0.1,
    "outer_interval": 800,
    "outer_episodes": 4_000,
    "greedy_episodes": 0.5,
    "exploration_top": 5,
    "exploration_final": 0.3,
    "warmup_steps": 10_000,
    "num_envs": 256,
    "total_timesteps": 4_000_000,
    "evaluation_fraction": 0.02,
}
"""Where the preset `default` differs if episodes are short."""

_UPDATES = 64_000
"""Updates of a run in short episodes, whatever its length; within the bounds below."""
_QUANTILE_UPDATES, _QUANTILE_TIMESTEPS = 20_000, 1_280_000
"""The same where quantiles score actions, whose updates take three times as long; and the steps."""
_STEPS_FOR_UPDATE = (4, 64)
"""Environment steps for each update: at least and at most."""
_MANY, _LEAST_TIMESTEPS = 64, 250_000
"""With fewer environments acting takes most of the time of a step: runs are shorter in proportion,
but not shorter than this."""
_SLOW_CHANGES: Mapping[str, Any] = {
    "num_envs": 32,
    "warmup_steps": 2_000,
    "total_timesteps": 300_000,
}
"""Where steps take long besides."""


def short_defaults(
    warm_up: WarmUp, given: Mapping[str, Any], total_timesteps: int | None
) -> dict[str, Any]:
    """The defaults for short episodes.

    Arguments:
        warm_up: what the warm-up shows.
        given: the settings that stay as they are.
        total_timesteps: the length of the run, if that is given.
    """
    defaults = {
        **SHORT,
        **(_SLOW_CHANGES if warm_up.is_slow else {}),
        "anchor": not warm_up.terminated,
    }
    if given.get("critic") == "quantiles":
        defaults["total_timesteps"] = min(defaults["total_timesteps"], _QUANTILE_TIMESTEPS)
    if "buffer_size" in given:  # which must hold a step of all of them
        defaults["num_envs"] = min(defaults["num_envs"], int(given["buffer_size"]))
    count = int(given.get("num_envs", defaults["num_envs"]))
    share = min(1.0, count / _MANY)
    defaults["total_timesteps"] = min(
        defaults["total_timesteps"], max(_LEAST_TIMESTEPS, round(share * SHORT["total_timesteps"]))
    )
    steps = total_timesteps or given.get("total_timesteps") or defaults["total_timesteps"]
    least, most = _STEPS_FOR_UPDATE
    wanted = _QUANTILE_UPDATES if given.get("critic") == "quantiles" else _UPDATES
    steps_for_update = min(max(steps / wanted, least), most)
    # Few environments are stepped several times between two rounds of updates.
    interval = max(1, round(SHORT["num_envs"] / 2 / count))
    interval = int(given.get("update_interval", interval))
    updates = max(1, round(count * interval / steps_for_update))
    outer_interval = int(given.get("outer_interval", 0))
    while outer_interval % updates:  # an outer step ends a round
        updates -= 1
    return {**defaults, "update_interval": interval, "updates_per_step": updates}


_REPEATS, _PART = 4, 2_048
"""How often AC-SRM plays each seed, and steps of an iteration at least."""
_ON_POLICY: Mapping[str, Any] = {"num_envs": 128, "total_timesteps": 6_000_000}
"""Where AC-SRM's defaults differ if episodes are short and steps quick."""


def on_policy_defaults(warm_up: WarmUp, given: Mapping[str, Any], num_envs: int) -> dict[str, Any]:
    """AC-SRM's defaults for short episodes: several whole episodes for each seed.

    Arguments:
        warm_up: what some episodes of random play show.
        given: the settings that stay as they are.
        num_envs: how many environments there are, unless `defaults` say otherwise.
    """
    defaults = {} if warm_up.is_slow else dict(_ON_POLICY)
    count = int(given.get("num_envs", defaults.get("num_envs", num_envs)))
    repeats = int(given.get("episodes_per_seed", _REPEATS))
    if given.get("n_steps"):
        part, rest = divmod(int(given["n_steps"]), repeats)
        whole = not rest and (part + warm_up.resets) % warm_up.rows == 0
        return {**defaults, **({"episodes_per_seed": repeats} if whole else {})}
    episodes = math.ceil(_PART / (count * repeats * warm_up.rows))
    part = episodes * warm_up.rows - warm_up.resets  # nothing follows the last one
    return {**defaults, "episodes_per_seed": repeats, "n_steps": repeats * part}


LONG_ON_POLICY: Mapping[str, Any] = {"step_inputs": 0}
"""Where AC-SRM's defaults differ if episodes are long: they would have no marks in any case, and
networks without inputs for them are quicker."""


def changed(before: Settings, after: Settings) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, each with its value before and after."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in vars(after)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def sentence(warm_up: WarmUp, changes: Mapping[str, tuple[Any, Any]]) -> str:
    """What was adapted and why, in one line."""
    listed = ", ".join(f"{name}={after}" for name, (_, after) in changes.items())
    kind = "long" if warm_up.is_long else "short"
    return f"Defaults for {kind} episodes ({warm_up}): {listed}."
