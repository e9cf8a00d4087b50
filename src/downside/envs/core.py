"""The protocol of an environment that is written in JAX.

An environment is an immutable `eqx.Module` whose fields are the parameters of the problem. What
changes over time is a separate, small state. The transition is a deterministic function of the
state, the action and an explicit noise variable, so that a planner can integrate over the noise
and a test can feed the same noise to two implementations. Everything is about one copy of the
environment; callers `vmap`.
"""

import abc
from typing import Any, Generic, NamedTuple, TypeVar, final

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key

from downside.envs.noise import check_count

State = TypeVar("State")


class Transition(NamedTuple):
    """What one action leads to."""

    state: Any
    """The state after the action; the last one of the episode if it ended."""
    reward: Float[Array, ""]
    """The reward, undiscounted."""
    terminated: Bool[Array, ""]
    """The problem is over: nothing can be earned from here on."""
    truncated: Bool[Array, ""]
    """A time limit that is no part of the problem was hit: there is a future, but unseen."""


class Step(NamedTuple):
    """A `Transition` together with what the agent observes of its state."""

    state: Any
    observation: Float[Array, " d"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class AbstractJaxEnv(eqx.Module, Generic[State]):
    """An environment in JAX: parameters as fields, everything else as pure functions.

    `reset` and `step` are final and follow from `initial_state`, `sample_noise`, `transition` and
    `observe`, which a problem defines.
    """

    @property
    @abc.abstractmethod
    def num_actions(self) -> int:
        """How many actions there are; they are numbered from 0."""

    @property
    @abc.abstractmethod
    def observation_space(self) -> gym.spaces.Box:
        """The space of `observe`'s values: a flat float32 box."""

    @property
    @abc.abstractmethod
    def horizon(self) -> int | None:
        """The largest number of steps in an episode, or None if there is no bound."""

    @property
    def bounded(self) -> bool:
        """Whether every episode terminates within `horizon` steps. By default whether there is a
        horizon; a problem whose horizon only truncates must say False."""
        return self.horizon is not None

    @property
    @final
    def action_space(self) -> gym.spaces.Discrete:
        """The actions as a Gymnasium space."""
        return gym.spaces.Discrete(self.num_actions)

    @abc.abstractmethod
    def initial_state(self, key: Key[Array, ""]) -> State:
        """A state to start an episode from."""

    @abc.abstractmethod
    def sample_noise(self, key: Key[Array, ""]) -> Any:
        """The noise of one transition."""

    def sample_noises(self, key: Key[Array, ""], count: int) -> Any:
        """`count` noises for the same state, stacked along a new first axis.

        Each has the distribution of `sample_noise`. They need not be independent: a problem may
        spread them out, so that an average over them is less noisy. Here they are independent.
        """
        check_count(count)
        return jax.vmap(self.sample_noise)(jax.random.split(key, count))

    @abc.abstractmethod
    def transition(self, state: State, action: Int[ArrayLike, ""], noise: Any) -> Transition:
        """What `action` in `state` leads to under this `noise`: deterministic.

        From a state in which an episode has ended the result has no meaning.
        """

    @abc.abstractmethod
    def observe(self, state: State) -> Float[Array, " d"]:
        """What the agent sees of a state, in float32."""

    def action_mask(self, state: State) -> Bool[Array, " A"]:
        """Which actions are legal in a state: all of them, unless the problem says otherwise."""
        del state
        return jnp.ones(self.num_actions, dtype=bool)

    @final
    def reset(self, key: Key[Array, ""]) -> tuple[State, Float[Array, " d"]]:
        """The state and the observation at the start of an episode."""
        state = self.initial_state(key)
        return state, self.observe(state)

    @final
    def step(self, key: Key[Array, ""], state: State, action: Int[ArrayLike, ""]) -> Step:
        """`transition` under fresh noise. Does not reset when the episode ends."""
        return self.step_with_noise(state, action, self.sample_noise(key))

    @final
    def step_with_noise(self, state: State, action: Int[ArrayLike, ""], noise: Any) -> Step:
        """`transition` under the given noise, with the observation that follows."""
        after = self.transition(state, action, noise)
        return Step(
            after.state,
            self.observe(after.state),
            after.reward,
            after.terminated,
            after.truncated,
        )


def real_array(value: ArrayLike) -> Array:
    """`value` in JAX's default precision: 32 bits, or 64 where the caller has switched that on."""
    return jnp.asarray(value, dtype=float)
