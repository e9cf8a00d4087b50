"""A stable-baselines3 user's script, with only the import and the class name changed."""

import json

import gymnasium as gym
import numpy as np
import pytest

import downside as ds
from downside.train.sb3 import translate

BASE = {"num_envs": 1, "update_interval": 1, "updates_per_step": 1}


@pytest.mark.long  # docs/coming-from-sb3.md runs in every test run
def test_a_script_for_another_library_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # --- the script, as it stands in their documentation ---------------------------------------
    from downside import QRDQN, evaluate_policy

    env = gym.make("CartPole-v1")
    policy_kwargs = {"n_quantiles": 25, "net_arch": [64, 64]}
    model = QRDQN(
        "MlpPolicy",
        env,
        policy_kwargs=policy_kwargs,
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=4,
        gradient_steps=2,
        exploration_fraction=0.3,
        exploration_final_eps=0.04,
        tensorboard_log="./logs/",
        verbose=0,
        seed=1,
    )
    model.learn(total_timesteps=10_000, log_interval=4, tb_log_name="cartpole")
    mean_reward, std_reward = evaluate_policy(model, model.get_env(), n_eval_episodes=10)
    model.save("qrdqn_cartpole")

    del model
    model = QRDQN.load("qrdqn_cartpole", env=env)
    obs, _ = env.reset(seed=0)
    total = 0.0
    while True:
        action, _states = model.predict(obs, deterministic=True)
        obs, reward, terminated, truncated, _info = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    # -----------------------------------------------------------------------------------------
    assert mean_reward > 50  # random play gets 22
    assert std_reward >= 0
    assert total > 40
    lines = (tmp_path / "logs" / "cartpole_1" / "progress.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["timesteps"] > 5_000
    assert list((tmp_path / "logs" / "cartpole_1").glob("events.out.tfevents.*"))


def test_their_names_become_ours():
    given = {
        "learning_starts": 500,
        "tau": 0.5,
        "exploration_final_eps": 0.1,
        "train_freq": 4,
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": [32], "n_quantiles": 10},
        "device": "cpu",
        "kappa": 0.3,
    }
    assert translate(given, BASE) == {
        "warmup_steps": 500,
        "target_rate": 0.5,
        "exploration_final": 0.1,
        "update_interval": 4,
        "updates_per_step": 1,
        "hidden": (32,),
        "quantiles": 10,
        "kappa": 0.3,
    }


def test_the_interval_of_targets_is_counted_in_updates():
    # 1000 steps are 250 rounds of 4 steps with 2 updates each.
    given = {"train_freq": 4, "gradient_steps": 2, "target_update_interval": 1000}
    assert translate(given, BASE)["target_interval"] == 500
    # With 8 environments a round is 32 steps, so that they are 32 rounds (1000 / 32, rounded up).
    assert translate(given, {**BASE, "num_envs": 8})["target_interval"] == 64
    # What is not said is as it is by default: here 10 rounds of 100 steps with 2 updates each.
    base = {"num_envs": 25, "update_interval": 4, "updates_per_step": 2}
    assert translate({"target_update_interval": 1000}, base)["target_interval"] == 20


def test_as_many_updates_as_steps():
    given = {"gradient_steps": -1, "train_freq": 4}
    assert translate(given, {**BASE, "num_envs": 2})["updates_per_step"] == 8


def test_steps_of_theirs_are_steps_whatever_our_defaults():
    # 8 environments with two updates after each step of all: 1,000 steps are 250 updates.
    eight = ds.QRDQN("MlpPolicy", "CartPole-v1", target_update_interval=1000).settings
    assert (eight.target_interval, eight.updates_per_step, eight.num_envs) == (250, 2, 8)
    one = ds.QRDQN("MlpPolicy", gym.make("CartPole-v1"), target_update_interval=1000).settings
    assert (one.target_interval, one.updates_per_step, one.update_interval) == (250, 1, 4)
    ten = ds.QRDQN("CartPole-v1", preset="paper", gradient_steps=-1).settings
    assert (ten.updates_per_step, ten.num_envs) == (10, 10)
    ours = ds.QRDQN("downside/CliffWalk-v0", target_update_interval=2560).settings
    assert ours.target_interval == 10 * ours.updates_per_step


def test_what_a_network_may_be_told():
    with pytest.raises(TypeError, match=r"`policy_kwargs` may have n_quantiles and net_arch, got"):
        ds.QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"features_extractor_class": None})


def test_a_name_that_neither_knows_is_refused_with_the_closest():
    with pytest.raises(TypeError, match=r"There is no setting `learning_rat`\. Did you mean"):
        ds.QRDQN("MlpPolicy", "CartPole-v1", learning_rat=1e-3)


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
