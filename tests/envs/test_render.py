from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from downside.envs import CliffWalk, GymnasiumEnv, MeanReversion, ReturnAware, TargetAware
from tests.envs.scripted import Scripted

IDS = ["AmericanPut", "MeanReversion", "CliffWalk", "GuardedMaze"]


@pytest.mark.slow
@pytest.mark.parametrize("name", IDS)
def test_the_picture_changes_as_the_episode_goes_on(name):
    env = gym.make(f"downside/{name}-v0", render_mode="rgb_array")
    env.reset(seed=0)
    first: Any = env.render()
    env.step(0)
    second: Any = env.render()
    assert first.dtype == np.uint8
    assert first.shape == second.shape == (400, 600, 3)
    assert not np.array_equal(first, second)


def test_every_way_an_option_can_end_has_a_picture():
    pictures = []
    for actions in ([1], [0, 1], [0, 0]):
        face = GymnasiumEnv("AmericanPut", periods=2, render_mode="rgb_array")
        face.reset(seed=0)
        for action in actions:
            face.step(action)
        pictures.append(face.render().tobytes())
    assert len(set(pictures)) == 3


def test_the_grid_as_text():
    face = GymnasiumEnv(CliffWalk(rows=3, columns=4, slip=0.0), render_mode="ansi")
    face.reset(seed=0)
    face.step(0)
    face.step(1)
    assert face.render() == ". . . .\n. @ . .\nS # # G"


def test_trading_as_text_has_a_line_per_step():
    face = GymnasiumEnv(MeanReversion(sigma=0.0), render_mode="ansi")
    face.reset(seed=0)
    face.step(8)
    # Selling 0.4 at 1 earns 0.3992; without noise the price stays at its mean.
    assert face.render().splitlines() == [
        "action    reward  observation",
        "           0.000  [1. 0. 0.]",
        "     8     0.399  [ 1.  -0.4  0.1]",
    ]


@pytest.mark.parametrize(
    "aware", [ReturnAware(CliffWalk(), 0.9), TargetAware(CliffWalk(), 0.9, 1.0)]
)
def test_an_environment_that_remembers_looks_like_the_one_inside(aware):
    pictures = []
    for core in (aware, CliffWalk()):
        face = GymnasiumEnv(core, render_mode="rgb_array")
        face.reset(seed=0)
        pictures.append(face.render())
    np.testing.assert_array_equal(*pictures)


def test_a_problem_without_a_picture_says_so():
    face = GymnasiumEnv(Scripted(), render_mode="rgb_array")
    face.reset(seed=0)
    with pytest.raises(NotImplementedError, match="no picture of Scripted"):
        face.render()


def test_rendering_needs_a_mode():
    face = GymnasiumEnv("CliffWalk")
    face.reset(seed=0)
    with pytest.warns(UserWarning, match="called without a `render_mode`"):
        assert face.render() is None


def test_rendering_needs_an_episode():
    with pytest.raises(gym.error.ResetNeeded, match="Call `reset` before `render`"):
        GymnasiumEnv("CliffWalk", render_mode="ansi").render()
