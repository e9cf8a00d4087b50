"""The settings of an agent: one frozen dataclass, a docstring per field, two presets."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from downside._names import did_you_mean

ACTIVATIONS = ("silu", "relu", "gelu", "tanh")
OPTIMISERS = ("muon", "adam")
CRITICS = ("utility", "quantiles")
OUTERS = ("simulated", "lived", "learned")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How an agent learns. The values here are the preset `default`; `PAPER` is the paper's.

    Lengths of time are in environment steps or in updates (gradient steps), as each field says.
    """

    gamma: float = 0.99
    """Discount factor γ, in (0, 1]."""

    # --- networks -----------------------------------------------------------------------------
    hidden: tuple[int, ...] = (128, 128, 128)
    """Widths of the hidden layers, unless a network of your own is given."""
    activation: Literal["silu", "relu", "gelu", "tanh"] = "silu"
    """What follows each hidden layer."""
    layer_norm: bool = False
    """Whether each layer's outputs are standardised before the activation: where all there is to
    learn from is what happened, it keeps the networks from running away."""
    quantiles: int = 50
    """N: how many quantiles represent a return distribution."""
    critic: Literal["utility", "quantiles"] = "utility"
    """What actions are scored by: a network that learns the expected utility itself (where it
    obeys a recursion of its own: QR-SRM and QR-CVaR), or the learned quantiles, as in the paper."""
    normalise: bool = True
    """Whether inputs and outputs are scaled by what the warm-up saw, and `kappa` and `relabel`
    are in units of the spread of returns. If not, they are in units of the rewards."""

    rescale_until: float = 0.4
    """Until which share of the run the spread of the inputs is measured anew at each outer step, if
    `normalise`: a careful agent moves within a smaller range than random play does."""

    # --- updates ------------------------------------------------------------------------------
    optimiser: Literal["muon", "adam"] = "muon"
    """Muon for the square matrices of the hidden layers and Adam for the rest, or Adam alone."""
    learning_rate: float = 0.01
    """At its highest; it rises over the first 2% of the updates and falls along a cosine."""
    final_learning_rate: float = 0.005
    """Where it ends, as a share of `learning_rate`; 1 keeps it constant."""
    batch_size: int = 256
    """Decisions per update."""
    kappa: float = 0.02
    """κ of the quantile Huber loss: small against the spread of returns, or the tails vanish; in
    long episodes, where what it takes away adds up, against 1 - γ of the spread."""
    target_rate: float = 0.01
    """How much of the online networks enters the target networks, every `target_interval`."""
    target_interval: int = 1
    """Updates between two changes of the target networks."""
    double: bool = False
    """Whether the online networks choose the action that the target networks are asked about: the
    best of noisy scores is too good, and where nothing can be simulated they are noisy."""
    ensemble: int = 1
    """Quantile networks that learn side by side. Actions are scored by their mean, where quantiles
    score them; targets come from the one that scores the chosen action lowest, against scores that
    are too good."""
    n_steps: int = 1
    """Steps that are taken as one transition before the networks are asked what follows, fewer if
    an action was explored; more than one only where nothing can be simulated."""
    updates_per_step: int = 4
    """Updates after each step of all environments, or after each `update_interval` of them."""
    update_interval: int = 1
    """Steps of all environments between two rounds of updates."""
    near_greedy: int = 5
    """For how many of the best-scored actions of a sampled state outcomes are simulated afresh;
    0: learn from the transitions as they were lived through, as in the paper."""
    random_actions: int = 2
    """As `near_greedy`, for actions drawn at random."""
    outcomes: int = 2
    """How many outcomes of each of these actions are simulated; all actions share their noise."""
    difference_weight: float = 30.0
    """How much more errors in the differences between actions count than errors they share."""

    # --- experience ---------------------------------------------------------------------------
    num_envs: int = 256
    """Environments that run side by side."""
    buffer_size: int = 200_000
    """Decisions that are remembered."""
    warmup_steps: int = 10_000
    """Environment steps with random actions before the first update."""
    exploration_initial: float = 1.0
    """Share of random actions at the start."""
    exploration_final: float = 0.1
    """Share of random actions from `exploration_fraction` on."""
    exploration_fraction: float = 0.3
    """Share of the run over which exploration declines."""
    relabel: float = 0.25
    """Standard deviation of what is added to the remembered accumulated reward (or target): the
    environment does not see it, so a decision teaches about many of them."""
    exchange: float = 0.0
    """Share of the sampled decisions that are taken with the memory of another one, so that what a
    state is worth is not mistaken for what those who came there had earned; only where nothing can
    be simulated."""
    past_steps: int = 0
    """How many of the last steps the networks see beside the observation: how it has changed and
    which action was taken. What lasts and is not observed, such as a wind, shows there; where the
    networks cannot see it, they take it for drawn anew at each step, and learned tails are too
    thin. Only where nothing can be simulated; there 1 by default for QR-SRM and QR-CVaR, whose
    observations come from `agent.wrap` anyway."""
    discreet: bool = False
    """Whether the networks of QR-SRM see what the agent remembers only once h bends: while it is a
    line the best action does not depend on it. The weights of these inputs start at 0, so that
    nothing changes at the moment when they are shown. Only where nothing can be simulated."""

    least_discount: float = 0.0
    """Once a reward counts less than this at the start of its episode, the episode is cut off by
    chance, by 1 - γ at each step, and a new one begins: what follows is hardly worth the steps. As
    after a time limit, the agent learns that there is a future. 0: never. Only in training, where
    nothing can be simulated, and not in a vector environment that was handed over."""

    tie_break: float = 0.0
    """Share of the mean in the h of QR-SRM: where h is flat all actions are alike, and errors
    decide among them; with a little of the mean the best of them does."""

    # --- the outer step -----------------------------------------------------------------------
    outer: Literal["simulated", "lived", "learned"] = "simulated"
    """Where the outer step finds the return distribution of the start: in episodes of the greedy
    policy, simulated for it, with a search over a common shift of the knots; in the last episodes
    of training, where nothing can be simulated; or in the learned quantiles, as in the paper."""
    outer_interval: int = 400
    """Updates between two outer steps, a multiple of `updates_per_step`."""
    outer_episodes: int = 4096
    """Episodes in which each candidate of the outer step, and every iterate, is measured."""
    outer_rate: float = 0.5
    """How far the outer variable moves towards its new value."""
    shifts: int = 9
    """How many shifts of the knots are tried, an odd number."""
    shift_span: float = 0.4
    """The largest of them, in spreads of the returns."""
    neutral_fraction: float = 0.1
    """Share of the run in which the mean is maximised, before the first outer step: a start that
    is never in the trap of doing nothing."""
    distribution_fraction: float = 0.1
    """Updates of the quantiles alone at the end, for the policy that is kept, as a share of all."""

    # --- the policy that is kept --------------------------------------------------------------
    trials: int = 0
    """How often in the second half of a run the policy is tried out in episodes of its own, without
    random actions, for the best one to be kept. Only where nothing can be simulated; with 0 the
    last episodes of training decide there."""
    trial_share: float = 1.0
    """Environment steps of these episodes, about and at most, as a share of those of the run. They
    come on top of them."""

    averaging: float = 0.0
    """Share of the run, at its end, of which the average is kept: of the weights of the networks
    after each outer step, none from before `neutral_fraction` of the run. Policies that are alike
    in value fail in different episodes, and their average in fewer of them. As for any policy, the
    last episodes of training or trials decide whether it is kept. Only where nothing can be
    simulated; 0: the networks as they are."""

    total_timesteps: int = 768_000
    """Environment steps of a run, unless `learn` says otherwise."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, tidy(field.name, getattr(self, field.name)))
        if self.outer_interval % self.updates_per_step:
            raise ValueError(
                f"`outer_interval` must be a multiple of `updates_per_step` "
                f"({self.updates_per_step}), got {self.outer_interval}."
            )
        if self.buffer_size < self.num_envs:
            raise ValueError(
                f"`buffer_size` must hold at least one step of all {self.num_envs} environments, "
                f"got {self.buffer_size}."
            )

    @property
    def branches(self) -> int:
        """Actions of a sampled state that are simulated afresh; 0 if none."""
        return self.near_greedy + self.random_actions if self.near_greedy else 0


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
    "double": False,
    "n_steps": 1,
    "ensemble": 1,
    "updates_per_step": 1,
    "update_interval": 1,
    "near_greedy": 0,
    "random_actions": 0,
    "outcomes": 1,
    "difference_weight": 1.0,
    "num_envs": 10,
    "buffer_size": 100_000,
    "exploration_final": 0.05,
    "exploration_fraction": 0.5,
    "relabel": 0.0,
    "exchange": 0.0,
    "discreet": False,
    "past_steps": 0,
    "least_discount": 0.0,
    "tie_break": 0.0,
    "outer": "learned",
    "outer_interval": 1000,
    "outer_rate": 1.0,
    "shifts": 1,
    "neutral_fraction": 0.1,
    "distribution_fraction": 0.0,
    "trials": 0,
    "averaging": 0.0,
    "total_timesteps": 500_000,
}
"""What the paper states (quantiles, batch, layers, learning rate, γ), completed by the customs of
the code it builds on: it prints neither κ nor the optimiser nor the number of steps."""

PRESETS: Mapping[str, Mapping[str, Any]] = {"default": {}, "paper": PAPER}

LIVED: Mapping[str, Any] = {
    "layer_norm": True,
    "critic": "quantiles",
    "optimiser": "adam",
    "learning_rate": 1e-3,
    "final_learning_rate": 0.02,
    "batch_size": 128,
    "kappa": 0.001,
    "target_rate": 0.005,
    "target_interval": 1,
    "double": False,
    "n_steps": 10,
    "ensemble": 2,
    "updates_per_step": 2,
    "near_greedy": 0,
    "random_actions": 0,
    "outcomes": 1,
    "difference_weight": 1.0,
    "rescale_until": 0.0,
    "num_envs": 8,
    "buffer_size": 300_000,
    "warmup_steps": 2_000,
    "exploration_final": 0.02,
    "exploration_fraction": 0.1,
    "relabel": 0.25,
    "exchange": 0.5,
    "discreet": True,
    "least_discount": 0.05,
    "tie_break": 0.1,
    "outer": "learned",
    "outer_interval": 500,
    "shifts": 1,
    "neutral_fraction": 0.5,
    "distribution_fraction": 0.0,
    "total_timesteps": 300_000,
}
"""Where the preset `default` differs for environments that are not written in JAX: what happened is
all there is to learn from, since nothing can be simulated afresh."""


def settings(
    preset: str,
    changes: Mapping[str, Any],
    fixed: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of a preset with some `changes`.

    `fixed` is what an algorithm needs; `defaults` is where the preset `default` differs for it.
    """
    if preset not in PRESETS:
        raise ValueError(
            f"`preset` must be one of {', '.join(PRESETS)}, got {preset!r}."
            f"{did_you_mean(str(preset), PRESETS)}"
        )
    names = [field.name for field in dataclasses.fields(Settings)]
    for name, value in changes.items():
        if name not in names:
            raise TypeError(
                f"There is no setting `{name}`.{did_you_mean(name, names)} The settings are: "
                f"{', '.join(names)}."
            )
        if name in fixed and value != fixed[name]:
            raise ValueError(
                f"`{name}` must be {fixed[name]!r} for this agent, got {value!r}. Leave it out."
            )
    own = (defaults or {}) if preset == "default" else {}
    return Settings(**{**PRESETS[preset], **own, **changes, **fixed})


_WHOLE: Mapping[str, int] = {
    "quantiles": 1,
    "ensemble": 1,
    "batch_size": 1,
    "target_interval": 1,
    "n_steps": 1,
    "updates_per_step": 1,
    "update_interval": 1,
    "near_greedy": 0,
    "random_actions": 0,
    "outcomes": 1,
    "past_steps": 0,
    "num_envs": 1,
    "buffer_size": 1,
    "warmup_steps": 1,
    "outer_interval": 1,
    "outer_episodes": 2,
    "shifts": 1,
    "trials": 0,
    "total_timesteps": 1,
}
"""Whole numbers, with the least that is allowed."""

_LARGEST = 2**31 - 1

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "activation": ACTIVATIONS,
    "critic": CRITICS,
    "optimiser": OPTIMISERS,
    "outer": OUTERS,
}

_REAL: Mapping[str, tuple[float, float, bool]] = {
    "gamma": (0.0, 1.0, False),
    "rescale_until": (0.0, 1.0, True),
    "learning_rate": (0.0, math.inf, False),
    "final_learning_rate": (0.0, 1.0, True),
    "kappa": (0.0, math.inf, True),
    "target_rate": (0.0, 1.0, False),
    "difference_weight": (0.0, math.inf, False),
    "exploration_initial": (0.0, 1.0, True),
    "exploration_final": (0.0, 1.0, True),
    "exploration_fraction": (0.0, 1.0, True),
    "relabel": (0.0, math.inf, True),
    "exchange": (0.0, 1.0, True),
    "least_discount": (0.0, 1.0, True),
    "tie_break": (0.0, 1.0, True),
    "outer_rate": (0.0, 1.0, False),
    "shift_span": (0.0, math.inf, True),
    "neutral_fraction": (0.0, 1.0, True),
    "distribution_fraction": (0.0, math.inf, True),
    "trial_share": (0.0, math.inf, False),
    "averaging": (0.0, 1.0, True),
}
"""Real numbers, with their range and whether the lower end belongs to it."""


_LATER: Mapping[str, Any] = {
    "discreet": False,
    "past_steps": 0,
    "least_discount": 0.0,
    "tie_break": 0.0,
    "trials": 0,
    "averaging": 0.0,
}
"""Settings that were added after results had been written, as runs from before them are."""


def identity(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide what comes out of a run, for hashes that outlive an upgrade.

    One that was added later is left out where it is off.
    """
    off = {name for name, value in _LATER.items() if chosen.get(name, value) == value}
    if "trials" in off:
        off.add("trial_share")
    return {name: value for name, value in chosen.items() if name not in off}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def tidy(name: str, value: Any) -> Any:
    """The value in its proper type, or an error that says what is allowed."""
    if name in _WHOLE:
        finite = _is_number(value) and math.isfinite(value)
        if not finite or float(value) != int(value) or value < _WHOLE[name]:
            raise ValueError(f"`{name}` must be a whole number >= {_WHOLE[name]}, got {value!r}.")
        if value > _LARGEST:
            raise ValueError(f"`{name}` must be a whole number <= {_LARGEST:,}, got {value!r}.")
        if name == "shifts" and value % 2 == 0:
            raise ValueError(f"`shifts` must be odd, so that no shift is among them; got {value}.")
        return int(value)
    if name in _REAL:
        low, high, closed = _REAL[name]
        inside = _is_number(value) and math.isfinite(value) and low <= value <= high
        if not inside or (value == low and not closed):
            left = "[" if closed else "("
            right = ")" if high == math.inf else "]"
            raise ValueError(
                f"`{name}` must be a number in {left}{low:g}, {high:g}{right}, got {value!r}."
            )
        return float(value)
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ValueError(
                f"`{name}` must be one of {', '.join(_CHOICES[name])}, got {value!r}."
                f"{did_you_mean(str(value), _CHOICES[name])}"
            )
        return value
    if name == "hidden":
        widths = tuple(value) if isinstance(value, list | tuple) else value
        if not isinstance(widths, tuple) or not all(
            isinstance(width, int) and not isinstance(width, bool) and width > 0 for width in widths
        ):
            raise ValueError(
                f"`hidden` must be widths of layers, e.g. (128, 128, 128), got {value!r}."
            )
        return widths
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False, got {value!r}.")
    return value
