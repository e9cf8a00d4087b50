"""The parts of a run that can be looked at alone."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside._random import stream
from downside.agents import SRM, Settings
from downside.agents.networks import make_trunk
from downside.envs import CliffWalk, MeanReversion
from downside.risk import CVaR
from downside.train import fused
from downside.train.outer import policy_returns
from downside.train.program import exploration_share, make_program, measuring_horizon

from .tiny import CHUNK, ENV, TINY, TWO


def program(total, env=ENV, **changes):
    settings = Settings(**{**TINY, **changes})
    return make_program(env, settings, make_trunk(None, (16, 16), "silu"), total)


def shapes_of(function, *arguments):
    """What a compiled function gives, without compiling it."""
    return eqx.filter_eval_shape(function.__wrapped__, *arguments)


@pytest.fixture(scope="module")
def trained():
    return ds.QRSRM(ENV, risk="cvar(0.5)", seed=0, **TINY).learn(TWO)


@pytest.mark.parametrize(("total", "chunks"), [(1, 1), (47, 1), (49, 2), (95, 3), (320, 10)])
def test_a_run_is_a_whole_number_of_chunks(total, chunks):
    # 8 updates at 2 per step are 4 steps of 8 environments: 32 environment steps a chunk.
    made = program(total)
    assert made.steps_per_chunk == 4
    assert made.chunks == chunks
    assert made.updates == 8 * chunks


def test_the_quantiles_get_a_share_of_the_updates_in_blocks_of_250():
    # 0.5 * 8 * 100 = 400 updates are two blocks; one update is one block; none is none.
    assert program(100 * CHUNK, distribution_fraction=0.5).distribution_chunks == 2
    assert program(CHUNK, distribution_fraction=0.125).distribution_chunks == 1
    assert program(CHUNK, distribution_fraction=0.0).distribution_chunks == 0


def test_quantiles_that_are_the_policy_are_not_touched_at_the_end():
    made = program(100 * CHUNK, distribution_fraction=0.5, critic="quantiles")
    assert made.distribution_chunks == 0


@pytest.mark.parametrize(
    ("critic", "outer", "beside"),
    [
        ("utility", "simulated", False),
        ("utility", "learned", True),
        ("quantiles", "learned", False),
    ],
)
def test_quantiles_are_learned_beside_a_critic_where_the_outer_step_needs_them(
    critic, outer, beside
):
    assert program(CHUNK, critic=critic, outer=outer).quantiles_beside == beside


def test_episodes_are_measured_until_nothing_counts_any_more():
    assert measuring_horizon(MeanReversion(periods=7), 0.5) == 7
    endless = CliffWalk(horizon=None)
    # 0.5^10 < 0.001 < 0.5^9; 0.99^688 < 0.001; never for 1, nor soon for 0.9999.
    assert measuring_horizon(endless, 0.5) == 10
    assert measuring_horizon(endless, 0.99) == 688
    assert measuring_horizon(endless, 1.0) == 1000
    assert measuring_horizon(endless, 0.9999) == 1000


def test_exploration_declines_to_its_last_value():
    settings = Settings(exploration_initial=1.0, exploration_final=0.2, exploration_fraction=0.5)
    shares = [float(exploration_share(settings, jnp.asarray(p))) for p in (0.0, 0.25, 0.5, 0.9)]
    np.testing.assert_allclose(shares, [1.0, 0.6, 0.2, 0.2], rtol=1e-6)


def test_the_value_that_is_kept_is_that_of_the_policy_that_is_kept(trained):
    run, made = trained._run, program(TWO)
    returns = policy_returns(
        made,
        trained._algorithm,
        run.kept.networks,
        run.kept.goal,
        TINY["outer_episodes"],
        stream(run.key, "measure"),
    )
    assert np.asarray(returns).std() > 0.0
    np.testing.assert_allclose(run.kept.value, CVaR(0.5)(np.asarray(returns, float)), rtol=1e-4)


def test_every_action_lived_through_was_legal(trained):
    # The warm-up and two chunks: 64 + 64 transitions, with random and with greedy actions.
    run = trained._run
    count = int(run.replay.added)
    assert count == 128
    lived = jax.tree.map(lambda leaf: leaf[:count], run.replay.storage)
    masks = jax.vmap(ENV.action_mask)(lived.state.inner)
    assert not np.asarray(masks).all()
    assert np.asarray(masks)[np.arange(count), np.asarray(lived.action)].all()


def test_what_was_lived_through_obeys_the_equation_of_the_accumulated_reward(trained):
    count = int(trained._run.replay.added)
    lived = jax.tree.map(lambda leaf: np.asarray(leaf[:count]), trained._run.replay.storage)
    before, after = lived.state, lived.next_state
    expected = before.accumulated + before.discount_so_far * lived.reward
    np.testing.assert_allclose(after.accumulated, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.discount_so_far, 0.99 * before.discount_so_far, rtol=1e-6)
    np.testing.assert_array_equal(lived.terminated, after.inner.time == 3)


def test_settling_changes_the_quantiles_and_nothing_that_is_decided(trained):
    run, made = trained._run, program(TWO, distribution_fraction=0.5)
    settled, _ = fused.settle(made, trained._algorithm, run)
    assert eqx.tree_equal(settled.kept.networks.critic, run.kept.networks.critic)
    assert eqx.tree_equal(settled.kept.goal, run.kept.goal)
    assert settled.kept.value == run.kept.value
    assert not eqx.tree_equal(settled.kept.networks.quantiles, run.kept.networks.quantiles)
    assert int(settled.learner.quantile_updates) == 250


@pytest.mark.parametrize(
    "changes",
    [{"near_greedy": 0, "random_actions": 0}, {"near_greedy": 0}, {"near_greedy": 9}],
    ids=str,
)
def test_settling_is_possible_however_decisions_are_drawn(trained, changes):
    made = program(TWO, distribution_fraction=0.5, **changes)
    run, loss = shapes_of(fused.settle, made, trained._algorithm, trained._run)
    assert loss.shape == ()
    before, after = (jax.tree.structure(one) for one in (trained._run, run))
    assert before == after


@pytest.mark.parametrize("critic", ["utility", "quantiles"])
def test_the_papers_outer_step_goes_with_either_critic(critic):
    made = program(TWO, critic=critic, outer="learned")
    algorithm = SRM.make(CVaR(0.5), made.settings)
    run = shapes_of(fused.begin, made, algorithm, jax.random.key(0))
    after, metrics = shapes_of(fused.advance, made, algorithm, run)
    assert jax.tree.structure(after) == jax.tree.structure(run)
    assert all(leaf.shape == () for leaf in metrics)


def test_settings_are_part_of_what_is_compiled_but_the_measure_is_not(trained):
    other = SRM.make(CVaR(0.2), trained.settings)
    assert jax.tree.structure(other) == jax.tree.structure(trained._algorithm)
    one, two = (program(TWO, kappa=kappa) for kappa in (0.02, 0.03))
    assert jax.tree.structure(one) != jax.tree.structure(two)
    assert jax.tree.structure(one) == jax.tree.structure(program(TWO, kappa=0.02))
    assert dataclasses.replace(one, chunks=3).updates == 24
