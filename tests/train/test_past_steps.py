"""Agents in Gymnasium environments see how the observation has just changed (`past_steps`)."""

from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds
from downside.train.host import Host

from .toys import Assorted, Counter, Masked


class Wind(gym.Env):
    """A wind blows one way for a whole episode and moves what is observed; nobody sees the wind.

    The first of three steps pays nothing; after it, leaning against the wind (action 0 against -1,
    action 1 against +1) pays 1 a step, and leaning with it -1. The place itself says nothing: it
    starts anywhere.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        self.time, self.wind = 0, int(self.np_random.integers(2))
        self.place = float(self.np_random.normal(0.0, 100.0))
        return self._seen(), {}

    def step(self, action) -> Any:
        reward = 0.0 if self.time == 0 else (1.0 if action == self.wind else -1.0)
        self.time, self.place = self.time + 1, self.place + (2 * self.wind - 1)
        return self._seen(), reward, self.time == 3, False, {}

    def _seen(self):
        return np.array([self.place], np.float32)


SMALL: dict[str, Any] = {
    "hidden": (16, 16),
    "quantiles": 5,
    "warmup_steps": 200,
    "outer_interval": 50,
    "learning_rate": 5e-3,
}


@pytest.mark.parametrize(("past_steps", "value"), [(0, 0.0), (1, 2.0)])
def test_what_lasts_and_is_not_observed_is_seen_in_what_changes(past_steps, value):
    agent = ds.QRDQN(Wind(), past_steps=past_steps, gamma=1.0, least_discount=0.0, **SMALL).learn(
        4000
    )
    # Both steps are won by who knows the wind; who does not wins as often as he loses.
    assert agent.simulate_returns(400, seed=1).mean() == pytest.approx(value, abs=0.3)


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_a_host_shows_what_the_wrapper_shows(mode, steps):
    def vector() -> Any:
        return SyncVectorEnv([lambda: Counter(2), lambda: Counter(3)], autoreset_mode=mode)

    host, wrapped = Host(vector(), 2, past_steps=steps), Host(ds.PastAware(vector(), steps), 2)
    np.testing.assert_array_equal(host.reset(seed=0)[0], wrapped.reset(seed=0)[0])
    assert host.size == wrapped.size == 2 + 4 * steps
    draws, ends = np.random.default_rng(0), 0
    for _ in range(12):
        actions = draws.integers(2, size=2)
        one, other = host.step(actions), wrapped.step(actions)
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.after[one.lived], other.after[other.lived])
        np.testing.assert_array_equal(one.started, other.started)
        ends += int(one.over.sum())
    assert ends >= 6


def test_the_memory_lies_between_the_observation_and_what_was_earned():
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", past_steps=1, **SMALL).learn(100)
    env = agent.wrap(Counter())
    env.reset(seed=0)
    observation = env.step(1)[0]
    # The time and the last action; how both changed; action 1 of two; s and c.
    np.testing.assert_allclose(observation, [1, 1, 1, 2, 0, 1, 1, 0.99], rtol=1e-6)
    vector = agent.wrap(SyncVectorEnv([Counter]))
    vector.reset(seed=0)
    np.testing.assert_allclose(vector.step(np.array([1]))[0], [observation])
    assert agent.policy.observation_space.shape == (8,)


def test_agents_that_are_shown_what_they_earned_are_shown_the_last_step_by_default():
    kinds = {ds.QRSRM: 1, ds.QRCVaR: 1, ds.QRiCVaR: 0, ds.QRDQN: 0}
    for kind, past_steps in kinds.items():
        agent = kind("CartPole-v1", **({} if kind is ds.QRDQN else {"risk": "cvar(0.5)"}))
        assert agent.settings.past_steps == past_steps


def test_an_agent_without_rewards_in_mind_is_wrapped_as_well():
    agent = ds.QRDQN("CartPole-v1", past_steps=1, **SMALL).learn(100)
    observation, _ = agent.wrap().reset(seed=0)
    assert observation.shape == (4 + 4 + 2,)
    assert agent.predict(observation)[0] in (0, 1)
    with pytest.raises(ValueError, match=r"shape \(10,\).*It is an observation of `agent.wrap"):
        agent.predict(observation[:4])


def test_a_saved_agent_remembers_as_many_steps(tmp_path):
    agent = ds.QRDQN("CartPole-v1", past_steps=2, **SMALL).learn(500)
    again = ds.load(agent.save(tmp_path / "agent"))
    assert again.settings.past_steps == 2
    seeds = {"episodes": 20, "seed": 3}
    np.testing.assert_array_equal(again.simulate_returns(**seeds), agent.simulate_returns(**seeds))


def test_what_can_be_simulated_has_no_need_of_it():
    with pytest.raises(
        ValueError, match="`past_steps` must be 0 for an environment written in JAX"
    ):
        ds.QRSRM("downside/MeanReversion-v0", risk="cvar(0.5)", past_steps=1)


def test_a_network_that_was_made_for_fewer_numbers_is_refused_with_their_number():
    module = ds.MLP(jax.random.key(0), 4, (16,), "relu")  # of the observation and (s, c)
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", network=module, **SMALL)
    with pytest.raises(ValueError, match=r"`network` must take a vector of 8 numbers"):
        agent.learn(100)


@pytest.mark.parametrize("env", [Masked, Assorted])
def test_masks_and_observations_of_several_kinds_go_together_with_the_past(env):
    agent = ds.QRCVaR(env(), risk="cvar(0.5)", past_steps=2, **SMALL).learn(100)
    wrapped = agent.wrap(env())
    observation, info = wrapped.reset(seed=0)
    assert observation.shape == agent.policy.observation_space.shape
    assert observation[-1] == pytest.approx(float(agent.goal))  # b stands behind the steps
    action, _ = agent.predict(observation, action_masks=info.get("action_mask"))
    assert wrapped.step(action)[0].shape == observation.shape


class Sevens(Counter):
    """As the counter, but the actions are 7 and 8."""

    action_space = gym.spaces.Discrete(2, start=7)

    def step(self, action) -> Any:
        return super().step(action - 7)


def test_actions_that_do_not_start_at_zero_are_remembered_from_zero():
    agent = ds.QRDQN(Sevens(), past_steps=1, **{**SMALL, "learning_rate": 3e-3}).learn(2000)
    env = agent.wrap(Sevens())
    action, _ = agent.predict(env.reset(seed=0)[0])
    assert action == 8
    assert env.step(action)[0].tolist() == [1, 1, 1, 2, 0, 1]
    assert agent.simulate_returns(4, seed=0) == pytest.approx((1 - 0.99**4) / 0.01)


def test_the_last_observation_of_a_wrapped_vector_has_both_memories():
    agent = ds.QRSRM(Counter(2), risk="cvar(0.5)", **SMALL).learn(100)
    mode = AutoresetMode.SAME_STEP
    vector = agent.wrap(SyncVectorEnv([lambda: Counter(2)], autoreset_mode=mode))
    vector.reset(seed=0)
    vector.step(np.array([1]))
    observations, *_, infos = vector.step(np.array([0]))
    np.testing.assert_allclose(infos["final_obs"][0], [2, 0, 1, -1, 1, 0, 1, 0.99**2], rtol=1e-6)
    np.testing.assert_allclose(observations, [[0, -1, 0, 0, 0, 0, 0, 1]])


def test_episodes_for_stable_baselines_habits_are_played_with_the_past():
    agent = ds.QRDQN(Counter(), past_steps=1, **{**SMALL, "learning_rate": 3e-3}).learn(2000)
    for env in (Counter(), SyncVectorEnv([Counter, Counter])):
        assert ds.evaluate_policy(agent, env, n_eval_episodes=4) == (4.0, 0.0)
    agent.set_env(Counter(6))
    assert agent.simulate_returns(1, seed=0) == pytest.approx((1 - 0.99**6) / 0.01)


def test_an_explanation_shows_the_environments_own_numbers_alone():
    own = ds.PastAware(gym.make("CartPole-v1"))
    agent = ds.QRSRM(own, risk="cvar(0.5)", **SMALL).learn(100)
    told = ds.explain(agent, env=own, episode_seed=1, checks=0)
    assert len(told.steps[0].observation) == 4 + 4 + 2
