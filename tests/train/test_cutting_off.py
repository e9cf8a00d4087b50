"""Episodes of training are cut off where rewards hardly count any more (`least_discount`)."""

import gymnasium as gym
import numpy as np
import pytest

import downside as ds
from downside.train.host import Host
from downside.train.hosted_run import HostedRun

from .toys import Counter

TINY = {
    "hidden": (8,),
    "warmup_steps": 64,
    "outer_interval": 20,
    "buffer_size": 4_000,
    "gamma": 0.9,
}


def long(limit):
    return gym.wrappers.TimeLimit(Counter(10**6), limit)


def lengths(agent):
    return agent._run.episodes.filled()[:, 2]


def test_an_episode_that_is_cut_off_is_truncated_and_a_new_one_begins():
    host = Host(Counter(5), 1)
    host.reset(seed=0)
    host.step(np.array([1]))
    host.cut(np.array([True]))
    seen = host.step(np.array([1]))
    assert (bool(seen.over[0]), bool(seen.terminated[0])) == (True, False)
    assert tuple(seen.after[0]) == (2, 1)
    assert tuple(seen.observations[0]) == (0, -1)
    assert bool(seen.started[0])
    assert not host.step(np.array([1])).over[0]  # once


def test_the_end_of_an_episode_that_is_cut_off_stays_its_end():
    host = Host(Counter(1), 1)
    host.reset(seed=0)
    host.cut(np.array([True]))
    seen = host.step(np.array([1]))
    assert (bool(seen.over[0]), bool(seen.terminated[0])) == (True, True)


def test_only_the_episodes_that_are_meant_are_cut_off():
    host = Host("CartPole-v1", 3)
    host.reset(seed=0)
    host.cut(np.array([False, True, False]))
    assert host.step(np.zeros(3, int)).over.tolist() == [False, True, False]


def test_a_vector_environment_that_was_handed_over_is_left_alone():
    host = Host(gym.make_vec("CartPole-v1", 2, vectorization_mode="sync"), 2)
    host.reset(seed=0)
    host.cut(np.array([True, True]))
    assert not host.step(np.zeros(2, int)).over.any()


def test_long_episodes_are_cut_off_once_rewards_hardly_count():
    agent = ds.QRDQN(long(200), least_discount=0.1, **TINY).learn(4_000)
    run = agent._run
    assert isinstance(run, HostedRun)
    assert not run.replay.storage.terminated.any()  # learned from as if they went on
    cut = lengths(agent)[-80:]  # the first ones are those of random play
    # 0.9^22 is the first power below 0.1: there are 22 steps, and then the chance is a tenth.
    assert cut.min() > 22
    assert 22 + 7 < np.mean(cut) < 22 + 13


@pytest.mark.parametrize(
    "changes", [{"least_discount": 0.0}, {"least_discount": 1.0, "gamma": 1.0}]
)
def test_without_a_bound_or_a_discount_nothing_is_cut_off(changes):
    agent = ds.QRDQN(long(60), **{**TINY, **changes}).learn(1_000)
    assert set(lengths(agent)) == {60.0}


def test_episodes_of_an_evaluation_are_never_cut_off():
    class Measured(Counter):
        time, lengths = 0, []

        def reset(self, **arguments):
            self.lengths.append(self.time)
            return super().reset(**arguments)

    # In the very environment that it is trained in: there is no second one.
    env = Measured(10**6)
    agent = ds.QRDQN(gym.wrappers.TimeLimit(env, 200), least_discount=0.5, **TINY).learn(1_000)
    assert max(env.lengths[-5:]) < 200
    env.lengths.clear()
    agent.simulate_returns(3, seed=0)
    assert env.lengths[1:] == [200, 200, 200]


@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_a_bound_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"`least_discount` must be .* \[0, 1\], got"):
        ds.QRDQN("CartPole-v1", least_discount=value)
    with pytest.raises(ValueError, match=r"`least_discount` must be 0.0 .*written in JAX"):
        ds.QRDQN("downside/AmericanPut-v0", least_discount=0.1)
