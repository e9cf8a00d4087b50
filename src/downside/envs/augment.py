"""JAX environments that remember what they have earned.

They are environments like any other, so they `vmap`, compile and have a Gymnasium face. The
wrappers of the same purpose for any Gymnasium environment are in `downside.envs.wrappers`.
"""

import numbers
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Key

from downside.envs._parameters import real
from downside.envs.core import AbstractJaxEnv, Transition, real_array
from downside.envs.memory import LARGEST, Appended, ReturnMemory, TargetMemory


def _as_array(value: Any) -> Any:
    if isinstance(value, numbers.Real):
        return real_array(float(value))
    # What is no number at all is left for the check to refuse.
    return real_array(value) if isinstance(value, np.ndarray | Array) else value


def _target() -> Any:
    return eqx.field(converter=_as_array)


class ReturnState(NamedTuple):
    """A state and the return on the way to it."""

    inner: Any
    """State of the environment inside."""
    accumulated: Float[Array, ""]
    """s: the discounted return so far."""
    discount_so_far: Float[Array, ""]
    """c: the discount of the next reward."""


class TargetState(NamedTuple):
    """A state and what is missing to the target there."""

    inner: Any
    """State of the environment inside."""
    target: Float[Array, ""]
    """b: the return that is still missing."""


class JaxReturnAware(AbstractJaxEnv[ReturnState]):
    r"""Appends (s, c) to the observation: $s' = s + c\,k r$, $c' = \gamma c$ from (0, 1).

    The reward itself is passed on as it is, without the scale $k$.
    """

    env: AbstractJaxEnv
    """The environment inside."""
    gamma: float = real()
    """Discount γ, in (0, 1]."""
    reward_scale: float = real(1.0)
    """k: rewards are multiplied by it on their way into s."""

    def __check_init__(self):
        _ = self.memory

    @property
    def memory(self) -> ReturnMemory:
        """The equations of (s, c)."""
        return ReturnMemory(self.gamma, self.reward_scale)

    @property
    def num_actions(self) -> int:
        """As inside."""
        return self.env.num_actions

    @property
    def horizon(self) -> int | None:
        """As inside."""
        return self.env.horizon

    @property
    def bounded(self) -> bool:
        """As inside."""
        return self.env.bounded

    @property
    def observation_space(self) -> gym.spaces.Box:
        """The box inside, with s and c appended."""
        return append_to_box(self.env.observation_space, self.memory)

    def initial_state(self, key: Key[Array, ""]) -> ReturnState:
        """Nothing earned, nothing discounted."""
        return ReturnState(self.env.initial_state(key), *map(real_array, self.memory.initial))

    def sample_noise(self, key: Key[Array, ""]) -> Any:
        """As inside."""
        return self.env.sample_noise(key)

    def sample_noises(self, key: Key[Array, ""], count: int) -> Any:
        """As inside."""
        return self.env.sample_noises(key, count)

    def transition(self, state: ReturnState, action: Int[ArrayLike, ""], noise: Any) -> Transition:
        """As inside; the reward also goes into s."""
        after = self.env.transition(state.inner, action, noise)
        memory = self.memory.update((state.accumulated, state.discount_so_far), after.reward)
        return after._replace(state=ReturnState(after.state, *memory))

    def observe(self, state: ReturnState) -> Float[Array, " d"]:
        """The observation inside, s and c."""
        return _append(self.env.observe(state.inner), (state.accumulated, state.discount_so_far))

    def action_mask(self, state: ReturnState) -> Bool[Array, " A"]:
        """As inside."""
        return self.env.action_mask(state.inner)


class JaxTargetAware(AbstractJaxEnv[TargetState]):
    r"""Appends b to the observation: $b' = (b - k r)/\gamma$ from `b`.

    The reward itself is passed on as it is, without the scale $k$. `b` is the one field that is
    not static: changing it does not compile anything anew, and it may be a traced value.
    """

    env: AbstractJaxEnv
    """The environment inside."""
    gamma: float = real()
    """Discount γ, in (0, 1]."""
    b: Float[ArrayLike, ""] = _target()
    """The target at the start of each episode."""
    reward_scale: float = real(1.0)
    """k: rewards are multiplied by it on their way into b."""

    def __check_init__(self):
        if not isinstance(self.b, Tracer):
            TargetMemory(self.gamma, np.asarray(self.b).item(), self.reward_scale)

    @property
    def memory(self) -> TargetMemory:
        """The equation of b."""
        return TargetMemory(self.gamma, self.b, self.reward_scale)

    @property
    def num_actions(self) -> int:
        """As inside."""
        return self.env.num_actions

    @property
    def horizon(self) -> int | None:
        """As inside."""
        return self.env.horizon

    @property
    def bounded(self) -> bool:
        """As inside."""
        return self.env.bounded

    @property
    def observation_space(self) -> gym.spaces.Box:
        """The box inside, with b appended."""
        return append_to_box(self.env.observation_space, self.memory)

    def initial_state(self, key: Key[Array, ""]) -> TargetState:
        """The whole target is missing."""
        return TargetState(self.env.initial_state(key), real_array(self.b))

    def sample_noise(self, key: Key[Array, ""]) -> Any:
        """As inside."""
        return self.env.sample_noise(key)

    def sample_noises(self, key: Key[Array, ""], count: int) -> Any:
        """As inside."""
        return self.env.sample_noises(key, count)

    def transition(self, state: TargetState, action: Int[ArrayLike, ""], noise: Any) -> Transition:
        """As inside; the reward also brings b closer."""
        after = self.env.transition(state.inner, action, noise)
        memory = self.memory.update((state.target,), after.reward)
        return after._replace(state=TargetState(after.state, *memory))

    def observe(self, state: TargetState) -> Float[Array, " d"]:
        """The observation inside, and b."""
        return _append(self.env.observe(state.inner), (state.target,))

    def action_mask(self, state: TargetState) -> Bool[Array, " A"]:
        """As inside."""
        return self.env.action_mask(state.inner)


def append_to_box(box: gym.spaces.Box, memory: Appended) -> gym.spaces.Box:
    """The flat `box` in float32, with the bounds of the memory appended."""
    with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
        low = np.concatenate([box.low.astype(np.float32), np.array(memory.low, np.float32)])
        high = np.concatenate([box.high.astype(np.float32), np.array(memory.high, np.float32)])
    return gym.spaces.Box(low, high, dtype=np.float32)


def _append(observation: Float[Array, " d"], memory: tuple[Array, ...]) -> Float[Array, " e"]:
    remembered = jnp.clip(jnp.stack(memory), -LARGEST, LARGEST).astype(jnp.float32)
    return jnp.concatenate([observation, remembered])
