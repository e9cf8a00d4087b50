"""What an agent has learned, as something that acts."""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector.utils import batch_space, iterate
from jaxtyping import Array, Float, Int

from downside.agents import SRM, AbstractAlgorithm, Goal, Networks, StaticCVaR, action_scores
from downside.envs import (
    AbstractJaxEnv,
    GymnasiumFace,
    PastAware,
    ReturnAware,
    TargetAware,
    VectorReturnAware,
    VectorTargetAware,
)
from downside.envs.augment import append_to_box
from downside.envs.flatten import flat_space, flatten
from downside.exact import simulate
from downside.ops import masked
from downside.train.host import Host
from downside.train.hosted_compiled import best_actions
from downside.train.playing import Player
from downside.train.program import measuring_horizon


class Policy:
    """Scores, actions and return distributions for observations of `wrap(env)`."""

    def __init__(
        self,
        algorithm: AbstractAlgorithm,
        networks: Networks,
        goal: Goal,
        env: AbstractJaxEnv | Host,
    ):
        self.algorithm, self.networks, self.goal, self.env = algorithm, networks, goal, env

    # --- one observation, or many -------------------------------------------------------------

    @property
    def num_actions(self) -> int:
        """How many actions there are."""
        return self.env.actions if isinstance(self.env, Host) else self.env.num_actions

    def predict(
        self,
        observation: Any,
        masks: Any = None,
        explore: float = 0.0,
        draws: np.random.Generator | None = None,
    ) -> Any:
        """The action with the highest score; a random one in a share `explore` of cases."""
        batch, single = self.flat(observation)
        shape = (len(batch), self.num_actions)
        masks = np.ones(shape, bool) if masks is None else np.asarray(masks, bool)
        if masks.shape not in (shape, shape[1:]):
            raise ValueError(
                f"`action_masks` must have shape {shape}, got {masks.shape}: one entry per action."
            )
        masks = np.broadcast_to(masks, shape)
        scores = np.asarray(_scores(self.algorithm, self.networks, self.goal, jnp.asarray(batch)))
        actions = np.where(masks, scores, -np.inf).argmax(axis=1)
        if explore and draws is not None:
            legal = np.where(masks, draws.random(shape), -1.0).argmax(axis=1)
            actions = np.where(draws.random(len(batch)) < explore, legal, actions)
        actions = actions + self._first_action
        return int(actions[0]) if single else actions

    def scores(self, observation: Any) -> Float[np.ndarray, "*batch A"]:
        """The score of every action."""
        batch, single = self.flat(observation)
        scores = _scores(self.algorithm, self.networks, self.goal, jnp.asarray(batch))
        out = np.asarray(scores, dtype=float)
        return out[0] if single else out

    def quantiles(self, observation: Any) -> Float[np.ndarray, "*batch A N"]:
        """The learned quantiles of every action's return, in increasing order."""
        batch, single = self.flat(observation)
        quantiles = _quantiles(self.algorithm, self.networks, self.goal, jnp.asarray(batch))
        out = np.asarray(quantiles, dtype=float)
        return out[0] if single else out

    def flat(self, observation: Any) -> tuple[Float[np.ndarray, "n d"], bool]:
        """The observations as rows, and whether it was a single one."""
        size = self.observation_space.shape
        if isinstance(self.env, Host) and not self._remembers:
            space = self.env.env.single_observation_space
            if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
                return _flattened(space, observation)
        try:
            batch = np.asarray(observation, dtype=np.float32)
        except (TypeError, ValueError):
            batch = np.zeros(0)
        single = batch.ndim == len(size)
        batch = batch[None] if single else batch
        if batch.ndim != 2 or batch.shape[1:] != size:
            raise ValueError(
                f"`observation` must have shape {size} or (n, {size[0]}), got "
                f"{np.shape(observation)}. It is an observation of `agent.wrap(env)`: the "
                "environment's, with what the agent remembers."
            )
        return batch, single

    @property
    def observation_space(self) -> gym.spaces.Box:
        """What the networks look at: flat observations, with what the agent remembers."""
        if not isinstance(self.env, Host):
            return self.algorithm.wrap(self.env, self.goal).observation_space
        flat = append_to_box(flat_space(self.env.env.single_observation_space), self.env.past)
        remembered = self.algorithm.remembered(jnp.zeros(()), jnp.ones(()), self.goal).shape[0]
        endless = np.full(remembered, np.inf, np.float32)
        return gym.spaces.Box(
            np.concatenate([flat.low, -endless]),
            np.concatenate([flat.high, endless]),
            dtype=np.float32,
        )

    @property
    def _remembers(self) -> bool:
        past = isinstance(self.env, Host) and self.env.past.steps > 0
        return past or isinstance(self.algorithm, SRM | StaticCVaR)

    @property
    def appended(self) -> int:
        """How many numbers `wrap` appends to what the environment shows."""
        core = self.env
        shown = core.past.size if isinstance(core, Host) else core.observation_space.shape[0]
        return self.observation_space.shape[0] - shown

    @property
    def _first_action(self) -> int:
        space = self.env.env.single_action_space if isinstance(self.env, Host) else None
        return int(space.start) if isinstance(space, gym.spaces.Discrete) else 0

    # --- whole episodes -----------------------------------------------------------------------

    def wrap(self, env: Any = None, render_mode: str | None = None) -> Any:
        """An environment with what the agent remembers appended to its observations."""
        env = self._another(render_mode) if env is None else env
        if isinstance(self.env, Host) and self.env.past.steps:
            env = PastAware(env, self.env.past.steps)
        vector = isinstance(env, gym.vector.VectorEnv)
        gamma = self.algorithm.gamma
        if isinstance(self.algorithm, SRM):
            return (VectorReturnAware if vector else ReturnAware)(env, gamma=gamma)
        if isinstance(self.algorithm, StaticCVaR):
            target = float(self.goal)
            return (VectorTargetAware if vector else TargetAware)(env, gamma=gamma, b=target)
        return env

    def _another(self, render_mode: str | None) -> gym.Env:
        """A new environment like the one the agent was trained on."""
        if not isinstance(self.env, Host):
            return GymnasiumFace(core=self.env, render_mode=render_mode)
        made = self.env.another(render_mode)
        if made is None:
            raise ValueError(
                f"`env` must be given: {self.env.name} is not registered, so that no second one "
                "can be made."
            )
        return made

    def returns(self, episodes: int, seed: int) -> Float[np.ndarray, " episodes"]:
        """The discounted returns of so many episodes, under fresh noise."""
        if isinstance(self.env, Host):
            return self._hosted_returns(self.env.for_evaluation(episodes), episodes, seed)
        returns, _ = simulate(
            self.env,
            GreedyPolicy(self.algorithm, self.networks, self.goal, self.env),
            gamma=self.algorithm.gamma,
            episodes=episodes,
            key=jax.random.key(seed),
            horizon=measuring_horizon(self.env, self.algorithm.gamma),
        )
        return returns

    def _hosted_returns(
        self, host: Host, episodes: int, seed: int
    ) -> Float[np.ndarray, " episodes"]:
        choose = best_actions(self.algorithm, self.networks, self.goal)
        try:
            return Player(host, choose, self.algorithm.gamma, seed).returns(episodes)
        finally:
            host.close()


class GreedyPolicy(eqx.Module):
    """The policy in a JAX environment, as a function of the state and of what was earned so far."""

    algorithm: AbstractAlgorithm
    networks: Networks
    goal: Goal
    env: AbstractJaxEnv

    def __call__(
        self, state: Any, accumulated: Float[Array, ""], discount: Float[Array, ""]
    ) -> Int[Array, ""]:
        """The best of the legal actions."""
        remembered = self.algorithm.remembered(accumulated, discount, self.goal)
        observation = jnp.concatenate([self.env.observe(state), remembered])
        scores = action_scores(self.algorithm, self.networks, observation, self.goal)
        return jnp.argmax(masked(scores, self.env.action_mask(state)))


def _flattened(space: gym.Space, observation: Any) -> tuple[Float[np.ndarray, "n d"], bool]:
    """Observations of any space as rows: one of them, or a batch as a vector environment has it."""
    if isinstance(space, gym.spaces.Discrete):
        numbers = np.asarray(observation)
        if numbers.ndim <= 1 and np.issubdtype(numbers.dtype, np.integer):
            rows = [flatten(space, one) for one in numbers.ravel()]
            return np.stack(rows), numbers.ndim == 0
    elif space.contains(observation):
        return flatten(space, observation)[None], True
    else:
        try:
            count = len(_first_part(observation))
            rows = [flatten(space, one) for one in iterate(batch_space(space, count), observation)]
            return np.stack(rows), False
        except (TypeError, ValueError, KeyError, IndexError):
            pass
    raise ValueError(
        f"`observation` must be one of {space}, or a batch of them as a vector environment returns "
        f"it, got {observation!r}."
    )


def _first_part(observation: Any) -> Any:
    while isinstance(observation, dict | tuple):
        parts = observation.values() if isinstance(observation, dict) else observation
        observation = next(iter(parts))
    return observation


@eqx.filter_jit
def _scores(
    algorithm: AbstractAlgorithm, networks: Networks, goal: Goal, batch: Float[Array, "n d"]
) -> Float[Array, "n A"]:
    return jax.vmap(lambda one: action_scores(algorithm, networks, one, goal))(batch)


@eqx.filter_jit
def _quantiles(
    algorithm: AbstractAlgorithm, networks: Networks, goal: Goal, batch: Float[Array, "n d"]
) -> Float[Array, "n A N"]:
    seen = jax.vmap(lambda one: algorithm.view(one, goal))(batch)
    return jnp.sort(jax.vmap(networks.quantiles)(seen), axis=-1)
