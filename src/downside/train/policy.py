"""What an agent has learned, as something that acts."""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from downside.agents.actor_critic_learner import ActorCriticLearner
from downside.agents.learner import AbstractLearner
from downside.agents.quantile_learner import QuantileLearner
from downside.envs import AbstractMemoryInput, MemoryAware
from downside.envs.memory_env import append_to_box
from downside.train.backends.gymnasium.state import random_legal
from downside.train.backends.state import BestPolicy
from downside.train.driver import Backend


class Policy:
    """Actions, scores and return distributions for observations of `wrap(env)`."""

    def __init__(self, learner: AbstractLearner, best: BestPolicy, backend: Backend):
        self.learner, self.best, self.backend = learner, best, backend
        inputs = learner.algorithm.memory_input(best.outer)
        self.memory_input: AbstractMemoryInput = jax.tree.map(np.asarray, inputs)

    # --- one observation, or many -------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        masks: Any = None,
        explore: float = 0.0,
        generator: np.random.Generator | None = None,
    ) -> Any:
        """The action of the policy; a random one in a share `explore` of cases."""
        batch, single = self.flat(observation)
        shape = (len(batch), self.backend.mask_size)
        masks = np.ones(shape, bool) if masks is None else np.asarray(masks, bool)
        if masks.shape not in (shape, shape[1:]):
            raise ValueError(
                f"`action_masks` must have shape {shape}, got {masks.shape}: one entry per action."
            )
        masks = np.broadcast_to(masks, shape)
        actions = self.actions_of_rows(batch, masks)
        if not self.backend.num_actions:
            return actions[0] if single else actions
        if explore and generator is not None:
            legal = random_legal(generator, masks) + self.backend.first_action
            actions = np.where(generator.random(len(batch)) < explore, legal, actions)
        return int(actions[0]) if single else actions

    def actions_of_rows(
        self,
        rows: Float[np.ndarray, "n d"],
        masks: Bool[np.ndarray, "n A"] | None = None,
    ) -> np.ndarray:
        """The actions for flat observations with what the agent remembers, as the environment
        takes them."""
        if masks is None:
            masks = np.ones((len(rows), self.backend.mask_size), bool)
        actions = np.asarray(_actions(self.learner, self.best, jnp.asarray(rows), masks))
        return actions + self.backend.first_action if self.backend.num_actions else actions

    def scores_of_rows(self, rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n A"]:
        """The score of every action, for flat observations with what the agent remembers."""
        return np.asarray(_scores(self.learner, self.best, jnp.asarray(rows)), dtype=float)

    def scores(self, observation: Any) -> Float[np.ndarray, "*batch A"]:
        """The score of every action."""
        return self._map(_scores, observation)

    def quantiles(self, observation: Any) -> Float[np.ndarray, "*batch A N"]:
        """The learned quantiles of every action's return, in increasing order."""
        return self._map(_quantiles, observation)

    def quantiles_of(
        self, observations: Float[np.ndarray, "n d"], actions: Any
    ) -> Float[np.ndarray, "n N"]:
        """The learned quantiles of the return after one action for each observation."""
        if not isinstance(self.learner, ActorCriticLearner):
            numbers = np.asarray(actions, int) - self.backend.first_action
            return self.quantiles(observations)[np.arange(len(numbers)), numbers]
        taken = np.asarray(actions)
        if self.backend.num_actions:
            taken = taken - self.backend.first_action
        rows = jnp.asarray(np.asarray(observations, np.float32))
        return np.asarray(_quantiles_of(self.learner, self.best, rows, taken), dtype=float)

    def _map(self, function: Any, observation: Any) -> Any:
        if not isinstance(self.learner, QuantileLearner | ActorCriticLearner):
            raise TypeError(
                f"{self.learner.algorithm.name} has an actor, and no scores or learned return "
                "distributions. `ds.explain` simulates the returns of its actions."
            )
        batch, single = self.flat(observation)
        values = np.asarray(function(self.learner, self.best, jnp.asarray(batch)), dtype=float)
        return values[0] if single else values

    def flat(self, observation: Any) -> tuple[Float[np.ndarray, "n d"], bool]:
        """The observations as rows, and whether it was a single one."""
        flattened = None if self.memory_input.size else self.backend.flatten(observation)
        if flattened is not None:
            return flattened
        shape = self.observation_space.shape
        try:
            batch = np.asarray(observation, dtype=np.float32)
        except (TypeError, ValueError):
            batch = np.zeros(0)
        single = batch.ndim == len(shape)
        batch = batch[None] if single else batch
        if batch.ndim != 2 or batch.shape[1:] != shape:
            raise ValueError(
                f"`observation` must have shape {shape} or (n, {shape[0]}), got "
                f"{np.shape(observation)}. It is an observation of `agent.wrap(env)`: the "
                "environment's, with what the agent remembers."
            )
        return batch, single

    @property
    def observation_space(self) -> gym.spaces.Box:
        """Flat observations, with what the agent remembers."""
        inputs = self.memory_input
        return append_to_box(self.backend.observation_space, inputs.low, inputs.high)

    @property
    def appended(self) -> int:
        """How many numbers `wrap` appends to what the environment shows."""
        return self.observation_space.shape[0] - self.backend.shown_size

    # --- whole episodes -----------------------------------------------------------------------

    def wrap(self, env: Any = None, render_mode: str | None = None) -> Any:
        """An environment with what the agent remembers appended to its observations."""
        env = self.backend.wrap(self.backend.make_env(render_mode) if env is None else env)
        if not self.memory_input.size:
            return env
        return MemoryAware(env, self.memory_input, self.learner.settings.gamma)

    def returns(self, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many new episodes."""
        return self.backend.simulate_returns(self.learner, self.best, episodes, seed)


def _of_rows(
    learner: AbstractLearner, best: BestPolicy, rows: Float[Array, "n d"], function: Any, *more: Any
) -> Array:
    """A function of (observation, memory), from observations with what is shown of the memory."""
    inputs = learner.algorithm.memory_input(best.outer)
    size = rows.shape[1] - inputs.size
    memories = inputs.recover(rows[:, size:])
    return jax.vmap(function)(rows[:, :size], memories, *more)


@eqx.filter_jit
def _actions(
    learner: AbstractLearner, best: BestPolicy, rows: Float[Array, "n d"], masks: Any
) -> Array:
    def act(observation: Any, memory: Any, mask: Any) -> Array:
        return learner.act(best.networks, observation, memory, mask, best.outer)

    return _of_rows(learner, best, rows, act, jnp.asarray(masks))


@eqx.filter_jit
def _scores(
    learner: AbstractLearner, best: BestPolicy, rows: Float[Array, "n d"]
) -> Float[Array, "n A"]:
    assert isinstance(learner, QuantileLearner | ActorCriticLearner)

    def scores(observation: Any, memory: Any) -> Array:
        return learner.scores(best.networks, observation, memory, best.outer)

    return _of_rows(learner, best, rows, scores)


@eqx.filter_jit
def _quantiles(
    learner: AbstractLearner, best: BestPolicy, rows: Float[Array, "n d"]
) -> Float[Array, "n A N"]:
    assert isinstance(learner, QuantileLearner | ActorCriticLearner)

    def quantiles(observation: Any, memory: Any) -> Array:
        return jnp.sort(learner.return_quantiles(best.networks, observation, memory, best.outer))

    return _of_rows(learner, best, rows, quantiles)


@eqx.filter_jit
def _quantiles_of(
    learner: ActorCriticLearner, best: BestPolicy, rows: Float[Array, "n d"], actions: Any
) -> Float[Array, "n N"]:
    def quantiles(observation: Any, memory: Any, action: Any) -> Array:
        raw = learner.head.unclipped(action)
        values = learner.quantiles_of(best.networks, observation, memory, best.outer, raw)
        return jnp.sort(values)

    return _of_rows(learner, best, rows, quantiles, jnp.asarray(actions))
