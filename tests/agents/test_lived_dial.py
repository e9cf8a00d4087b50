"""The dial from lived episodes: what its networks see, what a step pays, where targets go."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents import LivedDialSRM, OnPolicySettings
from downside.agents.dial_table import Measures, Position
from downside.agents.lived_dial import EpisodePositions
from downside.envs import Memory


def algorithm(risk="cvar(0.25)", **family):
    settings = OnPolicySettings(gamma=1.0, step_inputs=0)
    return LivedDialSRM.make_family(ds.Dial(**family), ds.parse(risk), settings)


def in_episodes(targets, shares, places):
    """Positions with a weight that nothing here asks for."""
    nothing = jnp.ones(len(targets))
    position = Position(jnp.array(targets), nothing, nothing)
    return EpisodePositions(position, Measures(jnp.array(places), jnp.array(shares)), nothing)


def test_the_networks_see_the_distance_to_the_target_its_bent_part_and_the_slopes():
    dial = algorithm()
    outer = dial.initial_outer(jnp.array([-2.0, 2.0]))  # a spread of 2
    position = Position(jnp.asarray(3.0), jnp.asarray(0.25), jnp.asarray(1.0))
    outer = eqx.tree_at(lambda o: o.position, outer, position)
    seen = dial.network_input(jnp.array([7.0]), Memory(jnp.asarray(2.0), jnp.asarray(0.5)), outer)
    # s - b = -1: -0.5 in spreads, (1 - 0.25) * -0.5 bent, -1 of what can still be earned.
    np.testing.assert_allclose(seen, [7.0, -0.5, -0.375, -1.0, 0.5, 0.5], rtol=1e-6)


def test_the_utility_of_each_episode_bends_at_its_target():
    # With levels from 0.25 to 1, place 0 is α = 0.25. λ = 0.2 there: σ = 0.2 + 0.8/0.25 = 3.4.
    dial = algorithm(levels=(0.25, 1.0))
    outer = dial.initial_outer(jnp.array([-1.0, 1.0]))
    positions = in_episodes([1.0, 1.0], [0.0, 0.2], [0.0, 0.0])
    bent = eqx.tree_at(lambda o: o.mean_share, outer, jnp.zeros(()))
    above, below = (dial.utilities(np.full(2, s), positions, bent) for s in (4.0, -1.0))
    np.testing.assert_allclose(above, [0.0, 3.0 * 0.2 / 3.4], rtol=1e-6)
    np.testing.assert_allclose(below, -2.0)
    # At first only the mean counts: a line of slope 1 for all.
    np.testing.assert_allclose(dial.utilities(np.full(2, 4.0), positions, outer), 3.0)


@pytest.mark.slow
def test_episodes_have_measures_of_the_whole_family_with_the_targets_of_the_table():
    dial = algorithm(levels=(0.01, 1.0))
    outer = dial.initial_outer(jnp.linspace(-1.0, 1.0, 1000))
    drawn = dial.positions(jax.random.key(0), 2000, outer)
    assert np.mean(drawn.measures.share == 0.0) == pytest.approx(0.3, abs=0.01)
    assert np.mean(drawn.measures.share == 1.0) == pytest.approx(0.1, abs=0.01)
    np.testing.assert_allclose(np.sort(drawn.measures.place), np.arange(2000) / 2000, atol=1e-3)
    assert (np.diff(drawn.measures.place) < 0).any()  # in any order
    assert float(drawn.on_curve.mean()) == pytest.approx(0.7, abs=0.04)
    on = np.asarray(drawn.on_curve) > 0
    levels = np.asarray(dial._table.level(drawn.measures.place))
    expected = 2.0 * levels - 1.0  # the quantiles of a uniform return
    near = np.abs(np.asarray(drawn.position.target) - expected) < 0.06
    assert near[on].all()
    assert not near[~on].all()


def test_targets_move_to_the_quantiles_of_the_episodes_around_each_node():
    dial = algorithm(levels=(0.25, 1.0))
    outer = dial.initial_outer(jnp.zeros(8))
    # 1,000 episodes of the most cautious measure return 0, 1, 2, 3; as many of the mean 10 to 13.
    returns = np.concatenate([np.arange(1000) % 4, 10 + np.arange(1000) % 4]).astype(float)
    records = np.repeat([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]], 1000, axis=0)
    lived = dial.summary(returns, records)
    moved = dial.next_outer(outer, lived, jnp.asarray(0.1), jnp.asarray(0.5))
    # Their 0.25-quantile is 0 or 1, where the weights of others are next to nothing.
    assert float(moved.targets[0, 0]) in (0.0, 0.5)
    assert float(moved.targets[-1, -1]) == pytest.approx(6.5)  # half of the way to 13
    assert (np.diff(moved.targets, axis=0) >= 0.0).all()
    assert float(moved.mean_share) == pytest.approx(0.1)
    assert float(moved.spreads[-1, -1]) == pytest.approx((1e-6 + np.arange(4).std()) / 2, rel=0.05)


def test_episodes_off_the_curve_say_nothing_of_the_table():
    dial = algorithm(levels=(0.25, 1.0))
    outer = dial.initial_outer(jnp.zeros(8))
    records = np.array([[0.5, 0.5, 1.0], [0.5, 0.5, 0.0]])
    lived = dial.summary(np.array([2.0, -50.0]), records)
    moved = dial.next_outer(outer, lived, jnp.asarray(0.0), jnp.asarray(1.0))
    np.testing.assert_allclose(moved.targets, 2.0)


def test_the_value_is_the_mean_over_the_nodes():
    dial = algorithm(levels=(0.25, 1.0))
    value, _ = dial.judged(dial.summary(np.full(10, 3.0), np.ones((10, 3))), jnp.asarray(10.0))
    assert float(value) == pytest.approx(3.0)  # all measures of a sure 3


def test_where_it_stands_it_has_the_h_of_its_measure():
    dial = algorithm("0.5*mean + 0.5*cvar(0.5)")
    outer = dial.standing(dial.initial_outer(jnp.zeros(100)), 3.0)
    h = dial.utility(outer)
    # 0.5 * 3 + 0.5 z + (z - 3)^-: of 3 it is 3, of 1 it is 2 - 2 = 0.
    np.testing.assert_allclose(h(jnp.asarray([3.0, 1.0])), [3.0, 0.0])
    assert float(outer.position.ratio) == pytest.approx(0.5 / 1.5)
