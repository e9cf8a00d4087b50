"""Observations of any kind as flat vectors: in float32, or as bytes if that is what they are."""

import re
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import utils
from gymnasium.vector.utils import batch_space, iterate
from jaxtyping import Float, Shaped


def flat_space(space: gym.Space, what: str = "observations") -> gym.spaces.Box:
    """The box of flattened observations or actions, or a sentence on why there is none."""
    if _is_flattenable(space):
        flat = utils.flatten_space(space)
        assert isinstance(flat, gym.spaces.Box)
        return flat
    got = f"got {_shortened(space)}"
    remedy = (
        f"Wrap the environment in `gymnasium.wrappers.Transform{what.capitalize()[:-1]}` to get "
        "one of them."
    )
    if isinstance(space, gym.spaces.Dict):
        good = [name for name, part in space.spaces.items() if _is_flattenable(part)]
        bad = [name for name in space.spaces if name not in good]
        got = "got " + ", ".join(f"{name!r}: {_shortened(space[name])}" for name in bad)
        if good and what == "observations":
            remedy = (
                "Leave out what has none: "
                f"`gymnasium.wrappers.FilterObservation(env, {good!r})`, or turn it into numbers "
                "with `gymnasium.wrappers.TransformObservation`."
            )
    raise ValueError(
        f"`env` must have {what} of a fixed size, in numbers, {got}. Box, Discrete, "
        f"MultiDiscrete, MultiBinary, and Dict or Tuple of these work. {remedy}"
    )


def _is_flattenable(space: gym.Space) -> bool:
    try:
        return bool(space.is_np_flattenable)
    except NotImplementedError:  # a space that Gymnasium does not know
        return False


def _shortened(space: gym.Space) -> str:
    # Spaces without a text of their own have their address in it.
    text = re.sub(r"<(?:\w+\.)*(\w+) object at 0x[0-9a-f]+>", r"\1", str(space))
    return text if len(text) <= 200 else f"{text[:200]}..."


def flatten(space: gym.Space, observation: Any) -> Float[np.ndarray, " d"]:
    """One observation as a flat vector; discrete parts as one-hot."""
    return np.asarray(utils.flatten(space, observation), np.float32)


def is_bytes(space: gym.Space) -> bool:
    """Whether observations are bytes, such as pixels."""
    return isinstance(space, gym.spaces.Box) and space.dtype == np.uint8


def flatten_batch(
    env: gym.vector.VectorEnv, observations: Any, dtype: Any = np.float32
) -> Shaped[np.ndarray, "n d"]:
    """The observations of a vector environment, one flat vector in each row."""
    single = env.single_observation_space
    if isinstance(single, gym.spaces.Box):
        # Always a copy: some vector environments overwrite what they returned.
        return np.reshape(observations, (env.num_envs, -1)).astype(dtype)
    if isinstance(single, gym.spaces.Discrete):
        cells = np.arange(single.start, single.start + single.n)
        return (np.asarray(observations)[:, None] == cells).astype(np.float32)
    rows = [flatten(single, one) for one in iterate(env.observation_space, observations)]
    return np.stack(rows)


def flatten_any(space: gym.Space, observation: Any) -> tuple[Float[np.ndarray, "n d"], bool]:
    """Observations of any space as rows, and whether it was a single one.

    They are one observation, or a batch as a vector environment returns it.
    """
    if isinstance(space, gym.spaces.Discrete):
        numbers = np.asarray(observation)
        if numbers.ndim <= 1 and np.issubdtype(numbers.dtype, np.integer):
            rows = [flatten(space, number) for number in numbers.ravel()]
            return np.stack(rows), numbers.ndim == 0
    elif space.contains(observation):
        return flatten(space, observation)[None], True
    else:
        try:
            batch = batch_space(space, len(_first_part(observation)))
            rows = [flatten(space, part) for part in iterate(batch, observation)]
            return np.stack(rows), False
        except (TypeError, ValueError, KeyError, IndexError):
            pass
    raise ValueError(
        f"`observation` must be one of {space}, or a batch of them as a vector environment returns "
        f"it, got {observation!r}."
    )


def _first_part(observation: Any) -> Any:
    while isinstance(observation, dict | tuple):
        parts = observation.values() if isinstance(observation, dict) else observation
        observation = next(iter(parts))
    return observation
