"""What an agent remembers of the steps before: what changed, and what it did.

Much of what decides an outcome is in no observation and lasts: a wind, a drift, a mood. How the
observation has just changed tells of it. The same few lines serve one environment and a vector of
them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, overload

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate
from jaxtyping import Float

from downside.envs.gymnasium.flatten import flat_space, flatten, flatten_batch
from downside.envs.memory import LARGEST
from downside.envs.memory_env import append_to_box
from downside.envs.wrappers.vector_memory_aware import autoreset_mode, reset_some, with_final


@dataclasses.dataclass(frozen=True)
class History:
    r"""The last few steps, the latest first: $x_t - x_{t-1}$ and which action led there.

    Changes and not the earlier observations themselves: seen at the scale of observations, two that
    follow each other are alike, and what tells them apart is lost. Both are taken as agents see
    them, in 32 bits. Steps before the episode are 0. Discrete actions are one-hot, those of a box
    are as they are.
    """

    steps: int
    """How many."""
    size: int
    """Numbers in an observation."""
    actions: gym.Space
    """What there is to choose from."""
    clock: bool = False
    """Whether the number of steps since the start of the episode is behind all that."""

    def __post_init__(self):
        whole = isinstance(self.steps, int | np.integer) and not isinstance(self.steps, bool)
        if not whole or self.steps < 0:
            raise ValueError(
                f"`steps` must be a whole number >= 0, got {self.steps!r}. 1 shows how the "
                "observation has just changed, and the action before."
            )

    @property
    def low(self) -> tuple[float, ...]:
        """Changes are not bounded, actions are as their space."""
        return (*self._repeat(-np.inf, lambda box: box.low), *([0.0] if self.clock else []))

    @property
    def high(self) -> tuple[float, ...]:
        """As `low`."""
        return (*self._repeat(np.inf, lambda box: box.high), *([np.inf] if self.clock else []))

    def _repeat(
        self, change: float, bound: Callable[[gym.spaces.Box], np.ndarray]
    ) -> tuple[float, ...]:
        if not self.steps:
            return ()
        actions = bound(flat_space(self.actions, "actions"))
        return (*[change] * self.size, *actions.astype(float).tolist()) * self.steps

    def initial(self, *count: int) -> Float[np.ndarray, "*n m"]:
        """Nothing yet, for one environment or for so many."""
        return np.zeros((*count, len(self.low)), np.float32)

    def update(
        self,
        memory: Float[np.ndarray, "*n m"],
        before: Float[np.ndarray, "*n d"],
        action: Any,
        after: Float[np.ndarray, "*n d"],
    ) -> Float[np.ndarray, "*n m"]:
        """The memory after a step; discrete actions are counted from 0."""
        if self.clock:
            steps, time = memory[..., :-1], memory[..., -1:] + np.float32(1.0)
            rest = dataclasses.replace(self, clock=False)
            return np.concatenate([rest.update(steps, before, action, after), time], axis=-1)
        if not self.steps:
            return memory
        taken = self._encode(action, before.shape[:-1])
        kept = memory[..., : memory.shape[-1] - self.size - taken.shape[-1]]
        with np.errstate(over="ignore"):  # beyond float32 it stays at the largest number
            change = np.clip(after - before, -LARGEST, LARGEST)
        return np.concatenate([change, taken, kept], axis=-1)

    def _encode(self, action: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "*n m"]:
        """Actions as flat vectors, of one environment or of many."""
        if isinstance(self.actions, gym.spaces.Discrete):
            numbers = np.arange(self.actions.n)
            return (np.asarray(action)[..., None] == numbers).astype(np.float32)
        if isinstance(self.actions, gym.spaces.Box):
            return np.reshape(np.asarray(action, np.float32), (*shape, -1))
        if not shape:
            return flatten(self.actions, action)
        batch = batch_space(self.actions, shape[0])
        return np.stack([flatten(self.actions, part) for part in iterate(batch, action)])


def history_of(
    steps: int, observations: gym.Space, actions: gym.Space, clock: bool = False
) -> tuple[History, gym.spaces.Box, int]:
    """The memory for these spaces, the space of observations with it, and the first action; 0 for
    actions that are not counted."""
    flat = flat_space(observations)
    memory = History(steps, flat.shape[0], actions, clock)
    first = int(actions.start) if isinstance(actions, gym.spaces.Discrete) else 0
    return memory, append_to_box(flat, memory.low, memory.high), first


class PastAware(gym.Wrapper[np.ndarray, Any, Any, Any], gym.utils.RecordConstructorArgs):
    r"""Appends the last few steps to the observation: how it changed, and the action taken.

    After each of the last `steps` steps, the latest first, $x_t - x_{t-1}$ and the action, one-hot
    if it is discrete; zeros for what lies before the episode. Works on any environment whose
    observations and actions can be flattened; the result is a flat float32 `Box`.

    What lasts for a while and is not observed, such as a wind, shows in how observations change.
    An agent that sees it knows the risks it runs; one that does not takes a bad hour for many bad
    minutes that have nothing to do with each other, and expects them to average out.

    Calling it on a `VectorEnv` gives a `VectorPastAware`.
    """

    @overload
    def __new__(cls, env: VectorEnv, steps: int = 1, clock: bool = False) -> "VectorPastAware": ...
    @overload
    def __new__(cls, env: gym.Env, steps: int = 1, clock: bool = False) -> "PastAware": ...
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Choose the version for the kind of environment."""
        env = args[0] if args else kwargs.get("env")
        if isinstance(env, VectorEnv):
            return VectorPastAware(*args, **kwargs)
        return super().__new__(cls)

    def __init__(self, env: gym.Env, steps: int = 1, clock: bool = False):
        """Wrap `env`.

        Args:
            env: A `gymnasium.Env` or a `VectorEnv`.
            steps: How many of the last steps are shown.
            clock: Whether the number of steps since the start of the episode is shown behind them.
        """
        if not isinstance(env, gym.Env):
            raise TypeError(
                f"`env` must be a Gymnasium environment or a vector of them, got {env!r}. "
                "`gymnasium.make` gives one from an id; in an environment that is written in JAX "
                "put what matters into `observe`."
            )
        gym.utils.RecordConstructorArgs.__init__(self, steps=steps, clock=clock)
        super().__init__(env)
        self._inner_space = env.observation_space
        self.memory, self.observation_space, self._first_action = history_of(
            steps, env.observation_space, env.action_space, clock
        )
        self._now, self._last = self.memory.initial(), np.zeros(self.memory.size, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " d"], dict[str, Any]]:
        """Start an episode with nothing before it."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._now, self._last = self.memory.initial(), flatten(self._inner_space, observation)
        return np.concatenate([self._last, self._now]), info

    def step(self, action: Any) -> tuple[Float[np.ndarray, " d"], Any, bool, bool, dict[str, Any]]:
        """Act, and remember it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        flat = flatten(self._inner_space, observation)
        number = action - self._first_action if self._first_action else action
        self._now = self.memory.update(self._now, self._last, number, flat)
        self._last = flat
        return np.concatenate([flat, self._now]), reward, terminated, truncated, info


class VectorPastAware(VectorWrapper[np.ndarray, Any, Any, Any, np.ndarray]):
    """`PastAware` for a vector environment, correct in every autoreset mode: the last observation
    of an episode shows the steps that led to it, the first of the next one shows none."""

    def __init__(self, env: VectorEnv, steps: int = 1, clock: bool = False):
        """Wrap `env`; the arguments are those of `PastAware`."""
        super().__init__(env)
        self._mode = autoreset_mode(env)
        self.memory, self.single_observation_space, self._first_action = history_of(
            steps, env.single_observation_space, env.single_action_space, clock
        )
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._now = self.memory.initial(self.num_envs)
        self._last = np.zeros((self.num_envs, self.memory.size), np.float32)
        self._over = np.zeros(self.num_envs, bool)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "n d"], dict[str, Any]]:
        """Start episodes with nothing before them, in those copies that are reset."""
        observations, infos, chosen = reset_some(self.env, seed, options)
        self._restart(chosen)
        return self._observe(flatten_batch(self.env, observations)), infos

    def step(
        self, actions: Any
    ) -> tuple[Float[np.ndarray, "n d"], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act, and remember it."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        flat = flatten_batch(self.env, observations)
        done = np.logical_or(terminated, truncated)
        numbers = np.asarray(actions) - self._first_action if self._first_action else actions
        before = self._over  # with NEXT_STEP, these copies have just been reset, not stepped
        led_here = self._now
        self._now = self.memory.update(led_here, self._last, numbers, flat)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._restart(before)
            self._over = done
        elif self._mode is AutoresetMode.SAME_STEP and done.any():
            single = self.env.single_observation_space

            def ended(i: int, last: Any) -> np.ndarray:
                last = flatten(single, last)
                past = self.memory.update(led_here[i], self._last[i], numbers[i], last)
                return np.concatenate([last, past])

            infos = with_final(self.env, infos, done, ended)
            self._restart(done)
        return self._observe(flat), rewards, terminated, truncated, infos

    def _restart(self, chosen: np.ndarray) -> None:
        self._now = np.where(chosen[:, None], np.float32(0.0), self._now)
        self._over = self._over & ~chosen

    def _observe(self, flat: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n e"]:
        self._last = flat
        return np.concatenate([flat, self._now], axis=-1)
