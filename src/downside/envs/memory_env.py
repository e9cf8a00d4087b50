"""A JAX environment that shows what it has paid so far.

It is an environment like any other: it can be mapped, compiled and turned into a Gymnasium
environment. `wrappers/` has the wrappers of the same purpose for any Gymnasium environment.
"""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from downside.envs._parameters import real
from downside.envs.core import AbstractJaxEnv, Action, StepResult, real_array
from downside.envs.memory import AbstractMemoryInput, Memory, append_memory, check_memory


class MemoryState(NamedTuple):
    """A state of the environment inside, and the memory on the way to it."""

    inner: Any
    memory: Memory


class JaxMemoryAware(AbstractJaxEnv[MemoryState]):
    r"""Appends what `inputs` shows of the memory (s, c) to the observation.

    $s' = s + c\,k r$, $c' = \gamma c$ from (0, 1), with $k$ = `reward_scale`. The reward itself is
    passed on as it is.
    """

    env: AbstractJaxEnv
    """The environment inside."""
    inputs: AbstractMemoryInput
    """What of the memory is shown. Its arrays may be traced."""
    gamma: float = real()
    """Discount γ, in (0, 1]."""
    reward_scale: float = real(1.0)
    """k: rewards are multiplied by it on their way into the memory."""

    def __check_init__(self):
        check_memory(self.gamma, self.reward_scale)

    @property
    def num_actions(self) -> int:
        """As inside."""
        return self.env.num_actions

    @property
    def action_space(self) -> gym.spaces.Discrete | gym.spaces.Box:
        """As inside."""
        return self.env.action_space

    @property
    def default_gamma(self) -> float | None:
        """As inside."""
        return self.env.default_gamma

    @property
    def relaxed(self) -> "tuple[JaxMemoryAware, Float[Array, 'A k']] | None":
        """The problem inside with continuous actions, with the same memory."""
        inside = self.env.relaxed
        if inside is None:
            return None
        env, points = inside
        return JaxMemoryAware(env, self.inputs, self.gamma, self.reward_scale), points

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
        """The box inside, with the bounds of what is shown."""
        return append_to_box(self.env.observation_space, self.inputs.low, self.inputs.high)

    def initial_state(self, key: Key[Array, ""]) -> MemoryState:
        """Nothing earned, nothing discounted."""
        return MemoryState(self.env.initial_state(key), initial_memory())

    def sample_noise(self, key: Key[Array, ""]) -> Any:
        """As inside."""
        return self.env.sample_noise(key)

    def sample_noises(self, key: Key[Array, ""], count: int) -> Any:
        """As inside."""
        return self.env.sample_noises(key, count)

    def mirrored(self, noise: Any) -> Any:
        """As inside."""
        return self.env.mirrored(noise)

    def transition(self, state: MemoryState, action: Action, noise: Any) -> StepResult:
        """As inside; the reward also goes into the memory."""
        result = self.env.transition(state.inner, action, noise)
        memory = state.memory.update(self.reward_scale * result.reward, self.gamma)
        return result._replace(state=MemoryState(result.state, memory))

    def observe(self, state: MemoryState) -> Float[Array, " d"]:
        """The observation inside, and what is shown of the memory."""
        return append_memory(self.env.observe(state.inner), state.memory, self.inputs)

    def action_mask(self, state: MemoryState) -> Bool[Array, " A"]:
        """As inside."""
        return self.env.action_mask(state.inner)

    def action_bounds(self, state: MemoryState) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """As inside."""
        return self.env.action_bounds(state.inner)


def initial_memory() -> Memory:
    """(0, 1), as JAX arrays."""
    return Memory(real_array(0.0), real_array(1.0))


def append_to_box(
    box: gym.spaces.Box, low: tuple[float, ...], high: tuple[float, ...]
) -> gym.spaces.Box:
    """The flat `box` in float32, with further bounds appended."""
    with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
        lows = np.concatenate([box.low.astype(np.float32), np.array(low, np.float32)])
        highs = np.concatenate([box.high.astype(np.float32), np.array(high, np.float32)])
    return gym.spaces.Box(lows, highs, dtype=np.float32)
