"""PG-SRM as an agent: settings, clock, errors, resuming, files, many at once."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents.settings import PathwiseSettings
from downside.envs import MeanReversion
from downside.train.backends.pathwise import program as pathwise_program
from downside.train.backends.pathwise.backend import find_clock

from ....agents.gambles import Kinked, Rooted, Rounded, Stake, Stakes, Wait
from ...tiny import ENV

TINY = {
    "hidden_sizes": (4,),
    "batch_size": 16,
    "outer_interval": 2,
    "outer_episodes": 32,
    "updates": 4,
    "final_batches": 4,
}
CONTINUOUS = MeanReversion(periods=3, continuous=True)


def weights(agent):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(agent.networks) if hasattr(leaf, "shape")]


def assert_same(first, second):
    for mine, theirs in zip(weights(first), weights(second), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("env", [ENV, CONTINUOUS, Wait()], ids=["grid", "box", "unordered"])
def test_an_agent_is_the_same_after_saving_loading_and_going_on(tmp_path, env):
    whole = ds.PGSRM(env, risk="cvar(0.5)", **TINY).learn()
    part = ds.PGSRM(env, risk="cvar(0.5)", **TINY)
    for _ in part.training():
        break
    path = part.save(tmp_path / "part")
    resumed = ds.load(path, env).resume()
    assert resumed.num_timesteps == whole.num_timesteps
    assert_same(resumed, whole)
    np.testing.assert_array_equal(
        resumed.simulate_returns(50, seed=3), whole.simulate_returns(50, seed=3)
    )


def test_steps_are_counted_those_of_learning_and_those_beside_them():
    agent = ds.PGSRM(CONTINUOUS, risk="cvar(0.5)", **TINY).learn()
    # Two updates with one batch, and two with four.
    assert agent.settings.total_timesteps == agent.num_timesteps == (2 + 2 * 4) * 16 * 3
    # The untrained policy, two outer steps, random play, and the first episodes, which normalise
    # the inputs.
    assert agent.simulated_steps == (32 + 2 * 32 + 32 + 16) * 3


def test_doing_nothing_is_kept_where_nothing_better_is_found():
    env = MeanReversion(periods=3, cost=50.0)  # every trade loses
    agent = ds.PGSRM(env, risk="cvar(0.5)", learning_rate=1.0, averaging=0.0, **TINY)
    agent.learn()
    assert agent.history[-1]["value"] < 0.0
    assert agent.history[-1]["best"] == 0.0
    np.testing.assert_array_equal(agent.simulate_returns(50, seed=0), 0.0)


@pytest.mark.slow
def test_agents_that_are_trained_together_are_those_trained_alone():
    alone = ds.PGSRM(CONTINUOUS, risk="cvar(0.5)", seed=1, **TINY).learn()
    together = ds.train_many(
        CONTINUOUS, risks=["cvar(0.5)", "cvar(0.2)"], seeds=[1], agent=ds.PGSRM, **TINY
    )
    assert_same(together[0], alone)
    batch = ds.train_many(
        CONTINUOUS,
        risks=["cvar(0.5)", "cvar(0.2)"],
        seeds=[1],
        agent=ds.PGSRM,
        engine="vmap",
        **TINY,
    )
    for mine, theirs in zip(weights(batch[0]), weights(alone), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_predictions_are_points_of_the_box_and_numbers_of_discrete_actions():
    agent = ds.PGSRM(CONTINUOUS, risk="cvar(0.5)", **TINY).learn()
    env = agent.wrap()
    observation, _ = env.reset(seed=0)
    action, _ = agent.predict(observation)
    assert env.action_space.contains(action)
    assert agent.predict(np.stack([observation] * 3))[0].shape == (3, 1)
    discrete = ds.PGSRM(ENV, risk="cvar(0.5)", **TINY).learn()
    number, _ = discrete.predict(discrete.wrap().reset(seed=0)[0])
    assert number in range(5)


def test_actors_have_no_scores():
    agent = ds.PGSRM(CONTINUOUS, risk="cvar(0.5)", **TINY).learn()
    with pytest.raises(TypeError, match="PG-SRM has an actor, and no scores"):
        agent.scores(agent.wrap().reset(seed=0)[0])


@pytest.mark.slow
def test_a_policy_from_before_the_average_stays_the_best_only_if_it_is_clearly_better():
    agent = ds.PGSRM(CONTINUOUS, risk="mean", averaging=0.5, **TINY)
    agent.learn()
    spec, algorithm = agent._driver.planned(), agent.policy.learner.algorithm
    returns = jnp.asarray([-1.0, 1.0, -3.0, 3.0])  # a standard deviation of sqrt(5)
    outer = algorithm.closed_form(returns)

    def margin(before, now):
        return float(pathwise_program._margin(spec, algorithm, before, now, outer, returns))

    # Of four updates, averaging begins with the third.
    assert margin(0, 1) == margin(2, 4) == 0.0
    np.testing.assert_allclose(margin(1, 2), 2 * np.sqrt(5) / 2, rtol=1e-5)


# --- the clock --------------------------------------------------------------------------------


def test_the_discount_so_far_tells_the_step_where_there_is_a_discount():
    clock = find_clock(CONTINUOUS, PathwiseSettings(gamma=0.9))
    assert clock is not None
    assert clock.index is None
    np.testing.assert_allclose(clock.values, [1.0, 0.9, 0.81], rtol=1e-6)


def test_without_a_discount_the_number_that_counts_the_time_tells_the_step():
    clock = find_clock(CONTINUOUS, PathwiseSettings(gamma=1.0))
    assert clock is not None
    assert clock.index == 2
    np.testing.assert_allclose(clock.values, [0.0, 1 / 3, 2 / 3], rtol=1e-6)


@pytest.mark.slow
def test_long_episodes_have_one_network():
    assert find_clock(CONTINUOUS, PathwiseSettings(step_networks=2)) is None
    agent = ds.PGSRM(CONTINUOUS, risk="mean", step_networks=0, **TINY).learn()
    assert agent.networks.count == 1
    assert len(agent.simulate_returns(10, seed=0)) == 10


# --- segments ---------------------------------------------------------------------------------

SEGMENTS = {**TINY, "longest_episode": 40, "segment_steps": 8}


@pytest.mark.slow
def test_long_episodes_are_learned_from_in_segments_and_counted_so():
    agent = ds.PGSRM(Stakes(), risk="cvar(0.5)", gamma=1.0, **SEGMENTS).learn()
    assert agent.settings.total_timesteps == agent.num_timesteps == 4 * 16 * 8
    # Three times 32 episodes that measure a policy, random play, first episodes, and those that
    # segments go on.
    assert agent.simulated_steps == (3 * 32 + 32 + 16 + 16) * 120
    segments = agent._driver.state.learner.segments
    # Rows began 7.5 steps apart; all have gone on by four segments, or begun again.
    ages = np.arange(16) * 120 // 16
    for _ in range(4):
        ages = np.where(ages + 8 >= 120, 0, ages + 8)
    np.testing.assert_array_equal(segments.steps, ages)


@pytest.mark.slow
def test_an_agent_of_segments_is_the_same_after_saving_loading_and_going_on(tmp_path):
    whole = ds.PGSRM(Stakes(), risk="cvar(0.5)", **SEGMENTS).learn()
    part = ds.PGSRM(Stakes(), risk="cvar(0.5)", **SEGMENTS)
    for _ in part.training():
        break
    assert_same(ds.load(part.save(tmp_path / "part"), Stakes()).resume(), whole)


# --- errors -----------------------------------------------------------------------------------


def test_a_reward_that_has_no_derivative_by_the_action_is_refused():
    with pytest.raises(ValueError, match="derivative by number 0 of the action is 0 everywhere"):
        ds.PGSRM(Rounded(), risk="mean", **TINY).learn()


@pytest.mark.slow
def test_a_derivative_that_is_not_finite_is_refused_with_its_place():
    with pytest.raises(ValueError, match="by number 0 of the action at step 0 is not"):
        ds.PGSRM(Rooted(), risk="mean", **TINY).learn()


@pytest.mark.slow
def test_a_gradient_that_becomes_nan_ends_training_at_the_last_good_state():
    agent = ds.PGSRM(Kinked(), risk="mean", **{**TINY, "outer_interval": 1})
    with pytest.raises(ds.DivergenceError, match="the loss or its gradient is not finite"):
        agent.learn()
    kept = agent._driver.state.learner.networks
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(kept) if hasattr(leaf, "shape"))


def test_boxes_without_bounds_are_refused():
    class Unbounded(Stake):
        @property
        def action_space(self):
            return gym.spaces.Box(0.0, np.inf, (1,), np.float32)

    with pytest.raises(ValueError, match="bounds"):
        ds.PGSRM(Unbounded(), risk="mean", **TINY)


def test_environments_that_are_not_in_jax_are_refused_with_a_remedy():
    with pytest.raises(
        ValueError, match=r"must be written in JAX for PG-SRM.*ds.Simulator.*ds.ACSRM"
    ):
        ds.PGSRM("Pendulum-v1", risk="cvar(0.2)")


def test_the_paper_has_no_such_agent():
    with pytest.raises(ValueError, match="`preset` must be 'default' for PG-SRM, got 'paper'"):
        ds.PGSRM(Stake(), risk="mean", preset="paper")


def test_settings_of_other_agents_are_named():
    with pytest.raises(TypeError, match=r"no setting `kappa` for PG-SRM. It is for the QR agents"):
        ds.PGSRM(Stake(), risk="mean", kappa=0.1)
    with pytest.raises(TypeError, match=r"no setting `see_memory` for this.*It is for PG-SRM"):
        ds.QRSRM(ENV, risk="mean", see_memory=True)


@pytest.mark.slow
def test_continuous_actions_are_refused_by_qr_agents_with_a_remedy():
    with pytest.raises(ValueError, match=r"`env` must have discrete actions, got Box.*ds.PGSRM"):
        ds.QRSRM(Stake(), risk="mean")
