"""Training and playing in an environment written in JAX."""

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm
from downside.agents.learner import AbstractLearner
from downside.agents.networks import MakeTrunk
from downside.agents.settings import QuantileSettings, Settings, SimulatorSettings
from downside.envs import AbstractJaxEnv, GymnasiumEnv, Memory
from downside.envs.faults import named_faults, ready
from downside.envs.rollout import simulate
from downside.train.backends.jax import program as jax_program
from downside.train.backends.state import (
    FIT_CHUNK,
    BestPolicy,
    TrainSpec,
    TrainState,
    measuring_horizon,
)

UNHARMED = (
    "The agent is as it was after the last outer step: `agent.save` keeps it, and once the line is "
    "mended `resume` goes on from there."
)
"""What a fault in the middle of a chunk leaves."""


class AbstractJaxBackend(abc.ABC):
    """A run in a JAX environment. How it learns is a `program`: a module with compiled functions
    `init` and `chunk`, and `record`, which turns what `chunk` logs into plain numbers."""

    settings_class: ClassVar[type[Settings]]
    program: ClassVar[Any]
    default_episodes = 100_000
    evaluated_steps = 0
    aligned = True
    first_action = 0

    def __init__(self, env: AbstractJaxEnv):
        self.env = self.jax_env = env
        self.num_actions = self.mask_size = env.num_actions

    @classmethod
    def defaults_for(cls, env: AbstractJaxEnv) -> Mapping[str, Any]:
        """Settings whose defaults are others in this environment."""
        del env
        return {}

    @classmethod
    def complete(cls, settings: Any, env: AbstractJaxEnv) -> Any:
        """The settings with what follows from the environment."""
        del env
        return settings

    # --- a run --------------------------------------------------------------------------------

    @abc.abstractmethod
    def new_spec(self, settings: Any, make_trunk: MakeTrunk, timesteps: int) -> Any:
        """What a run of about so many steps does not change."""

    def init(self, spec: Any, algorithm: AbstractAlgorithm, key: Key[Array, ""]) -> tuple[Any, int]:
        """A run that has learned nothing yet, and the steps that were simulated for it."""
        with named_faults():
            state, simulated = ready(self.program.init(spec, algorithm, key))
        return state, int(simulated)

    def chunk(
        self, spec: Any, algorithm: AbstractAlgorithm, state: Any
    ) -> tuple[Any, dict[str, float]]:
        """From one outer step to the next, with a record for the log."""
        with named_faults(UNHARMED):
            state, metrics = ready(self.program.chunk(spec, algorithm, state))
        return state, self.program.record(spec, metrics)

    @abc.abstractmethod
    def fit_return_distribution(
        self, spec: Any, algorithm: AbstractAlgorithm, state: Any
    ) -> tuple[Any, int]:
        """One part of learning the return distribution of the final policy, and the steps that
        were simulated for it."""

    def resume(self, spec: Any, state: Any, timesteps: int) -> None:
        """Nothing to do: the environments are part of the state."""
        del spec, state, timesteps

    @abc.abstractmethod
    def start_over(self, spec: Any, algorithm: AbstractAlgorithm, state: Any) -> Any:
        """Steps and schedules from 0 again; what was learned stays."""

    def move_here(self, before: Any, state: Any) -> Any:
        """A run that another backend of the same kind had: as it is."""
        del before
        return state

    # --- checkpoints --------------------------------------------------------------------------

    def to_tree(self, state: Any) -> Any:
        """All that a checkpoint holds."""
        return state

    def skeleton(self, spec: Any, algorithm: AbstractAlgorithm) -> Any:
        """A tree like that of `to_tree`, with the right shapes."""
        init = self.program.init.__wrapped__
        return eqx.filter_eval_shape(init, spec, algorithm, jax.random.key(0))[0]

    def from_tree(self, tree: Any) -> Any:
        """The run that `to_tree` took apart."""
        return tree

    # --- the environment ----------------------------------------------------------------------

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Flat observations, without the memory of rewards."""
        return self.env.observation_space

    @property
    def shown_size(self) -> int:
        """How many numbers the environment itself shows."""
        return self.env.observation_space.shape[0]

    def flatten(self, observation: Any) -> None:
        """None: observations are flat already."""
        del observation

    def make_env(self, render_mode: str | None = None) -> gym.Env:
        """A Gymnasium environment of the same kind."""
        return GymnasiumEnv(core=self.env, render_mode=render_mode)

    def wrap(self, env: Any) -> Any:
        """The environment as it is."""
        return env

    def simulate_returns(
        self, learner: AbstractLearner, policy: BestPolicy, episodes: int, seed: int
    ) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of a policy in new episodes."""
        return greedy_returns(self.env, learner, policy, episodes, seed)


class JaxBackend(AbstractJaxBackend):
    """Learns from transitions (`program.py`)."""

    settings_class = SimulatorSettings
    program = jax_program

    def __init__(self, env: AbstractJaxEnv):
        if not env.num_actions:
            raise ValueError(
                f"`env` must have discrete actions, got {env.action_space}. Use ds.PGSRM, whose "
                "actions may be continuous, or give the problem `num_actions` and a grid of "
                "actions to choose from."
            )
        super().__init__(env)

    def new_spec(
        self, settings: QuantileSettings, make_trunk: MakeTrunk, timesteps: int
    ) -> TrainSpec:
        """What a run of about so many steps does not change."""
        return TrainSpec.make(self.env, settings, make_trunk, self.num_actions, timesteps)

    def fit_return_distribution(
        self, spec: TrainSpec, algorithm: AbstractAlgorithm, state: TrainState
    ) -> tuple[TrainState, int]:
        """As `jax_program.fit_return_distribution`; with the steps that were simulated."""
        with named_faults(UNHARMED):
            state, _ = ready(jax_program.fit_return_distribution(spec, algorithm, state))
        return state, FIT_CHUNK * jax_program.simulated_per_batch(spec)

    def start_over(
        self, spec: TrainSpec, algorithm: AbstractAlgorithm, state: TrainState
    ) -> TrainState:
        """Steps and schedules from 0 again; what was learned stays."""
        fresh = spec.learner(algorithm).restart(state.learner.networks)
        fresh = eqx.tree_at(lambda s: s.targets, fresh, state.learner.targets)
        return eqx.tree_at(
            lambda s: (s.learner, s.vector_steps, s.key),
            state,
            (fresh, jnp.zeros((), jnp.int32), stream(state.key, "again")),
        )


def greedy_returns(
    env: AbstractJaxEnv, learner: AbstractLearner, policy: BestPolicy, episodes: int, seed: int
) -> Float[np.ndarray, " episodes"]:
    """The discounted returns of a policy in new episodes."""
    gamma = learner.settings.gamma
    returns, _ = simulate(
        env,
        GreedyPolicy(learner, policy.networks, policy.outer, env),
        gamma=gamma,
        episodes=episodes,
        key=jax.random.key(seed),
        horizon=measuring_horizon(env, gamma),
    )
    return returns


class GreedyPolicy(eqx.Module):
    """The policy as a function of the state of a JAX environment and of (s, c)."""

    learner: AbstractLearner
    networks: Any
    outer: Any
    env: AbstractJaxEnv

    def __call__(
        self, state: Any, accumulated: Float[Array, ""], discount: Float[Array, ""]
    ) -> Array:
        """The action."""
        observation, mask = self.env.observe(state), self.env.action_mask(state)
        memory = Memory(accumulated, discount)
        return self.learner.act(self.networks, observation, memory, mask, self.outer)
