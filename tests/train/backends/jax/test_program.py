"""The parts of a run in a JAX environment that can be looked at alone."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from downside.agents import SRM, GymnasiumSettings, SimulatorSettings
from downside.agents.networks import make_trunk
from downside.envs import CliffWalk, MeanReversion
from downside.risk import CVaR
from downside.train.backends.jax import program as jax_program
from downside.train.backends.state import TrainSpec, measuring_horizon
from downside.train.config import resolve

from ...tiny import CHUNK, ENV, TINY, TWO, make, state_of


def spec(total, env=ENV, **changes):
    settings = SimulatorSettings(**{**TINY, **changes})
    trunk = make_trunk(None, (16, 16), "silu", False)
    return TrainSpec.make(env, settings, trunk, env.num_actions, total)


def shapes_of(function, *arguments):
    """What a compiled function gives, without compiling it."""
    return eqx.filter_eval_shape(function.__wrapped__, *arguments)


@pytest.fixture(scope="module")
def trained():
    return make().learn(TWO)


# --- how long, how often ----------------------------------------------------------------------


@pytest.mark.parametrize(("total", "chunks"), [(1, 1), (47, 1), (49, 2), (95, 3), (320, 10)])
def test_a_run_is_a_whole_number_of_chunks(total, chunks):
    # 8 updates at 2 per round are 4 rounds of 8 environments: 32 environment steps a chunk.
    made = spec(total)
    assert (made.rounds_per_chunk, made.timesteps_per_chunk) == (4, 32)
    assert (made.chunks, made.rounds, made.updates) == (chunks, 4 * chunks, 8 * chunks)


def test_the_quantiles_get_a_share_of_the_updates_in_blocks_of_250():
    # 0.5 * 8 * 100 = 400 updates are two blocks; one update is one block; none is none.
    assert spec(100 * CHUNK, evaluation_fraction=0.5).fit_chunks == 2
    assert spec(CHUNK, evaluation_fraction=0.125).fit_chunks == 1
    assert spec(CHUNK, evaluation_fraction=0.0).fit_chunks == 0
    # Quantiles that are the policy are not touched at the end.
    assert spec(100 * CHUNK, evaluation_fraction=0.5, critic="quantiles").fit_chunks == 0


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
    assert spec(CHUNK, critic=critic, outer=outer).quantiles_beside == beside


def test_episodes_are_measured_until_nothing_counts_any_more():
    assert measuring_horizon(MeanReversion(periods=7), 0.5) == 7
    endless = CliffWalk(horizon=None)
    # 0.5^10 < 0.001 < 0.5^9; 0.99^688 < 0.001; never for 1, nor soon for 0.9999.
    assert measuring_horizon(endless, 0.5) == 10
    assert measuring_horizon(endless, 0.99) == 688
    assert measuring_horizon(endless, 1.0) == 1000
    assert measuring_horizon(endless, 0.9999) == 1000


@pytest.mark.parametrize("number", [float, np.float32])
def test_exploration_declines_from_one_to_its_last_value(number):
    made = spec(CHUNK, exploration_final=0.2, exploration_fraction=0.5)
    shares = [float(made.exploration(number(p))) for p in (0.0, 0.25, 0.5, 0.9)]
    np.testing.assert_allclose(shares, [1.0, 0.6, 0.2, 0.2], rtol=1e-6)
    at_once = spec(CHUNK, exploration_final=0.2, exploration_fraction=0.0)
    assert float(at_once.exploration(number(0.1))) == pytest.approx(0.2)


# --- what was lived through -------------------------------------------------------------------


def lived_through(agent):
    replay = state_of(agent).replay
    count = int(replay.added)
    return count, jax.tree.map(lambda leaf: np.asarray(leaf[:count]), replay.storage)


@pytest.mark.slow
def test_every_action_was_legal(trained):
    # The warm-up and two chunks: 64 + 64 transitions, with random and with greedy actions.
    count, lived = lived_through(trained)
    assert count == 128
    masks = np.asarray(jax.vmap(ENV.action_mask)(lived.state))
    assert not masks.all()
    assert masks[np.arange(count), lived.action].all()


def test_episodes_follow_each_other_with_their_memory(trained):
    count, lived = lived_through(trained)
    # 8 environments in turn: the transition that follows is 8 further on.
    before = jax.tree.map(lambda leaf: leaf[:-8], lived)
    after = jax.tree.map(lambda leaf: leaf[8:], lived)
    goes_on = ~before.terminated
    assert 0 < goes_on.sum() < count - 8
    memory = before.memory.update(before.reward, 0.99)
    for expected, got in zip(memory, after.memory, strict=True):
        np.testing.assert_allclose(got[goes_on], expected[goes_on], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(after.memory.accumulated[~goes_on], 0.0)
    np.testing.assert_array_equal(after.memory.discount_so_far[~goes_on], 1.0)
    np.testing.assert_array_equal(lived.terminated, lived.next_state.time == 3)
    np.testing.assert_array_equal(after.state.time[goes_on], before.next_state.time[goes_on])
    np.testing.assert_allclose(lived.discount, 0.99)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, 8 * 3 * 2),
        ({"top_actions": 4, "random_actions": 9}, 8 * 5 * 2),  # there are five actions
        ({"top_actions": 0}, 0),  # transitions of the buffer as they are
    ],
)
def test_as_many_steps_are_counted_as_are_simulated(trained, changes, steps):
    made, algorithm, state = spec(TWO, **changes), trained._driver.algorithm, state_of(trained)
    assert jax_program.simulated_per_batch(made) == steps
    batch = eqx.filter_eval_shape(
        jax_program._batch, made, algorithm, state, state.learner.networks, jax.random.key(0)
    )
    assert batch.rewards.size == (steps or 8)


# --- learning the return distribution ---------------------------------------------------------


@pytest.mark.slow
def test_fitting_changes_the_quantiles_and_nothing_that_is_decided(trained):
    state, made = state_of(trained), spec(TWO, evaluation_fraction=0.5)
    fitted, _ = jax_program.fit_return_distribution(made, trained._driver.algorithm, state)
    assert eqx.tree_equal(fitted.best.networks.critic, state.best.networks.critic)
    assert eqx.tree_equal(fitted.best.outer, state.best.outer)
    assert fitted.best.value == state.best.value
    assert not eqx.tree_equal(fitted.best.networks.quantiles, state.best.networks.quantiles)
    assert int(fitted.learner.quantile_updates) == 250
    # Further training goes on from the critics that were learning.
    for part in ("networks", "targets"):
        kept, before = (getattr(each.learner, part).critic for each in (fitted, state))
        assert eqx.tree_equal(kept, before)


@pytest.mark.parametrize(
    "changes",
    [{"top_actions": 0, "random_actions": 0}, {"top_actions": 0}, {"top_actions": 9}],
    ids=str,
)
def test_fitting_is_possible_however_transitions_are_branched(trained, changes):
    made = spec(TWO, evaluation_fraction=0.5, **changes)
    state, loss = shapes_of(
        jax_program.fit_return_distribution, made, trained._driver.algorithm, state_of(trained)
    )
    assert loss.shape == ()
    assert jax.tree.structure(state) == jax.tree.structure(state_of(trained))


# --- what is compiled -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("critic", ["utility", "quantiles"])
def test_the_papers_outer_step_goes_with_either_critic(critic):
    made = spec(TWO, critic=critic, outer="learned")
    algorithm = SRM.make(CVaR(0.5), made.settings)
    state, simulated = shapes_of(jax_program.init, made, algorithm, jax.random.key(0))
    assert simulated.dtype == np.int32
    after, metrics = shapes_of(jax_program.chunk, made, algorithm, state)
    shapes = [jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), each) for each in (state, after)]
    assert eqx.tree_equal(*shapes)  # or the second chunk would be compiled again
    assert all(leaf.shape == () for leaf in metrics)


def test_settings_are_part_of_what_is_compiled_but_the_measure_is_not(trained):
    other = SRM.make(CVaR(0.2), trained.settings)
    assert jax.tree.structure(other) == jax.tree.structure(trained._driver.algorithm)
    first, second = (spec(TWO, kappa=kappa) for kappa in (0.02, 0.03))
    assert jax.tree.structure(first) != jax.tree.structure(second)
    again = dataclasses.replace(first, settings=dataclasses.replace(first.settings))
    assert jax.tree.structure(first) == jax.tree.structure(again)
    assert dataclasses.replace(first, chunks=3).updates == 24


def test_in_gymnasium_the_quantiles_decide_where_episodes_are_long():
    trunk = make_trunk(None, (16, 16), "silu", False)
    settings = resolve(SRM, GymnasiumSettings, "default", {})
    assert isinstance(settings, GymnasiumSettings)
    made = TrainSpec.make(None, settings, trunk, 2, 1)
    assert not made.has_critic
    assert made.fit_chunks == 0
