"""Episodes of the vector adapter: truncated on demand, repeatable, with the last steps."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds
from downside.envs.gymnasium.vector_adapter import VectorEnvAdapter

from ...train.toys import Counter


def test_an_episode_that_is_cut_off_is_truncated_and_a_new_one_begins():
    adapter = VectorEnvAdapter(Counter(5), 1)
    adapter.reset(seed=0)
    adapter.step(np.array([1]))
    adapter.cut(np.array([True]))
    step = adapter.step(np.array([1]))
    assert (bool(step.over[0]), bool(step.terminated[0])) == (True, False)
    assert tuple(step.next_observations[0]) == (2, 1)
    assert tuple(step.observations[0]) == (0, -1)
    assert bool(step.started[0])
    assert not adapter.step(np.array([1])).over[0]  # once


def test_the_end_of_an_episode_that_is_cut_off_stays_its_end():
    adapter = VectorEnvAdapter(Counter(1), 1)
    adapter.reset(seed=0)
    adapter.cut(np.array([True]))
    step = adapter.step(np.array([1]))
    assert (bool(step.over[0]), bool(step.terminated[0])) == (True, True)


def test_only_the_episodes_that_are_meant_are_cut_off():
    adapter = VectorEnvAdapter("CartPole-v1", 3)
    adapter.reset(seed=0)
    adapter.cut(np.array([False, True, False]))
    assert adapter.step(np.zeros(3, int)).over.tolist() == [False, True, False]


def test_a_vector_environment_that_was_handed_over_is_left_alone():
    adapter = VectorEnvAdapter(gym.make_vec("CartPole-v1", 2, vectorization_mode="sync"), 2)
    adapter.reset(seed=0)
    adapter.cut(np.array([True, True]))
    assert not adapter.step(np.zeros(2, int)).over.any()


def beginnings(seed, moves):
    """First observations of the first three episodes of each of five CartPoles."""
    adapter = VectorEnvAdapter("CartPole-v1", 1).for_evaluation(5)
    observations, _ = adapter.reset(seed)
    first = [[tuple(observation)] for observation in observations]
    for time in range(300):
        step = adapter.step(np.full(5, moves[time % len(moves)]))
        for i in np.flatnonzero(step.started):
            first[i].append(tuple(step.observations[i]))
    adapter.close()
    return [observations[:3] for observations in first]


def test_an_episode_begins_the_same_whatever_was_done_before():
    short, long = beginnings(3, [0]), beginnings(3, [0, 1])
    assert short == long
    assert len({first for copy in short for first in copy}) == 15


def test_evaluations_with_other_seeds_have_no_episode_in_common():
    first = [each for seed in (3, 4, 5) for copy in beginnings(seed, [0]) for each in copy]
    assert len(set(first)) == len(first) == 45


def test_in_training_the_generator_of_an_environment_goes_on():
    adapter = VectorEnvAdapter("CartPole-v1", 1)
    by_hand = gym.make("CartPole-v1")
    observations, _ = adapter.reset(3)
    expected, _ = by_hand.reset(seed=3)
    assert np.array_equal(observations[0], expected)
    step = adapter.step(np.zeros(1, int))
    while not by_hand.step(0)[2]:
        step = adapter.step(np.zeros(1, int))
    assert np.array_equal(step.observations[0], by_hand.reset()[0])


def test_how_many_environments_an_agent_learned_in_does_not_matter():
    few, many = (VectorEnvAdapter("CartPole-v1", count).for_evaluation(50) for count in (1, 40))
    assert np.array_equal(few.reset(5)[0], many.reset(5)[0])


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_an_adapter_shows_what_the_wrapper_shows(mode, steps):
    def vector() -> Any:
        return SyncVectorEnv([lambda: Counter(2), lambda: Counter(3)], autoreset_mode=mode)

    adapter, wrapped = (
        VectorEnvAdapter(vector(), 2, history_length=steps),
        VectorEnvAdapter(ds.PastAware(vector(), steps), 2),
    )
    np.testing.assert_array_equal(adapter.reset(seed=0)[0], wrapped.reset(seed=0)[0])
    assert adapter.observation_size == wrapped.observation_size == 2 + 4 * steps
    draws, ends = np.random.default_rng(0), 0
    for _ in range(12):
        actions = draws.integers(2, size=2)
        step, same = adapter.step(actions), wrapped.step(actions)
        np.testing.assert_array_equal(step.observations, same.observations)
        np.testing.assert_array_equal(step.is_step, same.is_step)
        lived = step.is_step
        np.testing.assert_array_equal(step.next_observations[lived], same.next_observations[lived])
        np.testing.assert_array_equal(step.started, same.started)
        ends += int(step.over.sum())
    assert ends >= 6
