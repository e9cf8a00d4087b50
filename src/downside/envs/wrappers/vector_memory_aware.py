"""Wrappers that make any Gymnasium vector environment remember what it has earned."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float

from downside.envs.gymnasium.flatten import flat_space, flatten, flatten_batch
from downside.envs.gymnasium.vector_env import reset_mask
from downside.envs.memory import (
    AbstractMemoryInput,
    Memory,
    ReturnInput,
    TargetInput,
    append,
    append_memory,
    check_memory,
)
from downside.envs.memory_env import append_to_box


class VectorMemoryAware(VectorWrapper[np.ndarray, Any, Any, Any, np.ndarray]):
    """Appends what `inputs` shows of the memory to the flattened observations.

    It is correct in every autoreset mode:

    - NEXT_STEP: the last observation of an episode carries the memory after its last reward; the
      step that follows it, which only resets, returns the memory of a new episode.
    - SAME_STEP: the last observation, in `infos["final_obs"]`, carries it; the returned
      observation belongs to the next episode.
    - DISABLED: it is kept until `reset`, with or without `options["reset_mask"]`.
    """

    def __init__(
        self,
        env: VectorEnv,
        inputs: AbstractMemoryInput,
        gamma: float,
        *,
        reward_scale: float = 1.0,
    ):
        """Wrap `env`; the arguments are those of `MemoryAware`."""
        check_memory(gamma, reward_scale)
        super().__init__(env)
        self.inputs, self.gamma, self.reward_scale = inputs, gamma, reward_scale
        self.next_inputs = inputs
        """What is shown in the episodes that start from now on."""
        self._mode = autoreset_mode(env)
        flat = flat_space(env.single_observation_space)
        self.single_observation_space = append_to_box(flat, inputs.low, inputs.high)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.memory = Memory.initial(self.num_envs)
        """(s, c) of each environment after its last reward."""
        self._over = np.zeros(self.num_envs, bool)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "n d"], dict[str, Any]]:
        """Start episodes with a fresh memory, in those copies that are reset."""
        observations, infos, chosen = reset_some(self.env, seed, options)
        self._restart(chosen)
        return self._observe(observations), infos

    def step(
        self, actions: Any
    ) -> tuple[Float[np.ndarray, "n d"], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act; the rewards go into the memory and are returned as they are."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        done = np.logical_or(terminated, truncated)
        before = self._over  # with NEXT_STEP, these copies have just been reset, not stepped
        paid = self.reward_scale * np.asarray(rewards, np.float64)
        self.memory = self.memory.update(paid, self.gamma)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._restart(before)
            self._over = done
        elif self._mode is AutoresetMode.SAME_STEP and done.any():
            infos = with_final(self.env, infos, done, self._final)
            self._restart(done)
        return self._observe(observations), rewards, terminated, truncated, infos

    def _restart(self, chosen: Bool[np.ndarray, " n"]) -> None:
        self.memory = self.memory.reset_where(chosen)
        self._over = self._over & ~chosen

    def _observe(self, observations: Any) -> Float[np.ndarray, "n d"]:
        return append_memory(flatten_batch(self.env, observations), self.memory, self.inputs)

    def _final(self, i: int, last: Any) -> Float[np.ndarray, " d"]:
        """A last observation, flat and followed by its memory."""
        flat = flatten(self.env.single_observation_space, last)
        return append(flat, tuple(values[i] for values in self.inputs.show(self.memory)))


class VectorReturnAware(VectorMemoryAware):
    """`ReturnAware` for a vector environment; for autoreset see `VectorMemoryAware`."""

    def __init__(self, env: VectorEnv, gamma: float, *, reward_scale: float = 1.0):
        """Wrap `env`; the arguments are those of `ReturnAware`."""
        super().__init__(env, ReturnInput(), gamma, reward_scale=reward_scale)


class VectorTargetAware(VectorMemoryAware):
    """`TargetAware` for a vector environment; for autoreset see `VectorMemoryAware`."""

    def __init__(self, env: VectorEnv, gamma: float, b: float, *, reward_scale: float = 1.0):
        """Wrap `env`; the arguments are those of `TargetAware`."""
        super().__init__(env, TargetInput(b), gamma, reward_scale=reward_scale)

    def set_target(self, b: float) -> None:
        """Use another target for the episodes that start from now on."""
        self.next_inputs = TargetInput(b)

    def _restart(self, chosen: Bool[np.ndarray, " n"]) -> None:
        start = Memory.initial(self.num_envs)  # what is missing at the start is the target
        (targets,), (new,) = self.inputs.show(start), self.next_inputs.show(start)
        self.inputs = TargetInput(np.where(chosen, new, targets))
        super()._restart(chosen)


def reset_some(
    env: VectorEnv, seed: Any, options: dict[str, Any] | None
) -> tuple[Any, dict[str, Any], Bool[np.ndarray, " n"]]:
    """What `env.reset` returns, and which copies it resets."""
    chosen = reset_mask(options, env.num_envs)
    # Gymnasium's own vector environments take the mask out of the dictionary they are given.
    passed_on = None if options is None else dict(options)
    observations, infos = env.reset(seed=seed, options=passed_on)
    return observations, infos, np.ones(env.num_envs, bool) if chosen is None else chosen


def with_final(
    env: VectorEnv,
    infos: dict[str, Any],
    done: Bool[np.ndarray, " n"],
    extended: Callable[[int, Any], np.ndarray],
) -> dict[str, Any]:
    """`infos` with the last observations of the episodes that are done as `extended` makes them,
    from the number of a copy and its last observation."""
    if "final_obs" not in infos:
        raise ValueError(
            f"`infos` of {env} must have the key 'final_obs' when an episode ends with autoreset "
            f"in the same step, got {sorted(infos)}. Take away what drops it."
        )
    final = np.full(len(done), None, dtype=object)
    for i in np.flatnonzero(done):
        final[i] = extended(int(i), infos["final_obs"][i])
    return infos | {"final_obs": final}


def autoreset_mode(env: gym.vector.VectorEnv) -> AutoresetMode:
    """What the environment does when an episode ends, or an error that says where to write it."""
    mode = env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise ValueError(
            "`env.metadata['autoreset_mode']` must be a gymnasium.vector.AutoresetMode, got "
            f"{mode!r}. Set it to what the environment does when an episode ends; without it the "
            "memory cannot know where one begins."
        )
    return mode
