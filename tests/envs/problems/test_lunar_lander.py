import sys
from typing import Any

import gymnasium as gym
import numpy as np
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


RISKY = "downside/RiskyLunarLander-v0"


def land(bonus_seed, action, **parameters):
    """The rewards of an episode in which one engine burns all the time."""
    env = gym.make(RISKY, **parameters)
    observation, _ = env.reset(seed=bonus_seed)
    rewards, over = [], False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
        over = terminated or truncated
    env.close()
    return rewards, float(observation[0])


def test_the_bonus_is_paid_on_the_right_side_alone_and_everything_else_is_the_same():
    for engine in (0, 1, 2, 3):
        first, side = land(0, engine)
        second, _ = land(1, engine)
        plain, _ = land(0, engine, bonus_mean=0.0, bonus_spread=0.0)
        assert first[:-1] == second[:-1] == plain[:-1]
        assert (first[-1] != second[-1]) == (side > 0.0)
        certain, _ = land(0, engine, bonus_spread=0.0)
        assert certain[-1] - plain[-1] == pytest.approx(70.0 if side > 0.0 else 0.0)


def test_the_bonus_has_its_mean_and_spread():
    # With engine 3 the lander crashes on the right.
    plain = sum(land(0, 3, bonus_mean=0.0, bonus_spread=0.0)[0])
    bonuses = [sum(land(seed, 3)[0]) - plain for seed in range(60)]
    assert abs(np.mean(bonuses) - 70.0) < 40.0  # three standard errors
    assert 70.0 < np.std(bonuses) < 130.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"bonus_spread": -1.0},
            r"`bonus_spread` must be .* in \[0, inf\), got -1.0",
        ),
        ({"layout_seed": 0.5}, "`layout_seed` must be a whole number >= 0, got 0.5"),
    ],
)
def test_wrong_parameters_of_the_gamble_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gym.make(RISKY, **arguments)
