"""Environments that return what they must not get a message that says what came."""

import gymnasium as gym
import numpy as np
import pytest

from downside.envs.gymnasium.vector_adapter import EnvironmentFaultError, VectorEnvAdapter

from ...train.toys import Counter


class Returns(Counter):
    """As the counter, and after the second step something else."""

    def __init__(self, space=None, observation=None, reward=None, truncated=None):
        super().__init__(length=6)
        self.ending = truncated
        self.observation_space = Counter.observation_space if space is None else space
        self.wrong, self.reward, self.right = observation, reward, self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        plain = self.observation_space is Counter.observation_space
        return observation if plain else self.right, info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.observation_space is not Counter.observation_space:
            observation = self.right
        if self.time == 2:
            observation = observation if self.wrong is None else self.wrong
            reward = reward if self.reward is None else self.reward
            truncated = truncated if self.ending is None else self.ending
        return observation, reward, terminated, truncated, info


def play(env):
    adapter = VectorEnvAdapter(env, 1)
    adapter.reset(seed=0)
    for _ in range(4):
        adapter.step(np.zeros(1, int))


PAIR = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(0.0, 1.0, (1,))})


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (gym.spaces.Discrete(3), 3),
        (gym.spaces.Discrete(3), -1),
        (gym.spaces.Discrete(3, start=5), 4),
        (gym.spaces.Discrete(3), "1"),
        (gym.spaces.MultiDiscrete([2, 3]), np.array([1, 3])),
        (PAIR, {"a": -1, "b": np.zeros(1, np.float32)}),
    ],
)
def test_a_number_that_is_none_of_the_space_is_told(space, observation):
    with pytest.raises(EnvironmentFaultError, match=r"from `step` that is not one of .*, got "):
        play(Returns(space, observation))


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("1.5", "must return a number as reward of each step, got '1.5'"),
        (None, None),
        ([1.0, 2.0], None),
        (
            np.array([1.0, 2.0]),
            "must return one number as reward .* weigh the rewards in a wrapper",
        ),
        (1j, "must return a number as reward of each step, got 1j"),
        (np.float32(0.5), None),
        (np.array(0.5), None),
    ],
)
def test_a_reward_that_is_no_number_is_told(reward, message):
    if message is None and not isinstance(reward, list):
        play(Returns(reward=reward))
        return
    with pytest.raises(EnvironmentFaultError, match=message or "raised|must return"):
        play(Returns(reward=reward))


def test_an_observation_outside_its_box_is_told_once():
    far = np.array([302.5, 0.0], np.float32)  # the space ends at 100, and is 101 wide
    with pytest.warns(UserWarning, match=r"far outside its space: entry 0 is 302\.5\.") as warned:
        play(Returns(observation=far))
    assert len(warned) == 1


@pytest.mark.parametrize("high", [0.1, np.inf])
def test_what_is_not_far_outside_is_no_fault(high):
    # As in Gymnasium's own lander, which leaves its box; warnings are errors here.
    space = gym.spaces.Box(0.0, high, (1,), np.float64)
    play(Returns(space, np.array([-0.15])))


def test_a_text_that_says_whether_an_episode_ended_is_refused():
    message = "must return `terminated` and `truncated` as True or False .* got False and 'no'"
    with pytest.raises(EnvironmentFaultError, match=message):
        play(Returns(truncated="no"))


def test_an_environment_is_called_by_its_id():
    gym.register("tests/Returns-v0", lambda **parameters: Returns(**parameters))
    env = gym.make("tests/Returns-v0", space=gym.spaces.Discrete(3), observation=4)
    with pytest.raises(EnvironmentFaultError, match=r"^tests/Returns-v0 returned an observation"):
        play(env)
