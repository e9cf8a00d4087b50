# pyright: reportMissingImports=false
"""A Gymnasium vector environment as stable-baselines3 wants it, for the benchmarks."""

from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv


class Vectorised(VecEnv):
    """A Gymnasium vector environment, with autoreset in the same step, as stable-baselines3 has
    it."""

    def __init__(self, env: gym.vector.VectorEnv):
        self.env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        """New episodes everywhere."""
        return self.env.reset(seed=self._seeds[0])[0]

    def step_async(self, actions: np.ndarray) -> None:
        """Keeps the actions."""
        self.actions = actions

    def step_wait(self) -> Any:
        """Acts."""
        observations, rewards, terminated, truncated, infos = self.env.step(self.actions)
        done = terminated | truncated
        rows: list[dict[str, Any]] = [{} for _ in done]
        for i in np.flatnonzero(done):
            rows[i]["terminal_observation"] = infos["final_obs"][i]
            rows[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        return observations, rewards.astype(np.float32), done, rows

    def close(self) -> None:
        """Nothing to do."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Of the vector environment."""
        del indices
        return [getattr(self.env, attr_name)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Of the vector environment."""
        del indices
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any):
        """Of the vector environment."""
        del indices
        return [getattr(self.env, method_name)(*arguments, **named)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """It is not."""
        del wrapper_class, indices
        return [False] * self.num_envs
