"""What all agents in Gymnasium environments share: the environment, as agents and users see it."""

import abc
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from jaxtyping import Array, Float, Key

from downside.agents.learner import AbstractLearner
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv, PastAware
from downside.envs.gymnasium.flatten import flat_space, flatten_any
from downside.envs.gymnasium.rollout import VectorRollout, in_turns
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter
from downside.envs.memory_env import append_to_box
from downside.train.backends.gymnasium.adapting import WarmUp
from downside.train.backends.gymnasium.program import greedy_actions
from downside.train.backends.state import BestPolicy


class AbstractGymBackend(abc.ABC):
    """Plays in one Gymnasium environment. How it trains there is in subclasses."""

    settings_class: ClassVar[type[Settings]]
    adapts_to_long_episodes: ClassVar[bool] = False
    """Whether defaults also follow from episodes that are not short."""
    jax_env: AbstractJaxEnv | None = None
    default_episodes = 1_000
    evaluated_steps = 0

    def __init__(self, adapter: VectorEnvAdapter):
        self.adapter, self.env = adapter, adapter.env
        self.num_actions, self.first_action = adapter.num_actions, adapter.first_action
        self.mask_size = sum(adapter.choices)

    @classmethod
    @abc.abstractmethod
    def make(cls, env: Any, env_kwargs: Mapping[str, Any] | None, settings: Any) -> Any:
        """The backend for an environment, which may be an id with parameters."""

    @abc.abstractmethod
    def warm_up(self, settings: Any, key: Key[Array, ""], most_seconds: float = math.inf) -> WarmUp:
        """What some episodes of random play show, in about so many seconds at most."""

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Flat observations, without the memory of rewards."""
        flat, history = flat_space(self.env.single_observation_space), self.adapter.history
        return append_to_box(flat, history.low, history.high)

    @property
    def shown_size(self) -> int:
        """How many numbers the environment itself shows."""
        return self.adapter.history.size

    def flatten(self, observation: Any) -> tuple[Float[np.ndarray, "n d"], bool] | None:
        """Observations as the environment returns them, as rows; None if they are rows already."""
        space = self.env.single_observation_space
        if isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
            return None
        return None if self.adapter.history.low else flatten_any(space, observation)

    def make_env(self, render_mode: str | None = None) -> gym.Env:
        """A new environment of the same kind."""
        env = self.adapter.make_env(render_mode)
        if env is None:
            raise ValueError(
                f"`env` must be given: {self.adapter.name} is not registered, so that no second "
                "environment can be made."
            )
        return env

    def wrap(self, env: Any) -> Any:
        """With the last steps, where agents see them."""
        history = self.adapter.history
        return PastAware(env, history.steps, history.clock) if history.low else env

    def for_evaluation(self, episodes: int) -> VectorEnvAdapter:
        """Where so many episodes of a policy are played."""
        return self.adapter.for_evaluation(episodes)

    def simulate_returns(
        self, learner: AbstractLearner, policy: BestPolicy, episodes: int, seed: int
    ) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of a policy in new episodes."""
        act = greedy_actions(learner, policy.networks, policy.outer)
        adapter = self.for_evaluation(episodes)
        try:
            rows = VectorRollout(adapter, learner.settings.gamma, seed).play(act, episodes)
        finally:
            adapter.close()
        # The first of many episodes come from all environments.
        returns, _, lengths = np.array(in_turns(rows)).T
        self.evaluated_steps += int(lengths.sum())
        return returns

    @property
    def aligned(self) -> bool:
        """Whether episode i of an evaluation begins with the same seed for every agent."""
        return self.adapter.aligned
