"""Gymnasium environments whose every number is known, and some that misbehave."""

from typing import Any

import gymnasium as gym
import numpy as np


class Counter(gym.Env):
    """Observes the step and what was done last; action 1 pays 1, action 0 nothing; `length` steps.

    Ends by termination, or by truncation if `truncates`.
    """

    observation_space = gym.spaces.Box(-1.0, 100.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=4, truncates=False):
        self.length, self.truncates = length, truncates

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.array([0.0, -1.0], np.float32), {}

    def step(self, action) -> Any:
        self.time += 1
        over = self.time == self.length
        observation = np.array([self.time, action], np.float32)
        return observation, float(action), over and not self.truncates, over and self.truncates, {}


class Noisy(Counter):
    """As the counter, and the reward is noisy: action 1 is a gamble with the better mean."""

    def step(self, action) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        reward = self.np_random.normal(0.3, 1.0) if action == 1 else 0.0
        return observation, float(reward), terminated, truncated, info


class Masked(Counter):
    """As the counter, but in even steps only action 0 is legal; the other one is an error."""

    def mask(self):
        return np.array([1, self.time % 2], np.int8)

    def reset(self, *, seed=None, options=None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, {"action_mask": self.mask()}

    def step(self, action) -> Any:
        if not self.mask()[action]:
            raise AssertionError("an illegal action was taken")
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"action_mask": self.mask()}


class Assorted(Counter):
    """As the counter, with observations of several kinds in one dictionary."""

    observation_space = gym.spaces.Dict(
        {
            "last": gym.spaces.Discrete(3),
            "time": gym.spaces.Box(0.0, 100.0, (1,), np.float64),
            "parts": gym.spaces.MultiDiscrete([2, 3]),
        }
    )

    def _observed(self, array):
        time, last = array
        parts = np.array([int(time) % 2, int(time) % 3])
        return {"last": int(last) + 1, "time": np.array([time], np.float64), "parts": parts}

    def reset(self, *, seed=None, options=None) -> Any:
        return self._observed(super().reset(seed=seed)[0]), {}

    def step(self, action) -> Any:
        observation, *rest = super().step(action)
        return self._observed(observation), *rest


class Faulty(Counter):
    """Does something wrong at its tenth step."""

    def __init__(self, fault):
        super().__init__(length=3)
        self.fault, self.steps = fault, 0

    def step(self, action) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        if self.steps >= 10:
            if self.fault == "raises":
                raise OSError("the simulator is gone")
            if self.fault == "nan reward":
                reward = float("nan")
            if self.fault == "nan observation":
                observation = np.full(2, np.nan, np.float32)
            if self.fault == "text":
                observation = np.array(["a", "b"])
            if self.fault == "complex":
                observation = observation.astype(np.complex64)
            if self.fault == "shape":
                observation = np.zeros(3, np.float32)
            if self.fault == "mask":
                info = {"action_mask": np.zeros(2)}
        return observation, reward, terminated, truncated, info


class Continuous(Counter):
    """Has actions that no agent of ours can take."""

    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
