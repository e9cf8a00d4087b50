"""The settings of an agent: what all agents have, what needs a simulator, what is for Gymnasium.

Each field has its default, its range and a docstring in one place. Command-line flags, error
messages and the reference page are made from them.
"""

import dataclasses
import math
from typing import Literal

from downside.agents._fields import choice, real, shares, switch, whole, widths

_COARSEST_DISCOUNT = 0.9995
"""With a discount factor up to this, the discount so far tells the time step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What all agents have. Lengths of time are in environment steps or updates (gradient steps),
    as each field says."""

    gamma: float = real(0.99, 0.0, 1.0, open_low=True)
    """Discount factor γ."""

    # --- networks -----------------------------------------------------------------------------
    hidden_sizes: tuple[int, ...] = widths(128, 128, 128)
    """Widths of the hidden layers, unless `network` is given."""
    activation: Literal["silu", "relu", "gelu", "tanh"] = choice(
        "silu", "silu", "relu", "gelu", "tanh"
    )
    """What follows each hidden layer."""
    layer_norm: bool = switch(False)
    """Layer normalisation before each activation, without learned scale."""

    # --- updates ------------------------------------------------------------------------------
    optimiser: Literal["muon", "adam"] = choice("muon", "muon", "adam")
    """Muon for the square matrices of the hidden layers and Adam for the rest, or Adam alone."""
    learning_rate: float = real(0.01, 0.0, math.inf, open_low=True)
    """Peak learning rate; it rises over the first 2% of the updates and falls along a cosine."""
    final_learning_rate: float = real(0.005, 0.0, 1.0)
    """Last learning rate as a share of `learning_rate`; 1 keeps it constant."""
    learning_rate_schedule: tuple[float, ...] = shares()
    """The learning rate at evenly spaced points of the run, as shares of `learning_rate`, with
    lines between them; empty: the cosine. Pass `learning_rate` a function of the share of the run
    that is left to have it filled in."""
    max_grad_norm: float = real(0.0, 0.0, math.inf)
    """Gradients with a larger norm are scaled down to it; 0: never."""
    batch_size: int = whole(256, 1)
    """Transitions per update; for PG-SRM, episodes."""

    # --- the outer step -----------------------------------------------------------------------
    outer_interval: int = whole(400, 1)
    """Updates between two outer steps, a multiple of `updates_per_step`."""
    risk_neutral_fraction: float = real(0.1, 0.0, 1.0)
    """Share of the run in which the mean is maximised, before the first outer step. A risk-neutral
    start avoids the trap of doing nothing."""
    keep_best: bool = switch(True)
    """The best policy of the run is the result. If not, the last one is, as in the paper."""

    total_timesteps: int = whole(768_000, 1)
    """Environment steps of a run, unless `learn` says otherwise."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = field.metadata["check"](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileSettings(Settings):
    """For agents that learn return distributions from transitions: the QR family."""

    # --- networks -----------------------------------------------------------------------------
    quantiles: int = whole(50, 1)
    """N: how many quantiles represent a return distribution."""
    num_critics: int = whole(1, 1)
    """Quantile networks that learn side by side. Actions are scored by their mean; targets come
    from the network that scores the chosen action lowest, against overestimation."""
    critic: Literal["utility", "quantiles"] = choice("utility", "utility", "quantiles")
    """What scores actions: a network that learns the expected utility itself (QR-SRM, QR-CVaR), or
    the learned quantiles, as in the paper."""
    normalise: bool = switch(True)
    """Inputs and outputs are scaled by what the warm-up shows, and `kappa` and `memory_noise` are
    in units of the standard deviation of returns. If not, they are in units of the rewards."""

    # --- updates ------------------------------------------------------------------------------
    kappa: float = real(0.02, 0.0, math.inf)
    """κ of the quantile Huber loss. Keep it small against the spread of returns, or the learned
    tails become too thin; in long episodes, small against 1 - γ of the spread."""
    target_rate: float = real(0.01, 0.0, 1.0, open_low=True)
    """Polyak rate of the target networks, applied every `target_interval` updates."""
    target_interval: int = whole(1, 1)
    """Updates between two changes of the target networks."""
    updates_per_step: int = whole(4, 1)
    """Updates after every `update_interval` steps of all environments."""
    update_interval: int = whole(1, 1)
    """Steps of all environments between two rounds of updates."""

    # --- experience ---------------------------------------------------------------------------
    num_envs: int = whole(256, 1)
    """Environments that run side by side."""
    buffer_size: int = whole(200_000, 1)
    """Transitions in the replay buffer."""
    warmup_steps: int = whole(10_000, 1)
    """Environment steps with random actions before the first update."""
    exploration_final: float = real(0.1, 0.0, 1.0)
    """Share of random actions from `exploration_fraction` on. It starts at 1."""
    exploration_fraction: float = real(0.3, 0.0, 1.0)
    """Share of the run over which exploration declines."""
    memory_noise: float = real(0.25, 0.0, math.inf)
    """Standard deviation of the noise that is added to the remembered return of a sampled
    transition. The environment does not see it, so one transition teaches about many returns."""
    mean_weight: float = real(0.0, 0.0, 1.0)
    """Share of the mean in the h of QR-SRM. Where h is flat all actions score alike; a little of
    the mean decides among them."""

    # --- the outer step -----------------------------------------------------------------------
    outer_rate: float = real(0.5, 0.0, 1.0, open_low=True)
    """How far the outer variable moves towards its new value."""
    outer_episodes: int = whole(4096, 2)
    """Episodes in which a policy is judged at an outer step: simulated ones for each candidate in
    JAX, elsewhere the last ones that were lived through."""
    evaluation_fraction: float = real(0.1, 0.0, math.inf)
    """Where a critic scores actions: updates at the end that learn the return distribution of the
    final policy, as a share of all."""

    def __post_init__(self):
        super().__post_init__()
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatorSettings(QuantileSettings):
    """For environments written in JAX: any state can be simulated again."""

    top_actions: int = whole(5, 0)
    """Actions of a sampled state that are simulated afresh, those with the highest scores. 0:
    learn from the transitions in the buffer, as in the paper."""
    random_actions: int = whole(2, 0)
    """Further actions of a sampled state that are simulated afresh, drawn at random."""
    samples_per_action: int = whole(2, 1)
    """Simulated outcomes of each of these actions; all actions share their noise."""
    advantage_weight: float = real(30.0, 0.0, math.inf, open_low=True)
    """Loss weight of advantages relative to the error that all actions share."""
    outer: Literal["simulated", "learned"] = choice("simulated", "simulated", "learned")
    """Where the outer step takes the return distribution of the start from: simulated episodes of
    the greedy policy, with a search over a common shift of the knots; or the learned quantiles, as
    in the paper."""
    shifts: int = whole(9, 1, odd=True)
    """How many shifts of the knots are tried."""
    shift_span: float = real(0.4, 0.0, math.inf)
    """The largest shift, in standard deviations of the returns."""

    @property
    def branches(self) -> int:
        """Actions of a sampled state that are simulated afresh; 0 if none."""
        return self.top_actions + self.random_actions if self.top_actions else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GymnasiumSettings(QuantileSettings):
    """For all other environments: agents learn from the transitions they live through."""

    cnn: bool = switch(False)
    """Convolutions before the hidden layers, for pictures; "CnnPolicy" sets it."""
    adapt: bool = switch(True)
    """Defaults follow from what the warm-up shows: where all episodes are short, other ones hold
    (`agent.adapted`). What is given stays as it is."""
    n_steps: int = whole(10, 1)
    """n-step returns, truncated at exploratory actions."""
    memory_shuffle: float = real(0.5, 0.0, 1.0)
    """Share of the sampled transitions that get the memory of another one, so that the value of a
    state is not confused with what was earned on the way there."""
    history_length: int = whole(0, 0)
    """How many of the last steps the networks see beside the observation: its change and the
    action. Lasting hidden causes, such as a wind, show there. QR-SRM and QR-CVaR use 1 by
    default."""
    hide_memory_until_risk: bool = switch(True)
    """The networks of QR-SRM see (s, c) only once h bends. While h is a line the best action does
    not depend on it."""
    min_discount: float = real(0.05, 0.0, 1.0)
    """Once the discount of the next reward is below this, an episode is truncated with probability
    1 - γ at each step of training. 0: never. No effect in a vector environment that is passed
    in."""
    averaging: float = real(0.0, 0.0, 1.0)
    """Share of the run, at its end, over which the weights of the networks are averaged for the
    final policy. 0: no averaging."""
    anchor: bool = switch(True)
    """With `critic="utility"`: the critic learns what an action adds to the utility of what was
    earned so far. Where episodes need not end, nothing else would hold the scores in place; where
    all of them terminate, scores are learned more precisely without."""
    greedy_episodes: float = real(0.0, 0.0, 1.0)
    """Share of the episodes without exploration. If there are such, policies are judged by them
    alone. With `critic="utility"` h is taken from the episodes that policies are judged by."""
    exploration_top: int = whole(0, 0)
    """Half of the explored actions are drawn from so many that score best, the others from all. 0:
    all of them from all."""

    def __post_init__(self):
        super().__post_init__()
        if self.cnn and self.history_length:
            raise ValueError(
                f"`history_length` must be 0 with convolutions, got {self.history_length}. Stack "
                "frames with `gymnasium.wrappers.FrameStackObservation`."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathwiseSettings(Settings):
    """For PG-SRM: an actor that learns from whole simulated episodes."""

    hidden_sizes: tuple[int, ...] = widths(48, 48)
    """Widths of the hidden layers of each network, unless `network` is given."""
    optimiser: Literal["muon", "adam"] = choice("adam", "muon", "adam")
    """Adam, or Muon for the square matrices of the hidden layers and Adam for the rest."""
    activation: Literal["silu", "relu", "gelu", "tanh"] = choice(
        "relu", "silu", "relu", "gelu", "tanh"
    )
    """What follows each hidden layer."""
    learning_rate: float = real(0.01, 0.0, math.inf, open_low=True)
    """Peak learning rate; it rises over the first 2% of the updates and falls along a cosine."""
    final_learning_rate: float = real(0.01, 0.0, 1.0)
    """Last learning rate as a share of `learning_rate`; 1 keeps it constant."""
    batch_size: int = whole(2048, 2)
    """Episodes of a batch, in mirrored pairs where the environment has mirrored noise."""
    final_batches: int = whole(4, 1)
    """Batches of an update in the last part of the run, whose gradients are averaged; one before.
    In segments always one."""
    growth_fraction: float = real(0.5, 0.0, 1.0)
    """Share of the run, at its end, with `final_batches`."""
    max_grad_norm: float = real(1.0, 0.0, math.inf)
    """Gradients with a larger norm are scaled down to it; 0: never."""
    updates: int = whole(3000, 1)
    """Gradient steps of a run, unless `total_timesteps` is given."""
    total_timesteps: int = whole(0, 0, most=2**62)
    """Simulated environment steps of a run; 0: as many as `updates` take."""

    # --- the actor ----------------------------------------------------------------------------
    see_memory: bool = switch(True)
    """The actor sees (s, c). Without it the policy is Markov in the observation alone."""
    step_networks: int = whole(64, 0)
    """Episodes of at most so many steps have a network for each step; longer ones have one network
    for all steps."""
    longest_episode: int = whole(256, 0)
    """Longer episodes are differentiated in segments, with a learned value at the end of each."""
    segment_steps: int = whole(32, 1)
    """Steps of a segment."""
    rounding_fraction: float = real(0.97, 0.0, 1.0)
    """Share of the run, at its end, in which ordered discrete actions are rounded in training."""
    rounding_noise: float = real(0.7, 0.0, 1.0)
    """Width of the noise that these actions get before they are rounded in training, in steps from
    one to the next. Without it derivatives leave the choice between neighbours to chance."""
    averaging: float = real(0.2, 0.0, 1.0)
    """Share of the run, at its end, over which the weights are averaged for the final policy. 0: no
    averaging."""

    # --- the outer step -----------------------------------------------------------------------
    outer_interval: int = whole(100, 1)
    """Updates between two evaluations of the policy, after which the best one is kept."""
    outer_episodes: int = whole(65_536, 2)
    """Simulated episodes of each evaluation."""
    risk_neutral_fraction: float = real(0.03, 0.0, 1.0)
    """Share of the run in which the mean is maximised, before the measure."""
    annealing_fraction: float = real(0.0, 0.0, 1.0)
    """Share of the run after which the measure alone is maximised. From `risk_neutral_fraction` to
    there it is a mixture with the mean that moves towards it: for very cautious measures, which
    otherwise lead through doing nothing. 0: no mixture."""

    def growth_begins(self, updates: int) -> int:
        """The update of so many from which on there are `final_batches`."""
        return math.ceil((1.0 - self.growth_fraction) * updates)

    def batches(self, done: int, updates: int) -> int:
        """Batches of the first `done` of so many updates."""
        grown = max(0, done - self.growth_begins(updates))
        return done + (self.final_batches - 1) * grown

    def in_segments(self, horizon: int) -> bool:
        """Whether episodes of so many steps are differentiated in segments."""
        return horizon > max(self.longest_episode, self.segment_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnPolicySettings(Settings):
    """For AC-SRM: an actor and a critic that learn from the episodes they live through."""

    hidden_sizes: tuple[int, ...] = widths(64, 64)
    """Widths of the hidden layers of each network, unless `network` is given."""
    activation: Literal["silu", "relu", "gelu", "tanh"] = choice(
        "tanh", "silu", "relu", "gelu", "tanh"
    )
    """What follows each hidden layer."""
    quantiles: int = whole(50, 1)
    """N: how many quantiles represent the return distribution of the final policy."""
    optimiser: Literal["muon", "adam"] = choice("adam", "muon", "adam")
    """Adam, or Muon for the square matrices of the hidden layers and Adam for the rest."""
    learning_rate: float = real(1e-3, 0.0, math.inf, open_low=True)
    """Peak learning rate; it rises over the first 2% of the updates and falls along a cosine."""
    final_learning_rate: float = real(0.02, 0.0, 1.0)
    """Last learning rate as a share of `learning_rate`; 1 keeps it constant."""
    max_grad_norm: float = real(0.5, 0.0, math.inf)
    """Gradients with a larger norm are scaled down to it; 0: never."""

    # --- experience ---------------------------------------------------------------------------
    num_envs: int = whole(32, 1)
    """Environments that run side by side, unless a vector environment is passed in."""
    n_steps: int = whole(0, 0)
    """Steps of each environment in an iteration, after which the networks learn from them; 0: as
    many as make 2,048 in all environments, and 16 at least."""
    episodes_per_seed: int = whole(1, 1)
    """The steps of an iteration are so many equal parts, and all parts begin with the same seed.
    What their episodes share, the noise of the market, is taken off the advantages. Pass it
    together with `n_steps`, so that a part is whole episodes; 1: episodes go on from one iteration
    to the next."""
    adapt: bool = switch(True)
    """Defaults follow from a few episodes of random play (`agent.adapted`): where all episodes are
    short, each seed is played several times; where they are long, there are no `step_inputs`. What
    is given stays as it is."""
    epochs: int = whole(6, 1)
    """How often the networks see each transition of an iteration."""
    batch_size: int = whole(0, 0)
    """Transitions per update; 0: an eighth of those of an iteration."""
    gae_lambda: float = real(0.95, 0.0, 1.0)
    """λ of the generalised advantage estimate: 0 trusts the critic, 1 the rewards that followed."""
    clip_range: float = real(0.2, 0.0, math.inf, open_low=True)
    """How far the probability of an action may move in an iteration with gain, as a share, for an
    advantage of one standard deviation; in proportion for others."""
    ent_coef: float = real(0.0, 0.0, math.inf)
    """Weight of the entropy of the policy, which keeps it random."""
    noise: float = real(0.3, 0.0, math.inf, open_low=True)
    """Standard deviation of a continuous action at first, in half-widths of its range. Noise is
    risk: with much of it the policy learns to be careful of itself."""
    final_noise: float = real(0.3, 0.0, 1.0, open_low=True)
    """What the standard deviation is multiplied by at the end, after an exponential decline."""
    final_temperature: float = real(0.5, 0.0, 1.0, open_low=True)
    """The same for discrete actions: the temperature of the softmax at the end."""
    history_length: int = whole(0, 0)
    """How many of the last steps the networks see beside the observation: its change and the
    action."""
    clock: Literal["auto", "on", "off"] = choice("auto", "auto", "on", "off")
    """Whether the networks see the number of the step in its episode. auto: if γ is above 0.9995,
    since otherwise the discount so far tells it."""
    step_inputs: int = whole(64, 0)
    """If no episode of the first iteration has more steps than this, the networks see the number of
    the step as a mark in one of so many inputs: what is best changes from step to step."""
    averaging: float = real(0.2, 0.0, 1.0)
    """Share of the run, at its end, over which the weights are averaged for the final policy. 0: no
    averaging."""

    # --- the outer step -----------------------------------------------------------------------
    outer_interval: int = whole(1, 1)
    """Iterations between two records of the run. h moves after each iteration."""
    outer_rate: float = real(0.3, 0.0, 1.0, open_low=True)
    """How far the knots of h move towards the quantiles of the last episodes."""
    risk_neutral_fraction: float = real(0.05, 0.0, 1.0)
    """Share of the run in which the mean is maximised."""
    risk_ramp: float = real(0.15, 0.0, 1.0)
    """Share of the run, after that, in which h turns from a line into the h of the measure."""
    mean_weight: float = real(0.02, 0.0, 1.0)
    """Share of the mean in h. Where h is flat nothing can be learned; a little of the mean
    helps."""
    evaluation_fraction: float = real(0.03, 0.0, math.inf)
    """Episodes of the final policy at the end, in which its return distribution is learned: their
    steps as a share of all."""
    total_timesteps: int = whole(1_000_000, 1)
    """Environment steps of a run, unless `learn` says otherwise."""

    def __post_init__(self):
        super().__post_init__()
        if self.n_steps % self.episodes_per_seed:
            raise ValueError(
                f"`n_steps` must be a multiple of `episodes_per_seed` ({self.episodes_per_seed}), "
                f"got {self.n_steps}. For episodes of 10 steps pass {10 * self.episodes_per_seed}."
            )

    @property
    def has_clock(self) -> bool:
        """Whether the networks see the number of the step in its episode."""
        return self.gamma > _COARSEST_DISCOUNT if self.clock == "auto" else self.clock == "on"
