"""Policies are evaluated in the same episodes of an environment that is not ours."""

import gymnasium as gym
import numpy as np
import pytest

import downside as ds
from downside.runs import run_returns, value_run
from downside.train.host import Host

from .toys import Counter

TINY = {"hidden": (8,), "warmup_steps": 64, "outer_interval": 20, "buffer_size": 512}


def beginnings(seed, moves):
    """First observations of the first three episodes of each of five CartPoles."""
    host = Host("CartPole-v1", 1).for_evaluation(5)
    observations, _ = host.reset(seed)
    found = [[tuple(one)] for one in observations]
    for step in range(300):
        seen = host.step(np.full(5, moves[step % len(moves)]))
        for i in np.flatnonzero(seen.started):
            found[i].append(tuple(seen.observations[i]))
    host.close()
    return [own[:3] for own in found]


def test_an_episode_begins_the_same_whatever_was_done_before():
    short, long = beginnings(3, [0]), beginnings(3, [0, 1])
    assert short == long
    assert len({one for own in short for one in own}) == 15


def test_evaluations_with_other_seeds_have_no_episode_in_common():
    found = [one for seed in (3, 4, 5) for own in beginnings(seed, [0]) for one in own]
    assert len(set(found)) == len(found) == 45


def test_in_training_the_generator_of_an_environment_goes_on():
    host = Host("CartPole-v1", 1)
    by_hand = gym.make("CartPole-v1")
    observations, _ = host.reset(3)
    expected, _ = by_hand.reset(seed=3)
    assert np.array_equal(observations[0], expected)
    seen = host.step(np.zeros(1, int))
    while not by_hand.step(0)[2]:
        seen = host.step(np.zeros(1, int))
    assert np.array_equal(seen.observations[0], by_hand.reset()[0])


@pytest.fixture(scope="module")
def two():
    return [ds.QRDQN("CartPole-v1", seed=seed, **TINY).learn(200) for seed in (0, 1)]


def test_agents_are_compared_in_pairs_of_episodes(two):
    first, second = (ds.evaluate(one, episodes=64, seed=5) for one in two)
    assert ds.compare(first, second, "mean").method == "paired episodes"
    assert np.array_equal(first.returns, ds.evaluate(two[0], episodes=64, seed=5).returns)


def test_how_many_environments_an_agent_learned_in_does_not_matter():
    few, many = (Host("CartPole-v1", count).for_evaluation(50) for count in (1, 40))
    assert np.array_equal(few.reset(5)[0], many.reset(5)[0])


def test_the_only_environment_there_is_has_no_episode_twice():
    agent = ds.QRDQN(Counter(3), **TINY).learn(200)
    found = ds.evaluate(agent, episodes=8)
    assert not found.aligned
    assert ds.compare(found, found, "mean").method == "independent episodes"


def test_where_no_second_environment_can_be_made_episodes_are_independent(monkeypatch):
    agent = ds.QRDQN("CartPole-v1", **TINY).learn(200)
    assert agent.aligned

    def only_once(*_, **__):
        raise OSError("the simulator is in use")

    monkeypatch.setattr(gym, "make", only_once)
    with pytest.warns(UserWarning, match="No second CartPole"):
        found = ds.evaluate(agent, episodes=8)
    assert not found.aligned


def test_a_run_folder_says_whether_episodes_can_be_paired(two, tmp_path):
    written = value_run(two[0], tmp_path, 32)
    read = run_returns(tmp_path)
    assert read.aligned
    assert np.array_equal(read.returns, written.returns)
    about = tmp_path / "evaluation.json"
    about.write_text(about.read_text().replace('"aligned": true,', ""))  # as earlier ones are
    assert not run_returns(tmp_path).aligned
