import sys
from typing import Any

import gymnasium as gym
import pytest

import downside.envs  # noqa: F401 - registers the id

ID = "downside/WindyLunarLander-v0"


def test_it_is_gymnasiums_lander_with_wind():
    env = gym.make(ID, wind_power=10.0, turbulence_power=1.0, gravity=-5.0)
    lander: Any = env.unwrapped
    assert type(lander).__name__ == "LunarLander"
    assert lander.enable_wind
    assert (lander.wind_power, lander.turbulence_power, lander.gravity) == (10.0, 1.0, -5.0)
    assert gym.spec(ID).max_episode_steps == 1000
    env.close()


def test_without_box2d_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match=r'pip install "downside\[box2d\]"'):
        gym.make(ID)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("wind_power", 21.0, r"\[0, 20\]"),
        ("turbulence_power", -0.1, r"\[0, 2\]"),
        ("gravity", -12.0, r"\(-12, 0\)"),
    ],
)
def test_parameters_outside_their_range_are_refused(name, value, allowed):
    with pytest.raises(ValueError, match=f"`{name}` must be a finite number in {allowed}, got"):
        gym.make(ID, **{name: value})
