"""Agents in Gymnasium environments see how the observation has just changed (`past_steps`)."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds
from downside.train.host import Host

from .toys import Counter


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

    host, wrapped = Host(vector(), 2, past_steps=steps), Host(ds.StepAware(vector(), steps), 2)
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
    agent = ds.QRDQN("CartPole-v1", past_steps=1, **SMALL).learn(500)
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
