"""What stays the same in a run (`TrainSpec`), and what changes in it (`TrainState`)."""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside.agents.algorithm import AbstractAlgorithm, OuterVariable
from downside.agents.networks import MakeTrunk, Network
from downside.agents.quantile_learner import LearnerState, QuantileLearner
from downside.agents.settings import GymnasiumSettings, QuantileSettings, SimulatorSettings
from downside.envs import AbstractJaxEnv
from downside.train.backends.replay import ReplayBuffer

FIT_CHUNK = 250
"""Updates in one call of `fit_return_distribution`."""

_LONG_EPISODE = 100
"""Where episodes may have more steps than this, errors of the scores add up along them almost as
if there were no end."""


class BestPolicy(eqx.Module):
    """The policy that the run returns."""

    networks: Any
    outer: OuterVariable
    value: Float[Array, ""]
    """The risk measure's value of the best policy so far; -inf before any was judged."""


class CommonState(eqx.Module):
    """What changes in a run, wherever its transitions come from."""

    learner: Any
    outer: OuterVariable
    has_outer: Bool[Array, ""]
    """Whether an outer step has been made; before, the mean is maximised."""
    spread: Float[Array, ""]
    """Standard deviation of the returns of the present policy."""
    best: BestPolicy
    key: Key[Array, ""]
    """The root of all randomness."""


class TrainState(CommonState):
    """What changes in a run in a JAX environment."""

    env_states: Any
    replay: ReplayBuffer
    vector_steps: Int[Array, ""]
    """Steps of all environments together, without the warm-up."""


class Metrics(NamedTuple):
    """What is logged of one chunk of training."""

    timesteps: Float[Array, ""]
    """Environment steps that were lived through."""
    simulated_steps: Int[Array, ""]
    """Steps of this chunk that were simulated beside them, for learning and for the outer step."""
    updates: Float[Array, ""]
    critic_loss: Float[Array, ""]
    quantile_loss: Float[Array, ""]
    value: Float[Array, ""]
    """J: the risk measure's value of the present policy, measured in episodes."""
    predicted: Float[Array, ""]
    """What the networks expect it to be."""
    best: Float[Array, ""]
    """The best value so far."""
    mean: Float[Array, ""]
    """Mean return of the present policy."""
    spread: Float[Array, ""]
    """Standard deviation of its returns."""
    exploration: Float[Array, ""]
    """Share of random actions."""
    ended: Float[Array, ""]
    """Episodes that were lived through to their end in this chunk."""


class TrainSpec(eqx.Module):
    """What does not change in a run: the environment, the settings, its length."""

    env: AbstractJaxEnv | None
    """None where the environment is not written in JAX."""
    settings: QuantileSettings = eqx.field(static=True)
    make_trunk: MakeTrunk = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    chunks: int = eqx.field(static=True)
    """How many chunks, each with an outer step at its end, make a run."""

    @classmethod
    def make(
        cls,
        env: AbstractJaxEnv | None,
        settings: QuantileSettings,
        make_trunk: MakeTrunk,
        num_actions: int,
        total_timesteps: int,
    ) -> "TrainSpec":
        """Of a run of about so many environment steps: a whole number of chunks."""
        spec = cls(env, settings, make_trunk, num_actions, 1)
        chunks = max(1, round(total_timesteps / spec.timesteps_per_chunk))
        return dataclasses.replace(spec, chunks=chunks)

    @property
    def simulator(self) -> SimulatorSettings:
        """The settings, of a run in a JAX environment."""
        assert isinstance(self.settings, SimulatorSettings)
        return self.settings

    @property
    def gymnasium(self) -> GymnasiumSettings:
        """The settings, of a run in a Gymnasium environment."""
        assert isinstance(self.settings, GymnasiumSettings)
        return self.settings

    @property
    def jax_env(self) -> AbstractJaxEnv:
        """The environment, of a run in a JAX environment."""
        assert self.env is not None
        return self.env

    @property
    def rounds_per_chunk(self) -> int:
        """Rounds (steps of all environments, and the updates after them) between outer steps."""
        return self.settings.outer_interval // self.settings.updates_per_step

    @property
    def timesteps_per_round(self) -> int:
        """Environment steps between two rounds of updates."""
        return self.settings.num_envs * self.settings.update_interval

    @property
    def timesteps_per_chunk(self) -> int:
        """Environment steps between two outer steps."""
        return self.rounds_per_chunk * self.timesteps_per_round

    @property
    def rounds(self) -> int:
        """Rounds of a run."""
        return self.chunks * self.rounds_per_chunk

    @property
    def updates(self) -> int:
        """Updates of a run."""
        return self.chunks * self.settings.outer_interval

    @property
    def has_critic(self) -> bool:
        """Whether a critic learns the score itself; otherwise the quantiles decide."""
        return self.settings.critic == "utility"

    @property
    def fit_chunks(self) -> int:
        """How many calls of `fit_return_distribution` follow: none where the quantiles decide."""
        if not self.has_critic:
            return 0
        return math.ceil(self.settings.evaluation_fraction * self.updates / FIT_CHUNK)

    @property
    def quantiles_beside(self) -> bool:
        """Whether the quantiles are learned beside a critic, because the outer step needs them.
        Otherwise they are learned when the policy is final."""
        settings = self.settings
        in_jax = isinstance(settings, SimulatorSettings)
        return self.has_critic and in_jax and settings.outer == "learned"

    @property
    def anchored(self) -> bool:
        """Whether the critic learns what an action adds to the score of an episode that is over."""
        if isinstance(self.settings, GymnasiumSettings):
            return self.has_critic and self.settings.anchor
        env = self.jax_env
        is_long = env.horizon is not None and env.horizon > _LONG_EPISODE
        return self.has_critic and (is_long or not env.bounded)

    def unit(self, state: CommonState) -> Float[Array, ""]:
        """What κ and the memory noise are measured in; 0 where returns have never had a spread."""
        return state.spread if self.settings.normalise else jnp.ones(())

    def learner(self, algorithm: AbstractAlgorithm) -> QuantileLearner:
        """The learner of an algorithm, with schedules of the length of the run."""
        quantile_updates = self.updates
        if self.has_critic:
            beside = self.quantiles_beside * self.updates // self.settings.updates_per_step
            quantile_updates = beside + self.fit_chunks * FIT_CHUNK
        return QuantileLearner(
            algorithm,  # pyright: ignore[reportArgumentType]
            self.settings,
            self.make_trunk,
            self.num_actions,
            self.updates,
            quantile_updates,
            anchored=self.anchored,
        )

    def exploration(self, progress: Any) -> Any:
        """The share of random actions at this share of the run: from 1 down to the final one."""
        declined = progress / max(self.settings.exploration_fraction, 1e-9)
        if isinstance(declined, float):
            declined = min(declined, 1.0)
        else:
            declined = jnp.clip(declined, 0.0, 1.0)
        return 1.0 + declined * (self.settings.exploration_final - 1.0)


def measuring_horizon(env: AbstractJaxEnv, gamma: float) -> int:
    """After how many steps a measured episode is cut: when nothing counts any more."""
    if env.horizon is not None:
        return env.horizon
    return 1000 if gamma == 1.0 else min(1000, math.ceil(math.log(1e-3) / math.log(gamma)))


def where(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
    """One pytree or the other."""

    def choose(new: Any, old: Any) -> Any:
        return jnp.where(condition, new, old) if eqx.is_array(old) else old

    return jax.tree.map(choose, new, old)


def scan(step: Any, carry: Any, inputs: Any, length: int | None = None) -> tuple[Any, Any]:
    """`lax.scan` for a carry that also holds what is no array, such as a network's activation."""
    arrays, rest = eqx.partition(carry, eqx.is_array)

    def body(arrays: Any, entry: Any) -> tuple[Any, Any]:
        carry, output = step(eqx.combine(arrays, rest), entry)
        return eqx.filter(carry, eqx.is_array), output

    arrays, outputs = jax.lax.scan(body, arrays, inputs, length)
    return eqx.combine(arrays, rest), outputs


# --- the return distribution of the final policy ------------------------------------------------

_FIT_TARGET_RATE = 0.05
"""Polyak rate when only the quantiles of a fixed policy are learned. It can be high: the policy
does not change with its targets."""


def fitting_learner(spec: TrainSpec, algorithm: AbstractAlgorithm) -> QuantileLearner:
    """The learner for the quantiles of a policy that stays as it is."""
    settings = dataclasses.replace(spec.settings, target_rate=_FIT_TARGET_RATE, target_interval=1)
    return dataclasses.replace(spec.learner(algorithm), settings=settings)


def with_critics(
    state: LearnerState, critic: Network | None, target: Network | None
) -> LearnerState:
    """The state with these critics."""
    return eqx.tree_at(
        lambda s: (s.networks.critic, s.targets.critic),
        state,
        (critic, target),
        is_leaf=lambda leaf: leaf is None,
    )
