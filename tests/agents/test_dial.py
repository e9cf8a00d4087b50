"""The dial's algorithm: what its actor sees, what it maximises, where its targets go."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents import ChoiceDial, DialSRM, PathwiseSettings
from downside.agents.dial_table import Position
from downside.envs import Memory
from downside.risk import Member


def algorithm(risk="cvar(0.25)", **family):
    return DialSRM.make_family(ds.Dial(**family), ds.parse(risk), PathwiseSettings(gamma=1.0))


def test_the_actor_sees_the_distance_to_the_target_and_the_slopes():
    position = Position(jnp.asarray(2.0), jnp.asarray(0.25), jnp.asarray(1.0))
    shown = algorithm().network_input(jnp.asarray([7.0]), Memory(0.5, 0.9), position)
    np.testing.assert_allclose(shown, [7.0, -1.5, 0.9, 0.5])


def test_the_utility_bends_at_the_target():
    # κ = 0.25, b = 2: of 1 it is 0.25 (-1) + 0.75 (-1) = -1, of 4 it is 0.25 * 2 = 0.5.
    position = Position(jnp.full(2, 2.0), jnp.full(2, 0.25), jnp.asarray([1.0, 3.0]))
    returns = jnp.asarray([1.0, 4.0])
    np.testing.assert_allclose(algorithm().utilities(returns, returns, position), [-1.0, 0.5])
    # Weights 1 and 3: (-1 + 1.5) / 2.
    np.testing.assert_allclose(algorithm().batch_value(returns, position), 0.25)


def test_the_best_policy_for_the_utility_is_that_of_the_measure():
    # Two policies: a sure 1, or -1 and 4. By 0.5 mean + 0.5 cvar(0.5) they have 1 and 0.25; with b
    # the 0.5-quantile of the first, 1, the utilities differ in the same direction, by less than h.
    risk = ds.parse("0.5*mean + 0.5*cvar(0.5)")
    sure, risky = jnp.asarray([1.0, 1.0]), jnp.asarray([-1.0, 4.0])
    assert risk(sure) > risk(risky)
    member = ds.Dial().member(risk)
    position = Position(jnp.full(2, 1.0), jnp.full(2, member.ratio), jnp.ones(2))
    by_utility = [algorithm().batch_value(returns, position) for returns in (sure, risky)]
    # h = 0.5 + 1.5 u with its bend at 1: its mean is the measure's value for the sure policy.
    np.testing.assert_allclose(0.5 + 0.5 + 1.5 * by_utility[0] - 0.0, risk(sure))
    assert by_utility[0] > by_utility[1]


@pytest.mark.slow
def test_targets_move_to_the_quantiles_of_each_node():
    dial = algorithm(levels=(0.25, 1.0))
    outer = dial.initial_outer(jnp.zeros(54 * 4))
    assert not outer.targets.any()
    # Each node's four episodes return 0, 1, 2, 3; the quantile of level 0.25 is 1.
    returns = jnp.tile(jnp.arange(4.0), 54)
    _, outer = dial.measured(outer, returns)
    assert outer.targets[0, 0] == pytest.approx(0.5)  # half of the way
    assert outer.position.target == pytest.approx(0.5)
    assert (np.diff(outer.targets, axis=0) >= 0).all()
    np.testing.assert_allclose(outer.spreads, np.arange(4).std())


def test_the_value_at_an_outer_step_is_the_mean_over_the_nodes():
    dial = algorithm(levels=(0.25, 1.0))
    returns = jnp.tile(jnp.asarray([5.0, 1.0, 2.0, 0.0]), 54)
    value, _ = dial.measured(dial.initial_outer(returns), returns)
    nodes = zip(*(np.asarray(part).ravel().tolist() for part in dial._table.nodes()), strict=True)
    measures = [Member(level, share).risk for level, share in nodes]
    expected = np.mean([risk(np.asarray(returns[:4], float)) for risk in measures])
    assert float(value) == pytest.approx(expected, abs=0.02)  # the highest rank is cut


@pytest.mark.slow
def test_mirrored_episodes_share_their_measure_and_all_levels_are_drawn():
    dial = algorithm(levels=(0.01, 1.0))
    outer = dial.initial_outer(jnp.linspace(-1.0, 1.0, 1000))
    drawn = dial.positions(jax.random.key(0), 2000, outer)
    for part in (drawn.target, drawn.ratio, drawn.weight):
        np.testing.assert_array_equal(part[:1000], part[1000:])
    assert np.mean(drawn.ratio == 0.0) == pytest.approx(0.3, abs=0.01)
    assert float(drawn.ratio.max()) > 0.9
    assert float(drawn.weight.mean()) == pytest.approx(1.0, abs=1e-5)
    assert float(drawn.weight.max()) > 3 * float(drawn.weight.min())


def test_where_it_stands_it_has_the_h_of_its_measure():
    dial = algorithm("0.5*mean + 0.5*cvar(0.5)")
    outer = dial.standing(dial.initial_outer(jnp.zeros(100)), 3.0)
    h = dial.utility(outer)
    # 0.5 * 3 + 0.5 z + (z - 3)^-: of 3 it is 3, of 1 it is 2 - 2 = 0.
    np.testing.assert_allclose(h(jnp.asarray([3.0, 1.0])), [3.0, 0.0])
    assert float(outer.position.ratio) == pytest.approx(0.5 / 1.5)


def test_a_dial_must_see_the_accumulated_reward():
    for kind in (DialSRM, ChoiceDial):
        with pytest.raises(ValueError, match=r"`see_memory` must be True for a dial"):
            kind.make_family(ds.Dial(), ds.CVaR(0.1), PathwiseSettings(see_memory=False))
