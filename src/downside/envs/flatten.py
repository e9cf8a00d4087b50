"""Observations of any kind as flat float32 vectors."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import utils
from gymnasium.vector.utils import iterate
from jaxtyping import Float

from downside.envs.memory import LARGEST


def flat_space(space: gym.Space) -> gym.spaces.Box:
    """The box of flattened observations, or a sentence on why there is none."""
    if not space.is_np_flattenable:
        raise ValueError(
            f"`env` must have observations of a fixed size, got {space}. Box, Discrete, "
            "MultiDiscrete, MultiBinary, and Dict or Tuple of these work; wrap the environment in "
            "`gymnasium.wrappers.TransformObservation` to get one of them."
        )
    flat = utils.flatten_space(space)
    assert isinstance(flat, gym.spaces.Box)
    return flat


def flatten(space: gym.Space, observation: Any) -> Float[np.ndarray, " d"]:
    """One observation as a flat vector; discrete parts as one-hot."""
    return np.asarray(utils.flatten(space, observation), np.float32)


def flatten_batch(env: gym.vector.VectorEnv, observations: Any) -> Float[np.ndarray, "n d"]:
    """The observations of a vector environment, one flat vector in each row."""
    single = env.single_observation_space
    if isinstance(single, gym.spaces.Box):
        return np.reshape(observations, (env.num_envs, -1)).astype(np.float32)
    if isinstance(single, gym.spaces.Discrete):
        cells = np.arange(single.start, single.start + single.n)
        return (np.asarray(observations)[:, None] == cells).astype(np.float32)
    rows = [flatten(single, one) for one in iterate(env.observation_space, observations)]
    return np.stack(rows)


def remember(flat: np.ndarray, memory: tuple[Any, ...]) -> np.ndarray:
    """Append the memory along the last axis, in float32."""
    remembered = np.clip(np.stack(memory, axis=-1), -LARGEST, LARGEST).astype(np.float32)
    return np.concatenate([flat, remembered], axis=-1)
