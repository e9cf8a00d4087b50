"""A Gymnasium environment whose answers are checked before they are batched, with errors that say
what it did."""

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from downside.envs.faults import EnvironmentFaultError
from downside.envs.gymnasium.flatten import flat_space

_NUMBERS = (int, float, np.number, np.bool_)
_TRUTH = (*_NUMBERS, np.ndarray, type(None))
"""Types that `terminated` and `truncated` may have; a text would be true, whatever it says."""
OLD_STYLE_REMEDY = (
    "return what Gymnasium's API asks for, or wrap it: the package shimmy has wrappers for older "
    "environments."
)
SEVERAL_REWARDS = (
    "An agent optimises the risk of one return: weigh the rewards in a wrapper, such as "
    "`mo_gymnasium.wrappers.LinearReward(env, weight=weights)` or a `gymnasium.RewardWrapper`."
)


def shown(value: Any) -> str:
    """A value in an error message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."


def _has_places(space: gym.Space, observation: Any) -> bool:
    """Whether discrete parts of an observation are in range: others have no place in one-hot."""
    if isinstance(space, gym.spaces.Discrete):
        return bool(space.contains(observation))
    if isinstance(space, gym.spaces.Dict) and isinstance(observation, Mapping):
        return all(_has_places(part, observation[name]) for name, part in space.spaces.items())
    if isinstance(space, gym.spaces.Tuple) and isinstance(observation, tuple | list):
        return all(map(_has_places, space.spaces, observation))
    if isinstance(space, gym.spaces.MultiDiscrete):
        return bool(space.contains(np.asarray(observation, space.dtype)))
    return True


class CheckedEnv(gym.Wrapper):
    """Sees to it that the observations are what the space says, before they are batched, where a
    wrong type would be cast in silence; and ends episodes when it is told to."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        space = env.observation_space
        flat_space(space)  # an error that says what to do, before the environments are made one
        # Asked at every step, and slow to find through all the wrappers.
        self._space = space
        self._box = space if isinstance(space, gym.spaces.Box) else None
        made = env.unwrapped.spec
        self.name = str(env.unwrapped) if made is None else made.id
        """In errors."""
        self.cut = False
        """Whether the next step is the last one of the episode."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """As inside."""
        self.cut = False
        answer = self.env.reset(**arguments)
        pair = isinstance(answer, tuple | list) and len(answer) == 2
        if not pair or not isinstance(answer[1], Mapping):
            raise EnvironmentFaultError(
                f"{self.name} must return (observation, info) from `reset`, got "
                f"{shown(answer)}. That is how environments were written before Gymnasium; "
                f"{OLD_STYLE_REMEDY}"
            )
        observation, info = answer
        return self._check(observation, "reset"), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As inside."""
        answer = self.env.step(action)
        several = isinstance(answer, tuple | list)
        if not several or len(answer) != 5:
            many = f"{len(answer)} values" if several else shown(answer)
            raise EnvironmentFaultError(
                f"{self.name} must return (observation, reward, terminated, truncated, info) from "
                f"`step`, got {many}. Environments written before Gymnasium return (observation, "
                f"reward, done, info); {OLD_STYLE_REMEDY}"
            )
        observation, reward, terminated, truncated, info = answer
        if not isinstance(reward, _NUMBERS):
            reward = self._number(reward)
        if not (isinstance(terminated, _TRUTH) and isinstance(truncated, _TRUTH)):
            raise EnvironmentFaultError(
                f"{self.name} must return `terminated` and `truncated` as True or False from "
                f"`step`, got {shown(terminated)} and {shown(truncated)}."
            )
        return self._check(observation, "step"), reward, terminated, truncated or self.cut, info

    def _number(self, reward: Any) -> Any:
        """A reward that is no plain number: an array of one, or an error."""
        try:
            array = np.asarray(reward)
        except ValueError:  # lists of different lengths
            array = np.asarray(None)
        if array.dtype.kind not in "biuf":
            raise EnvironmentFaultError(
                f"{self.name} must return a number as reward of each step, got {shown(reward)}, "
                f"of type {type(reward).__name__}. Turn it into a number in the environment, or "
                "with `gymnasium.wrappers.TransformReward`."
            )
        if array.size != 1:
            raise EnvironmentFaultError(
                f"{self.name} must return one number as reward of each step, got {array.size}: "
                f"{shown(reward)}. {SEVERAL_REWARDS}"
            )
        return array.item()

    def _check(self, observation: Any, what: str) -> Any:
        space = self._box
        if space is not None:
            got = np.asarray(observation)
            if got.shape == space.shape and got.dtype == space.dtype:
                return observation
            if got.shape != space.shape or not np.can_cast(got.dtype, space.dtype, "same_kind"):
                raise EnvironmentFaultError(
                    f"{self.name} returned an observation from `{what}` of shape {got.shape} and "
                    f"type {got.dtype}, but its space is {space.shape}, {space.dtype}."
                )
        elif not _has_places(self._space, observation):
            raise EnvironmentFaultError(
                f"{self.name} returned an observation from `{what}` that is not one of "
                f"{self._space}, got {observation!r}."
            )
        return observation


class RepeatableEnv(CheckedEnv):
    """Begins every episode with a seed of its own, not where the one before left the generator:
    what happens in an episode then does not depend on what was done in earlier ones."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._root, self._episode = 0, 0

    def reset(self, *, seed: int | None = None, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """With a seed the first of several episodes; without, the next of them."""
        self._root, self._episode = (self._root, self._episode + 1) if seed is None else (seed, 0)
        return super().reset(seed=spread_seeds((self._root, self._episode), 1)[0], **arguments)


def spread_seeds(seed: int | tuple[int, ...] | None, count: int) -> list[int]:
    """So many seeds that have nothing in common with those of other numbers."""
    return [int(word >> 1) for word in np.random.SeedSequence(seed).generate_state(count)]


def env_maker(kind: type[CheckedEnv], env_id: str, parameters: Mapping[str, Any]) -> Any:
    """Makes an environment as often as it is called; what it warns of is said the first time."""
    warned = False

    def make() -> gym.Env:
        nonlocal warned
        with warnings.catch_warnings():
            if warned:
                warnings.simplefilter("ignore")
            warned = True
            return kind(gym.make(env_id, **parameters))

    return make
