"""Names of observations and actions, wherever an environment keeps them."""

import gymnasium as gym
import numpy as np
import pytest

from downside.explanation.names import names_of


class Valve(gym.Env):
    """Two numbers, two actions."""

    def __init__(self, space=None):
        self.observation_space = space or gym.spaces.Box(0.0, 1.0, (2,))
        self.action_space = gym.spaces.Discrete(2)


class InMetadata(Valve):
    def __init__(self):
        super().__init__()
        self.metadata = {
            "observation_names": ["pressure", "flow"],
            "action_names": ["close", "open"],
        }


class AsAttributes(Valve):
    observation_names, action_names = ("pressure", "flow"), ("close", "open")


class OnSpaces(Valve):
    def __init__(self):
        super().__init__()
        self.observation_space.names = ["pressure", "flow"]  # pyright: ignore
        self.action_space.names = np.array(["close", "open"])  # pyright: ignore


@pytest.mark.parametrize("kind", [InMetadata, AsAttributes, OnSpaces])
def test_names_are_found_behind_wrappers(kind):
    names = names_of(gym.wrappers.TimeLimit(kind(), 10))
    assert names.observation(np.array([0.2, 0.7])) == {"pressure": 0.2, "flow": 0.7}
    assert [names.action(0), names.action(1)] == ["close", "open"]


def test_the_parts_of_a_dictionary_have_the_names_of_its_keys():
    parts = {"flow": gym.spaces.Box(0.0, 1.0, (1,)), "mode": gym.spaces.Discrete(2)}
    names = names_of(Valve(gym.spaces.Dict(parts)))
    assert names.observation(np.array([0.5, 0.0, 1.0])) == {"flow": 0.5, "mode 0": 0.0, "mode 1": 1}
    assert names.action(1) == "action 1"


def test_a_text_is_no_list_of_names():
    env = Valve()
    env.metadata = {"observation_names": "pressure"}
    assert list(names_of(env).observation(np.zeros(2))) == ["observation 0", "observation 1"]
