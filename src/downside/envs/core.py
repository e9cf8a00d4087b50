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

Action = Int[ArrayLike, ""] | Float[ArrayLike, " k"]
"""A number counted from 0, or a point of a box of k dimensions."""


class StepResult(NamedTuple):
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
    """A `StepResult` together with what the agent observes of its state."""

    state: Any
    observation: Float[Array, " d"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


class AbstractJaxEnv(eqx.Module, Generic[State]):
    """An environment in JAX: parameters as fields, everything else as pure functions.

    `reset` and `step` are final and follow from `initial_state`, `sample_noise`, `transition` and
    `observe`, which a problem defines. A problem with discrete actions also defines `num_actions`,
    one with continuous actions `action_space`.
    """

    @property
    def num_actions(self) -> int:
        """How many discrete actions there are, numbered from 0; 0 if actions are continuous."""
        return 0

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
    def action_space(self) -> gym.spaces.Discrete | gym.spaces.Box:
        """The actions as a Gymnasium space: `num_actions` of them, or a flat float32 box with
        finite bounds."""
        if not self.num_actions:
            raise TypeError(
                f"{type(self).__name__} must define its actions: `num_actions` if they are "
                "discrete, or `action_space`, a flat float32 gymnasium.spaces.Box with finite "
                "bounds, if they are continuous."
            )
        return gym.spaces.Discrete(self.num_actions)

    @property
    def default_gamma(self) -> float | None:
        """The discount that belongs to the problem; None if it is for the agent to choose."""
        return None

    @property
    def relaxed(self) -> "tuple[AbstractJaxEnv[State], Float[Array, 'A k']] | None":
        """The same problem with continuous actions, and the point that each action stands for.

        For discrete actions that are points of a continuous space: states, noise and observations
        are the same, and so is `transition` where an action is legal. None if there is no such
        problem.
        """
        return None

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

    def mirrored(self, noise: Any) -> Any:
        """The mirror image of a noise, as antithetic variates use it: it has the same distribution
        and moves prices the other way. None if there is none."""
        del noise
        return None

    @abc.abstractmethod
    def transition(self, state: State, action: Action, noise: Any) -> StepResult:
        """What `action` in `state` leads to under this `noise`: deterministic.

        `action` is a number for discrete actions and an array of shape (k,) for a box of k
        dimensions. Agents that follow gradients differentiate by the latter: all derivatives must
        be finite. From a state in which an episode has ended the result has no meaning.
        """

    @abc.abstractmethod
    def observe(self, state: State) -> Float[Array, " d"]:
        """What the agent sees of a state, in float32."""

    def action_mask(self, state: State) -> Bool[Array, " A"]:
        """Which discrete actions are legal in a state: all of them, unless the problem says
        otherwise. Of shape (0,) if actions are continuous."""
        del state
        return jnp.ones(self.num_actions, dtype=bool)

    def action_bounds(self, state: State) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The lowest and the highest legal continuous action in a state: the bounds of the box,
        unless the problem has tighter ones, to which its `transition` then clips."""
        del state
        space = self.action_space
        if not isinstance(space, gym.spaces.Box):
            raise TypeError(
                f"{type(self).__name__} has discrete actions ({space}), which have no bounds. "
                "`action_mask` says which of them are legal."
            )
        return real_array(space.low), real_array(space.high)

    @final
    def reset(self, key: Key[Array, ""]) -> tuple[State, Float[Array, " d"]]:
        """The state and the observation at the start of an episode."""
        state = self.initial_state(key)
        return state, self.observe(state)

    @final
    def step(self, key: Key[Array, ""], state: State, action: Action) -> Step:
        """`transition` under fresh noise. Does not reset when the episode ends."""
        return self.step_with_noise(state, action, self.sample_noise(key))

    @final
    def step_with_noise(self, state: State, action: Action, noise: Any) -> Step:
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
