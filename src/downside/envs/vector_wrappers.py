"""Wrappers that make any Gymnasium vector environment remember what it has earned."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float

from downside.envs.augment import append_to_box
from downside.envs.flatten import flat_space, flatten, flatten_batch, remember
from downside.envs.memory import Memory, ReturnMemory, TargetMemory
from downside.envs.vector_face import reset_mask

_Memory = TypeVar("_Memory", bound=Memory)


class _VectorAware(VectorWrapper[np.ndarray, Any, Any, Any, np.ndarray], Generic[_Memory]):
    """Appends a memory of the rewards to the flattened observations."""

    memory: _Memory

    def __init__(self, env: VectorEnv, memory: _Memory):
        super().__init__(env)
        self.memory = memory
        self._mode = autoreset_mode(env)
        flat = flat_space(env.single_observation_space)
        self.single_observation_space = append_to_box(flat, memory)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._now = self._fresh()
        self._over = np.zeros(self.num_envs, bool)

    @property
    def reward_scale(self) -> float:
        """What rewards are multiplied by on their way into the memory."""
        return self.memory.reward_scale

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
        self._now = self.memory.update(self._now, np.asarray(rewards, np.float64))
        if self._mode is AutoresetMode.NEXT_STEP:
            self._restart(before)
            self._over = done
        elif self._mode is AutoresetMode.SAME_STEP and done.any():
            infos = with_final(self.env, infos, done, self._final)
            self._restart(done)
        return self._observe(observations), rewards, terminated, truncated, infos

    def _fresh(self) -> tuple[np.ndarray, ...]:
        return tuple(np.full(self.num_envs, one, np.float64) for one in self.memory.initial)

    def _restart(self, chosen: Bool[np.ndarray, " n"]) -> None:
        pairs = zip(self._fresh(), self._now, strict=True)
        self._now = tuple(np.where(chosen, new, old) for new, old in pairs)
        self._over = self._over & ~chosen

    def _observe(self, observations: Any) -> Float[np.ndarray, "n d"]:
        return remember(flatten_batch(self.env, observations), self._now)

    def _final(self, i: int, last: Any) -> Float[np.ndarray, " d"]:
        """A last observation, flat and followed by its own memory."""
        flat = flatten(self.env.single_observation_space, last)
        return remember(flat, tuple(one[i] for one in self._now))


class VectorReturnAware(_VectorAware[ReturnMemory]):
    """`ReturnAware` for a vector environment, correct in every autoreset mode.

    - NEXT_STEP: the last observation of an episode carries the s and c after its last reward; the
      step that follows it, which only resets, returns s = 0 and c = 1.
    - SAME_STEP: the last observation, in `infos["final_obs"]`, carries them; the returned
      observation belongs to the next episode and has s = 0 and c = 1.
    - DISABLED: they are kept until `reset`, with or without `options["reset_mask"]`.
    """

    def __init__(self, env: VectorEnv, gamma: float, *, reward_scale: float = 1.0):
        """Wrap `env`; the arguments are those of `ReturnAware`."""
        super().__init__(env, ReturnMemory(gamma, reward_scale))


class VectorTargetAware(_VectorAware[TargetMemory]):
    """`TargetAware` for a vector environment; for autoreset see `VectorReturnAware`."""

    def __init__(self, env: VectorEnv, gamma: float, b: float, *, reward_scale: float = 1.0):
        """Wrap `env`; the arguments are those of `TargetAware`."""
        super().__init__(env, TargetMemory(gamma, b, reward_scale))

    def set_target(self, b: float) -> None:
        """Use another target for the episodes that start from now on."""
        self.memory = TargetMemory(self.memory.gamma, b, self.memory.reward_scale)


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
