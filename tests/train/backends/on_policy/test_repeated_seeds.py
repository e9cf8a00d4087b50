"""Where episodes are short, AC-SRM plays each seed several times."""

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import downside as ds
from downside.agents import OnPolicySettings
from downside.train.backends.gymnasium.adapting import WarmUp
from downside.train.config import resolve

from ...tiny import same, state_of
from ...toys import Counter

TEN_STEPS = WarmUp(episodes=200, longest=10, share=1.0, terminated=True, seconds=1e-5)
SMALL: dict[str, Any] = {"epochs": 2, "hidden_sizes": (8,), "evaluation_fraction": 0.0}


class Market(Counter):
    """A price that moves by chance, whatever is done; a unit of it is held for one step, or not."""

    def reset(self, *, seed=None, options=None) -> Any:
        _, info = super().reset(seed=seed)
        self.price = 0.0
        return np.zeros(2, np.float32), info

    def step(self, action) -> Any:
        _, _, *rest = super().step(action)
        move = self.np_random.normal(0.1, 1.0)
        self.price += move
        return np.array([self.time, self.price], np.float32), float(action * move), *rest


class Forgetful(Market):
    """The same, but the seed of a reset is not used."""

    def reset(self, *, seed=None, options=None) -> Any:
        return super().reset(seed=None, options=options)


def copies(kind, count=6, mode=AutoresetMode.SAME_STEP):
    return SyncVectorEnv([kind] * count, autoreset_mode=mode)


def on_policy(num_envs=None, warm_up: WarmUp | None = TEN_STEPS, **changes: Any) -> Any:
    algorithm = ds.ACSRM.algorithm_class
    return resolve(algorithm, OnPolicySettings, "default", changes, num_envs, None, warm_up)


def played(agent, iteration=0):
    driver = agent._driver
    driver.plan(200)
    state = driver.backend.init(driver.planned(), driver.algorithm, jax.random.key(0))[0]
    return driver.backend._collect(driver.planned(), driver.algorithm, state, iteration)[0]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_parts_of_an_iteration_see_the_same_market_and_other_iterations_another_one(mode):
    env = copies(Market, mode=mode)
    agent = ds.ACSRM(env, risk="mean", n_steps=12, episodes_per_seed=3, adapt=False, **SMALL)
    steps = played(agent)
    prices = steps["next_observations"][..., 1].reshape(3, 4, 6)
    np.testing.assert_array_equal(prices[0], prices[1])
    np.testing.assert_array_equal(prices[0], prices[2])
    assert np.unique(prices[0, 0]).size == 6  # but every copy has a market of its own
    assert steps["terminated"].reshape(3, 4, 6)[:, -1].all()
    actions = steps["raw"].reshape(3, 4, 6)
    assert (actions[0] != actions[1]).any()  # chance still decides what is tried there
    assert (played(agent, 1)["next_observations"][..., 1][:4] != prices[0]).all()


def test_what_a_reset_cuts_off_is_truncated():
    settings = {**SMALL, "n_steps": 6, "episodes_per_seed": 2, "adapt": False}
    steps = played(ds.ACSRM(copies(Market), risk="mean", **settings))  # 3 of 4 steps
    assert steps["over"].reshape(2, 3, 6)[:, -1].all()
    assert not steps["terminated"].any()


def test_the_log_says_how_much_the_seed_foretells():
    shares = []
    for kind in (Market, Forgetful):
        agent = ds.ACSRM(
            copies(kind, 64),
            risk="cvar(0.5)",
            n_steps=16,
            episodes_per_seed=4,
            adapt=False,
            **SMALL,
        ).learn(4_096)
        shares.append(np.mean([row["common_noise"] for row in agent.history]))
    assert shares[0] > 2.0 * shares[1]


def test_defaults_are_whole_episodes_of_at_least_two_thousand_steps():
    made = on_policy()
    assert (made.num_envs, made.episodes_per_seed) == (128, 4)
    assert made.n_steps == 40
    assert on_policy(num_envs=1).n_steps == 4 * 52 * 10  # 52 episodes for each seed
    assert on_policy(num_envs=256, warm_up=TEN_STEPS._replace(longest=30)).n_steps == 120
    # After each but the last episode of a part there is a step that does nothing but reset.
    resets = TEN_STEPS._replace(resets=True)
    assert on_policy(num_envs=32, warm_up=resets).n_steps == 4 * (2 * 11 - 1)
    long = dataclasses.replace(on_policy(warm_up=None), step_inputs=0)
    assert on_policy(warm_up=TEN_STEPS._replace(longest=100)) == long
    assert on_policy(warm_up=TEN_STEPS._replace(longest=100), step_inputs=8).step_inputs == 8
    slow = on_policy(warm_up=TEN_STEPS._replace(seconds=0.01))
    assert (slow.num_envs, slow.total_timesteps) == (32, 1_000_000)


def test_what_is_given_stays_and_seeds_are_repeated_only_if_episodes_fit():
    assert on_policy(n_steps=40).episodes_per_seed == 4
    assert on_policy(n_steps=16).episodes_per_seed == 1
    assert on_policy(n_steps=20).episodes_per_seed == 1
    assert on_policy(episodes_per_seed=1).n_steps % 10 == 0
    assert on_policy(num_envs=8, episodes_per_seed=2).n_steps == 2 * 13 * 10  # 13 episodes


def test_agents_adapt_where_a_horizon_ends_all_episodes():
    agent = ds.ACSRM(copies(Market), risk="cvar(0.5)", **SMALL)
    agent.adapt()
    assert agent.adapted["episodes_per_seed"] == (1, 4)
    assert agent.settings.n_steps % 16 == 0
    pole = ds.ACSRM("CartPole-v1", risk="cvar(0.5)", num_envs=2)
    pole.adapt()
    assert pole.adapted == {}


def test_the_discount_of_the_problem_stays_after_adapting():
    agent = ds.ACSRM("downside/Hedging-v0", risk="mean", num_envs=8)
    before = agent.settings.gamma
    agent.adapt()
    assert agent.adapted
    assert agent.settings.gamma == before


def test_training_goes_on_bit_for_bit_since_every_iteration_begins_anew(tmp_path):
    settings = {**SMALL, "n_steps": 16, "episodes_per_seed": 2, "adapt": False}
    whole = ds.ACSRM(copies(Market), risk="cvar(0.5)", **settings).learn(16 * 6 * 4)
    stopped = ds.ACSRM(copies(Market), risk="cvar(0.5)", **settings)
    stopped.learn(16 * 6 * 4, callback=lambda agent: len(agent.history) < 2)
    assert len(stopped.history) == 2
    again = ds.load(stopped.save(tmp_path / "half"), copies(Market)).resume()
    assert int(state_of(again).learner.iterations) == 4
    assert same(again, whole)


def test_an_iteration_must_be_whole_parts():
    message = r"`n_steps` must be a multiple of `episodes_per_seed` \(4\), got 10"
    with pytest.raises(ValueError, match=message):
        ds.ACSRM("CartPole-v1", risk="mean", n_steps=10, episodes_per_seed=4)


def test_vector_environments_are_left_usable():
    env = copies(Market)
    ds.ACSRM(env, risk="mean", **SMALL).learn(200)
    assert isinstance(env, gym.vector.VectorEnv)
    assert env.reset(seed=1)[0].shape == (6, 2)


def test_policies_that_see_the_time_are_evaluated_in_many_copies_of_a_jax_environment():
    agent = ds.ACSRM(
        "downside/Hedging-v0", risk="mean", num_envs=4, n_steps=30, adapt=False, **SMALL
    )
    agent.learn(120)
    assert agent.settings.has_clock
    assert agent.jax_env is None
    backend: Any = agent._driver.backend
    assert backend.for_evaluation(5_000).num_envs == 1_024
    result = ds.evaluate(agent, episodes=2_000, seed=1)
    assert len(result) == 2_000
    assert not result.aligned
