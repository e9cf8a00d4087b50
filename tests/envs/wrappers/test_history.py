"""What is remembered of the steps before, against simulations by hand, in every autoreset mode."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds
from downside.envs import GymnasiumEnv, VectorPastAware
from downside.envs.wrappers.history import History
from tests.envs.scripted import GO_ON, TERMINATE, TRUNCATE, Scripted

COPIES = 3


class Squares(gym.Env):
    """Observes the square of the time and minus the action before; actions are 5, 6 and 7."""

    observation_space = gym.spaces.Box(-10.0, 1000.0, (2,), np.float64)
    action_space = gym.spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.array([0.0, 0.0]), {}

    def step(self, action):
        self.time += 1
        return np.array([self.time**2, -float(action)]), 1.0, self.time == 5, False, {}


def test_the_last_steps_come_first_and_what_lies_before_the_episode_is_zero():
    env = ds.PastAware(Squares(), steps=2)
    observations = [env.reset(seed=0)[0], *(env.step(action)[0] for action in (7, 5, 5))]
    nothing = [0, 0, 0, 0, 0]
    np.testing.assert_array_equal(
        observations,
        [
            [0, 0, *nothing, *nothing],
            [1, -7, 1, -7, 0, 0, 1, *nothing],
            [4, -5, 3, 2, 1, 0, 0, 1, -7, 0, 0, 1],
            [9, -5, 5, 0, 1, 0, 0, 3, 2, 1, 0, 0],  # the first step is forgotten
        ],
    )
    np.testing.assert_array_equal(env.reset(seed=0)[0], observations[0])
    assert observations[2].dtype == np.float32


def test_no_steps_are_the_flat_observation():
    env = ds.PastAware(Squares(), steps=0)
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(6)[0], [1, -6])


class Episode:
    """One scripted episode by hand: the time is observed, and rises by 1 with each action."""

    def __init__(self):
        self.actions: list[int] = []

    def observed(self, steps):
        out = [len(self.actions)]
        for back in range(1, steps + 1):
            there = back <= len(self.actions)
            marks = [float(there and self.actions[-back] == one) for one in range(3)]
            out += [float(there), *marks]
        return out


def of_vector(steps, mode):
    envs = SyncVectorEnv([lambda: GymnasiumEnv(Scripted())] * COPIES, autoreset_mode=mode)
    return ds.PastAware(envs, steps)


def vector_of_wrapped(steps, mode):
    copies = [lambda: ds.PastAware(GymnasiumEnv(Scripted()), steps)] * COPIES
    return SyncVectorEnv(copies, autoreset_mode=mode)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("make", [of_vector, vector_of_wrapped])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_every_autoreset_mode_shows_what_a_simulation_by_hand_shows(make, mode, steps):
    envs = make(steps, mode)
    assert isinstance(envs, VectorPastAware) == (make is of_vector)
    observations, _ = envs.reset(seed=0)
    episodes, over = [Episode() for _ in range(COPIES)], np.zeros(COPIES, bool)
    rng, ends = np.random.default_rng(1), 0
    for _ in range(30):
        actions = rng.choice([GO_ON, TERMINATE, TRUNCATE], p=[0.7, 0.15, 0.15], size=COPIES)
        observations, _, terminated, truncated, infos = envs.step(actions)
        assert observations in envs.observation_space
        for i in range(COPIES):
            if mode is AutoresetMode.NEXT_STEP and over[i]:
                episodes[i] = Episode()
            else:
                episodes[i].actions.append(int(actions[i]))
            if mode is AutoresetMode.SAME_STEP and (terminated[i] or truncated[i]):
                np.testing.assert_array_equal(infos["final_obs"][i], episodes[i].observed(steps))
                episodes[i] = Episode()
            np.testing.assert_array_equal(observations[i], episodes[i].observed(steps))
        over = terminated | truncated
        ends += over.sum()
        if mode is AutoresetMode.DISABLED and over.any():
            observations, _ = envs.reset(options={"reset_mask": over.copy()})
            episodes = [Episode() if o else e for o, e in zip(over, episodes, strict=True)]
            np.testing.assert_array_equal(observations, [one.observed(steps) for one in episodes])
    assert ends > 10
    envs.close()


@pytest.mark.filterwarnings(
    "ignore:.*is different from the unwrapped version", "ignore:.*space m.*imum value is -?infinity"
)
def test_the_wrapper_is_a_gymnasium_environment_that_can_be_made_again():
    env = gym.make("CartPole-v1")
    check_env(ds.PastAware(env, steps=2), skip_render_check=True)
    spec = ds.PastAware(env, steps=2).spec
    assert spec is not None
    again = gym.make(spec)
    assert again.observation_space.shape == (4 + 2 * (4 + 2),)


class Steering(gym.Env):
    """Observes the time; an action is two wheels and a gear."""

    observation_space = gym.spaces.Box(0.0, 10.0, (1,), np.float32)

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert action in self.action_space
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, self.time == 5, False, {}


WHEELS = gym.spaces.Box(np.array([-1.0, -2.0]), np.array([1.0, 2.0]), dtype=np.float64)
ASSORTED_ACTIONS = [
    # The action before, as it is: float32, whatever the type of the space.
    (WHEELS, np.array([0.5, -2.0]), [0.5, -2.0]),
    # One-hot, one dimension after the other.
    (gym.spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
    (gym.spaces.MultiBinary(2), np.array([0, 1], np.int8), [0, 1]),
]


@pytest.mark.parametrize(("space", "action", "shown"), ASSORTED_ACTIONS, ids=["box", "multi", "on"])
def test_actions_of_any_fixed_size_are_remembered(space, action, shown):
    env = ds.PastAware(Steering(space), steps=2)
    env.reset(seed=0)
    env.step(action)
    observation = env.step(action)[0]
    np.testing.assert_array_equal(observation, [2, 1, *shown, 1, *shown])
    assert observation in env.observation_space


@pytest.mark.parametrize(("space", "action", "shown"), ASSORTED_ACTIONS, ids=["box", "multi", "on"])
def test_a_vector_of_environments_remembers_them_too(space, action, shown):
    envs: Any = ds.PastAware(SyncVectorEnv([lambda: Steering(space)] * 2))
    envs.reset(seed=0)
    observations = envs.step(np.stack([action, 0 * action]))[0]
    np.testing.assert_array_equal(observations[0], [1, 1, *shown])
    assert observations in envs.observation_space


def test_actions_without_a_fixed_size_are_refused():
    space = gym.spaces.Sequence(gym.spaces.Discrete(2))
    with pytest.raises(ValueError, match=r"must have actions of a fixed size.*TransformAction`"):
        ds.PastAware(Steering(space))


@pytest.mark.parametrize("steps", [-1, True])
def test_a_number_of_steps_that_is_none_is_refused(steps):
    with pytest.raises(ValueError, match="`steps` must be a whole number >= 0, got"):
        History(steps, 2, gym.spaces.Discrete(2))


def test_a_change_beyond_float32_stays_at_the_largest_number():
    memory = History(1, 1, gym.spaces.Discrete(1))
    least, most = np.array([-3e38], np.float32), np.array([3e38], np.float32)
    after = memory.update(memory.initial(), least, 0, most)
    assert after.tolist() == [np.finfo(np.float32).max, 1.0]


def test_the_mask_of_a_reset_stays_with_whoever_passed_it():
    envs: Any = of_vector(1, AutoresetMode.DISABLED)
    envs.reset(seed=0)
    options = {"reset_mask": np.array([True, False, False])}
    envs.reset(options=options)
    assert set(options) == {"reset_mask"}
