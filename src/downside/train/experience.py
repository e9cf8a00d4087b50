"""What the agent has lived through, and how decisions to learn from are drawn from it."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm, Decision, Goal
from downside.agents.learner import Networks, action_scores
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv
from downside.ops import masked

_RANDOM_EMPHASIS = 0.2
"""How much an action drawn at random counts beside one that scores among the best."""


class Lived(NamedTuple):
    """One transition, as it was lived through."""

    state: Any
    """Where the action was taken (of the environment with its memory)."""
    action: Int[Array, ""]
    reward: Float[Array, ""]
    next_state: Any
    terminated: Bool[Array, ""]


class Replay(eqx.Module):
    """The last so many transitions; the oldest are overwritten."""

    storage: Lived
    added: Int[Array, ""]

    @classmethod
    def empty(cls, example: Lived, capacity: int) -> "Replay":
        """A replay for transitions like `example`."""
        storage = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), example)
        return cls(storage, jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        """How many it can hold."""
        return self.storage.action.shape[0]

    def add(self, lived: Lived) -> "Replay":
        """With a batch of new transitions; the capacity is a multiple of their number."""
        place = self.added % self.capacity
        storage = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, place, 0),
            self.storage,
            lived,
        )
        return Replay(storage, self.added + lived.action.shape[0])

    def latest(self, count: int) -> Lived:
        """The last so many transitions."""
        index = (self.added - count + jnp.arange(count)) % self.capacity
        return jax.tree.map(lambda leaf: leaf[index], self.storage)

    def sample(self, key: Key[Array, ""], count: int) -> Lived:
        """So many transitions, each as likely as any other."""
        index = jax.random.randint(key, (count,), 0, jnp.minimum(self.added, self.capacity))
        return jax.tree.map(lambda leaf: leaf[index], self.storage)


def lived_decision(env: AbstractJaxEnv, lived: Lived, gamma: float) -> Decision:
    """A transition as a decision with one action and one outcome."""
    after = lived.next_state
    return Decision(
        env.observe(lived.state),
        lived.action[None],
        jnp.ones(1),
        lived.reward[None, None],
        env.observe(after)[None, None],
        env.action_mask(after)[None, None],
        lived.terminated[None, None],
        jnp.full((1, 1), gamma),
    )


def simulated_decision(
    algorithm: AbstractAlgorithm,
    settings: Settings,
    env: AbstractJaxEnv,
    networks: Networks,
    goal: Goal,
    state: Any,
    amount: Float[Array, ""],
    key: Key[Array, ""],
) -> Decision:
    """A decision from a remembered state: the actions that score best there and a few at random,
    each under the same fresh noises.

    The scores are those with the memory that is larger by `amount`, as the decision will be
    relabelled.
    """
    observation, mask = env.observe(state), env.action_mask(state)
    as_seen, _ = algorithm.relabel(observation, observation[None, None], amount)
    scores = masked(action_scores(algorithm, networks, as_seen, goal), mask)
    best_count = min(settings.near_greedy, env.num_actions)
    random_count = min(settings.random_actions, env.num_actions - best_count)
    _, best = jax.lax.top_k(scores, best_count)
    legal = jnp.where(mask, 0.0, -jnp.inf)
    others = jax.random.categorical(stream(key, "actions"), legal, shape=(random_count,))
    # Where fewer are legal, the best one again, with no emphasis: after an illegal action there may
    # be no legal one, and nothing times an infinite score is NaN.
    actions = jnp.concatenate([jnp.where(mask[best], best, best[0]), others.astype(best.dtype)])
    emphasis = jnp.concatenate(
        [jnp.where(mask[best], 1.0, 0.0), jnp.full(random_count, _RANDOM_EMPHASIS)]
    )
    noises = env.sample_noises(stream(key, "noises"), settings.outcomes)
    after = jax.vmap(
        lambda action: jax.vmap(lambda noise: env.step_with_noise(state, action, noise))(noises)
    )(actions)
    return Decision(
        observation,
        actions,
        emphasis,
        after.reward,
        after.observation,
        jax.vmap(jax.vmap(env.action_mask))(after.state),
        after.terminated,
        jnp.full_like(after.reward, algorithm.gamma),
    )


def relabelled(
    algorithm: AbstractAlgorithm, decision: Decision, amount: Float[Array, ""]
) -> Decision:
    """The decision with another memory."""
    observation, after = algorithm.relabel(decision.observation, decision.next_observations, amount)
    return decision._replace(observation=observation, next_observations=after)
