"""Policies are evaluated in episodes that anybody can play."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import downside as ds
from downside._files import DamagedFileError

from ..train.toys import Counter

pytestmark = pytest.mark.slow  # what all tests look at takes long to make

SMALL = {
    "hidden_sizes": (16, 16),
    "quantiles": 5,
    "warmup_steps": 200,
    "outer_interval": 50,
    "learning_rate": 3e-3,
}
TINY = {
    "hidden_sizes": (8,),
    "warmup_steps": 64,
    "outer_interval": 20,
    "buffer_size": 512,
    "adapt": False,
}


@pytest.fixture(scope="module")
def two():
    return [ds.QRDQN("CartPole-v1", seed=seed, **TINY).learn(200) for seed in (0, 1)]


def test_agents_are_compared_in_pairs_of_episodes(two):
    first, second = (ds.evaluate(agent, episodes=64, seed=5) for agent in two)
    assert ds.compare(first, second, "mean").method == "paired episodes"
    assert np.array_equal(first.returns, ds.evaluate(two[0], episodes=64, seed=5).returns)


def test_the_only_environment_there_is_has_no_episode_twice():
    agent = ds.QRDQN(Counter(3), **TINY).learn(200)
    evaluation = ds.evaluate(agent, episodes=8)
    assert not evaluation.aligned
    assert ds.compare(evaluation, evaluation, "mean").method == "independent episodes"


def test_where_no_second_environment_can_be_made_episodes_are_independent(monkeypatch):
    agent = ds.QRDQN("CartPole-v1", **TINY).learn(200)
    assert agent.aligned

    def only_once(*_, **__):
        raise OSError("the simulator is in use")

    monkeypatch.setattr(gym, "make", only_once)
    with pytest.warns(UserWarning, match="No second CartPole"):
        evaluation = ds.evaluate(agent, episodes=8)
    assert not evaluation.aligned


def test_a_run_folder_says_whether_episodes_can_be_paired(two, tmp_path):
    from downside.runs import run_returns, value_run

    written = value_run(two[0], tmp_path, 32)
    read = run_returns(tmp_path)
    assert read.aligned
    assert np.array_equal(read.returns, written.returns)
    about = tmp_path / "evaluation.json"
    about.write_text(about.read_text().replace('"aligned": true,', '"aligned": false,'))
    with pytest.raises(DamagedFileError, match="was changed after it was written"):
        run_returns(tmp_path)


def test_policies_are_evaluated_in_single_and_vector_environments():
    class Steady:
        """Always pushes to the left."""

        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return np.zeros(len(observation), int) if np.ndim(observation) > 1 else 0, state

    rewards, lengths = ds.evaluate_policy(
        Steady(), gym.make("CartPole-v1"), n_eval_episodes=5, return_episode_rewards=True, seed=0
    )
    assert rewards == [float(length) for length in lengths]
    assert all(8 <= length <= 11 for length in lengths)  # it falls over at once
    vector = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    mean, deviation = ds.evaluate_policy(Steady(), vector, n_eval_episodes=6, seed=0)
    assert 8 <= mean <= 11
    assert deviation < 2


def test_episodes_for_stable_baselines_habits_are_played_with_the_past():
    agent = ds.QRDQN(Counter(), history_length=1, **SMALL).learn(2000)
    for env in (Counter(), SyncVectorEnv([Counter, Counter])):
        assert ds.evaluate_policy(agent, env, n_eval_episodes=4) == (4.0, 0.0)
    agent.set_env(Counter(6))
    assert agent.simulate_returns(1, seed=0) == pytest.approx((1 - 0.99**6) / 0.01)
