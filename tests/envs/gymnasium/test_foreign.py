"""Environments as people have them: any observation is flattened or refused with the wrapper that
helps, and what an environment does wrong is said."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from downside.envs.gymnasium.flatten import flat_space
from downside.envs.gymnasium.vector_adapter import EnvironmentFaultError, VectorEnvAdapter

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Mission(gym.Space):
    """A space that Gymnasium does not know, as MiniGrid has for its missions."""

    def __repr__(self):  # the ids of the tests must not depend on where it is in memory
        return "Mission"

    def sample(self, mask=None, probability=None):
        return "get the key"

    def contains(self, x):
        return isinstance(x, str)


class Foreign(gym.Env):
    """Shows any space, and pays and returns whatever it is told to."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any = BOX, reward: Any = 1.0, reset=None, step=None, **_):
        self.observation_space, self._reward, self._reset, self._step = space, reward, reset, step

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        observation = self.observation_space.sample()
        return (observation, {}) if self._reset is None else self._reset(observation)

    def step(self, action):
        observation = self.observation_space.sample()
        if self._step is not None:
            return self._step(observation)
        return observation, self._reward, True, False, {}


def play(env):
    """One reset and one step, as an agent sees them."""
    adapter = VectorEnvAdapter(env, 1)
    first, _ = adapter.reset(0)
    return first, adapter.step(np.zeros(1, int))


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Dict(place=BOX, kind=spaces.Discrete(3)), 5),
        (spaces.Dict(place=BOX, mission=spaces.Text(7)), 9),
        (spaces.Tuple((BOX, spaces.Discrete(3))), 5),
        (spaces.MultiBinary(4), 4),
        (spaces.MultiBinary((2, 3)), 6),
        (spaces.MultiDiscrete([2, 3]), 5),
        (spaces.Dict(inner=spaces.Dict(place=BOX)), 2),
    ],
    ids=str,
)
def test_what_has_a_fixed_size_is_flattened(space, size):
    first, step = play(Foreign(space))
    assert first.shape == step.next_observations.shape == (1, size)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Mission(), r"of a fixed size, in numbers, got Mission\. .*TransformObservation`"),
        (
            spaces.Dict(image=BOX, way=spaces.Discrete(4), mission=Mission()),
            r"got 'mission': Mission\. .*FilterObservation\(env, \['image', 'way'\]\)`",
        ),
        (spaces.Tuple((BOX, Mission())), r"got Tuple\(Box.*, Mission\)\. .*TransformObservation`"),
        (spaces.Sequence(BOX), r"got Sequence\(.*TransformObservation` to get one of them"),
        (
            spaces.Dict(fixed=BOX, many=spaces.Sequence(BOX)),
            r"got 'many': Sequence\(.*FilterObservation\(env, \['fixed'\]\)`",
        ),
        (spaces.Graph(BOX, None), r"got Graph\("),
    ],
    ids=str,
)
def test_what_has_none_is_refused_with_the_wrapper_that_helps(space, message):
    with pytest.raises(ValueError, match=message):
        VectorEnvAdapter(Foreign(space), 1)
    with pytest.raises(ValueError, match=message):
        flat_space(space)


def test_the_wrapper_helps():
    space = spaces.Dict(image=BOX, way=spaces.Discrete(4), mission=Mission())
    first, _ = play(gym.wrappers.FilterObservation(Foreign(space), ["image", "way"]))
    assert first.shape == (1, 6)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (np.array([1.0, 2.0]), r"one number as reward .* got 2: array.*mo_gymnasium.*LinearReward"),
        ([1.0, 2.0], r"one number as reward of each step, got 2: \[1\.0, 2\.0\]"),
        ([1.0, [2.0]], r"a number as reward of each step, got \[1\.0, \[2\.0\]\], of type list"),
        ("1.0", r"a number as reward .* got '1\.0', of type str\. .*TransformReward`"),
        (None, r"a number as reward of each step, got None, of type NoneType"),
    ],
)
def test_a_reward_that_is_not_one_number_is_refused(reward, message):
    with pytest.raises(EnvironmentFaultError, match=message):
        play(Foreign(reward=reward))


def test_a_reward_in_an_array_of_one_is_a_number():
    _, step = play(Foreign(reward=np.array([3.0])))
    np.testing.assert_array_equal(step.rewards, [3.0])


OLD = [
    (
        {"reset": lambda observation: observation},
        r"must return \(observation, info\) from `reset`, got array.*shimmy",
    ),
    (
        {"reset": lambda observation: (observation, "info")},
        r"must return \(observation, info\) from `reset`",
    ),
    (
        {"step": lambda observation: (observation, 1.0, True, {})},
        r"from `step`, got 4 values\. .*\(observation, reward, done, info\).*shimmy",
    ),
    ({"step": lambda observation: None}, r"from `step`, got None"),
]


@pytest.mark.parametrize(("answers", "message"), OLD)
def test_an_environment_of_an_older_api_is_told_what_to_return(answers, message):
    with pytest.raises(EnvironmentFaultError, match=message):
        play(Foreign(**answers))


def test_a_reset_without_seed_is_named_as_old():
    class Unseeded(Foreign):
        def reset(self):  # pyright: ignore[reportIncompatibleMethodOverride]
            return self.observation_space.sample(), {}

    with pytest.raises(EnvironmentFaultError, match=r"argument 'seed'\. It may be written for an"):
        play(Unseeded())


@pytest.fixture
def registered():
    """Ids of an old environment, and of one with two rewards."""
    gym.register("Old-v0", lambda **more: Foreign(**OLD[2][0], **more), max_episode_steps=5)
    gym.register("Two-v0", lambda **more: Foreign(reward=np.ones(2), **more), max_episode_steps=5)
    yield
    gym.registry.pop("Old-v0")
    gym.registry.pop("Two-v0")


@pytest.mark.filterwarnings("ignore")
def test_the_same_is_said_of_ids_and_of_vector_environments(registered):
    with pytest.raises(EnvironmentFaultError, match=r"expected 5, got 4\)\. It may be written for"):
        play("Old-v0")
    two = gym.make_vec("Two-v0", num_envs=1, vectorization_mode="sync")
    with pytest.raises(EnvironmentFaultError, match=r"reward may be several.*LinearReward"):
        play(two)


def test_what_an_environment_warns_of_is_said_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapter = VectorEnvAdapter("CartPole-v0", 8)
    adapter.close()
    assert len([each for each in caught if "out of date" in str(each.message)]) == 1
