"""Defaults that follow from what the warm-up shows."""

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest

import downside as ds
from downside.agents import DQN, SRM, GymnasiumSettings, StaticCVaR
from downside.train.backends.gymnasium.adapting import LONGEST, SHORT, WarmUp
from downside.train.backends.gymnasium.backend import GymBackend
from downside.train.backends.gymnasium.state import explored
from downside.train.backends.replay import Ring
from downside.train.config import GYMNASIUM, resolve

from ...tiny import SMALL, experience_of, same
from ...toys import Counter, Noisy

TEN_STEPS = WarmUp(episodes=200, longest=10, share=1.0, terminated=True, seconds=1e-5)
# Windy lunar lander, and CartPole: episodes that end when the agent does something.
LANDER = WarmUp(episodes=20, longest=140, share=0.05, terminated=True, seconds=1e-4)
POLE = WarmUp(episodes=90, longest=58, share=0.02, terminated=True, seconds=2e-5)


def settings(algorithm, warm_up, timesteps=None, num_envs=None, **changes: Any) -> Any:
    return resolve(
        algorithm, GymnasiumSettings, "default", changes, num_envs, None, warm_up, timesteps
    )


@pytest.mark.parametrize("algorithm", [SRM, StaticCVaR, DQN])
@pytest.mark.parametrize("warm_up", [LANDER, POLE, TEN_STEPS._replace(longest=LONGEST + 1)])
def test_where_episodes_are_long_or_may_become_long_nothing_changes(algorithm, warm_up):
    made = settings(algorithm, warm_up)
    assert made == settings(algorithm, None)
    expected = {**GYMNASIUM, **algorithm.gymnasium_preset}
    assert {name: getattr(made, name) for name in expected} == expected
    # What the lander's tables were made with.
    assert (made.n_steps, made.risk_neutral_fraction, made.num_critics) == (10, 0.5, 2)
    assert (made.num_envs, made.updates_per_step, made.total_timesteps) == (8, 2, 300_000)
    assert (made.critic, made.outer_episodes, made.greedy_episodes) == ("quantiles", 100, 0.0)
    assert (made.exploration_top, made.exploration_final, made.memory_shuffle) == (0, 0.02, 0.5)


def test_short_episodes_have_defaults_of_their_own():
    made = settings(SRM, TEN_STEPS)
    assert {name: getattr(made, name) for name in SHORT} == dict(SHORT)
    assert not made.anchor
    assert settings(SRM, TEN_STEPS._replace(terminated=False)).anchor  # they need not end
    slow = settings(SRM, TEN_STEPS._replace(seconds=0.02))
    assert slow.total_timesteps < made.total_timesteps
    assert settings(DQN, TEN_STEPS).critic == "quantiles"  # its score obeys no recursion
    assert settings(DQN, TEN_STEPS).total_timesteps < made.total_timesteps  # updates take longer
    # A single environment is acted in at every step; the default run is shorter.
    assert settings(SRM, TEN_STEPS, num_envs=1).total_timesteps == 250_000


def test_what_is_given_stays_as_it_is():
    made = settings(SRM, TEN_STEPS, n_steps=10, critic="quantiles", num_envs=8, buffer_size=5_000)
    assert (made.n_steps, made.critic, made.num_envs, made.buffer_size) == (
        10,
        "quantiles",
        8,
        5_000,
    )
    assert made.risk_neutral_fraction == SHORT["risk_neutral_fraction"]
    # A buffer holds a step of all environments, and an outer step ends a round of updates.
    assert settings(SRM, TEN_STEPS, buffer_size=100).num_envs == 100
    assert settings(SRM, TEN_STEPS, 50_000, outer_interval=50).updates_per_step == 50


@pytest.mark.parametrize("num_envs", [1, 8, 256])
def test_a_run_has_about_as_many_updates_whatever_its_length(num_envs):
    def updates(timesteps):
        made = settings(SRM, TEN_STEPS, timesteps, num_envs)
        return timesteps * made.updates_per_step / (made.num_envs * made.update_interval)

    usual = updates(settings(SRM, TEN_STEPS, None, num_envs).total_timesteps)
    assert updates(1_000_000) == pytest.approx(usual, rel=0.3)
    assert updates(10_000) == pytest.approx(2_500, rel=0.1)  # one for four steps at most


# --- in a run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("truncates", [False, True])
def test_the_warm_up_shows_how_long_episodes_are_and_how_they_end(truncates):
    agent = ds.QRDQN(Counter(5, truncates), **SMALL)
    backend = agent._driver.backend
    assert isinstance(backend, GymBackend)
    warm_up = backend.warm_up(agent.settings, jax.random.key(0))
    # 50 steps of one environment.
    assert (warm_up.episodes, warm_up.longest, warm_up.share) == (10, 5, 1.0)
    assert warm_up.terminated is not truncates
    assert warm_up.is_short


def test_two_episodes_of_different_length_say_nothing_about_a_horizon():
    few = TEN_STEPS._replace(episodes=2, share=0.5)
    assert not few.is_short
    assert few._replace(episodes=8).is_short


def test_episodes_that_end_by_what_is_done_are_not_called_short():
    agent = ds.QRSRM("CartPole-v1", risk="cvar(0.5)")
    before = agent.settings
    agent.adapt()
    assert agent.adapted == {}
    assert agent.settings is before or agent.settings == before


ADAPTED = {
    **SMALL,
    "adapt": True,
    "num_envs": 8,
    "buffer_size": 5_000,
    "batch_size": 64,
    "learning_rate": 0.01,
    "target_rate": 0.1,
    "outer_interval": 100,
    "evaluation_fraction": 0.5,
}
for _name in ("update_interval", "updates_per_step"):
    del ADAPTED[_name]


@pytest.fixture(scope="module")
def careful():
    gym.register("tests/Adapted-v0", lambda **_: Noisy())
    yield ds.QRSRM("tests/Adapted-v0", risk="cvar(0.2)", **ADAPTED).learn(6_400)
    del gym.registry["tests/Adapted-v0"]


@pytest.mark.slow
def test_an_agent_says_what_it_has_adapted(careful):
    assert careful.settings.critic == "utility"
    assert careful.adapted["n_steps"] == (10, 1)
    assert "num_envs" not in careful.adapted  # it was given
    assert "episodes of 4 steps" in careful.history[0]["adapted"]
    assert "n_steps=1" in careful.history[0]["adapted"]


@pytest.mark.slow
def test_a_critic_that_lives_in_short_episodes_leaves_the_gamble(careful):
    # Each gamble is N(0.3, 1): the worst fifth of four of them is negative, of none 0.
    assert careful.simulate_returns(50, seed=0).tolist() == [0.0] * 50
    # The return distribution is that of the policy, which never gambles.
    env = careful.wrap()
    observation, _ = env.reset(seed=0)
    action, _ = careful.predict(observation)
    assert np.abs(careful.return_distribution(observation)[action]).mean() < 0.3


@pytest.mark.slow
def test_an_adapted_agent_is_saved_and_goes_on_as_it_is(careful, tmp_path):
    loaded = ds.load(careful.save(tmp_path / "agent"))
    assert loaded.settings == careful.settings
    assert same(loaded, careful)
    # A chunk: four rounds of 25 updates and 128 steps.
    loaded.learn(512, reset_num_timesteps=False)
    assert loaded.settings == careful.settings
    assert loaded.num_timesteps == careful.num_timesteps + 512


@pytest.mark.slow
def test_policies_are_judged_by_episodes_without_exploration():
    changes = {**ADAPTED, "exploration_fraction": 0.0, "exploration_final": 1.0, "num_envs": 4}
    agent = ds.QRDQN(gym.vector.SyncVectorEnv([Counter] * 4), **changes).learn(2_000)
    assert agent.settings.greedy_episodes == 0.5
    # Explored episodes are coin flips, 2 on average; greedy ones pay 4.
    assert set(experience_of(agent).episodes.filled()[-20:, 1]) == {4.0}


# --- parts --------------------------------------------------------------------------------------


def test_half_of_the_explored_actions_are_near_the_best():
    generator = np.random.default_rng(0)
    count = 4_000
    chosen = np.tile([7, 3], (count, 1))
    masks = np.ones((count, 10), bool)
    explore = np.arange(count) % 2 == 0
    actions = explored(generator, explore, masks, chosen)
    assert (actions[~explore] == 7).all()
    # Of 2,000: a quarter 3 from the best two, a twentieth from all ten; as many 7.
    for action in (7, 3):
        assert (actions[explore] == action).mean() == pytest.approx(0.3, abs=0.04)
    assert (actions[explore] == 0).mean() == pytest.approx(0.05, abs=0.02)


def test_the_latest_rows_of_a_ring_are_those_that_were_added_last():
    ring = Ring(4, (1,), np.float64)
    ring.add(np.arange(6.0)[:, None])
    assert ring.latest(3)[:, 0].tolist() == [3.0, 4.0, 5.0]
    assert sorted(ring.latest(9)[:, 0]) == [2.0, 3.0, 4.0, 5.0]


def test_every_default_for_short_episodes_is_a_setting():
    assert set(SHORT) <= {field.name for field in dataclasses.fields(GymnasiumSettings)}
