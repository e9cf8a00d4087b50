"""The dial of unordered actions: what its networks see and learn, where it looks for targets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents import ChoiceDial, DialSRM, PathwiseSettings
from downside.agents.choice_dial import ChoicePosition
from downside.envs import MeanReversion, Memory

from .gambles import second_gamble


def algorithm(risk="cvar(0.25)", **family):
    return ChoiceDial.make_family(ds.Dial(**family), ds.parse(risk), PathwiseSettings(gamma=1.0))


def position(target, ratio):
    return ChoicePosition(*(jnp.asarray(part) for part in (target, ratio, 4.0, 1.0)))


def test_it_takes_the_place_of_the_dial_where_actions_have_no_order():
    assert DialSRM.fitting(second_gamble()) is ChoiceDial
    assert DialSRM.fitting(MeanReversion()) is DialSRM
    assert ds.PGSRM(second_gamble(), risk="dial").algorithm_class is ChoiceDial


def test_the_actor_sees_the_distance_to_the_target_in_units_and_finer():
    shown = algorithm().network_input(jnp.asarray([7.0]), Memory(1.0, 0.9), position(3.0, 0.25))
    logs = [-np.log(1 + 10 * 0.5), -np.log(1 + 100 * 0.5)]  # the distance is -2, half a unit
    np.testing.assert_allclose(shown, [7.0, -0.5, *logs, np.tanh(-15.0), 0.9, 0.5], rtol=1e-6)
    assert shown.size == 1 + algorithm().inputs_appended


def test_utilities_are_what_is_there_plus_what_the_outputs_say():
    # κ = 0.25, b = 2: with nothing more than s = 1 the utility is -1; an output of 0.5 adds 2.
    values = algorithm().expected_utilities(
        jnp.asarray([0.0, 0.5]), Memory(jnp.asarray(1.0), 1.0), position(2.0, 0.25)
    )
    np.testing.assert_allclose(values, [-1.0, 1.0])
    np.testing.assert_allclose(position(2.0, 0.25).utility(jnp.asarray([1.0, 4.0])), [-1.0, 0.5])


def test_utilities_have_the_scale_that_was_measured_at_their_target():
    outer = algorithm().initial_outer(jnp.linspace(-1.0, 1.0, 1001))
    unit = float(outer.unit)
    outer = eqx.tree_at(lambda o: o.spreads, outer, 2.0 * unit * (outer.played > 0.0))
    ratios = jnp.asarray([0.0, 0.0, 0.5])
    placed = outer.place(jnp.asarray([-0.9, 0.9, 0.9]), ratios)
    # Nothing is less than 1/20 of a unit; half of κ mixes 2 units with 1.
    np.testing.assert_allclose(placed.scale / unit, [0.05, 2.0, 1.5], rtol=1e-5)


def test_targets_are_drawn_from_the_whole_range_and_near_the_table():
    dial = algorithm()
    outer = dial.initial_outer(jnp.linspace(-1.0, 1.0, 1001))
    outer = eqx.tree_at(lambda o: o.targets, outer, jnp.full_like(outer.targets, 0.9))
    drawn = dial.positions(jax.random.key(0), 4000, outer)
    near = jnp.abs(drawn.target - 0.9) < 0.2
    # 30% by intent, and of the others, at u³ of the range, those with u³ > 0.85: u > 0.947.
    assert float(near.mean()) == pytest.approx(0.3 + 0.7 * 0.053, abs=0.03)
    # The others densely at the low end: below the quarter of the range is u < 0.63.
    others = np.asarray(drawn.target)[~np.asarray(near)]
    assert np.mean(others < -0.5) == pytest.approx(0.63 / 0.947, abs=0.03)
    assert others.min() < -0.95
    # κ = 0: 30% of those near the table (a CVaR alone), 80% of the others.
    assert float((drawn.ratio == 0.0).mean()) == pytest.approx(0.3 * 0.3 + 0.7 * 0.8, abs=0.03)
    assert float(drawn.ratio.max()) > 0.9


@pytest.mark.slow
def test_the_table_has_the_best_target_of_each_measure_and_the_range_of_its_returns():
    dial = algorithm(levels=(0.25, 1.0))
    outer = dial.initial_outer(jnp.linspace(-10.0, 10.0, 101))
    played, each = outer.played, 4
    # Policies of high targets return -8 or 9 and others 0 or 1: by cvar(0.25) these are better, by
    # the mean the former.
    bold = jnp.asarray([-8.0, 9.0, 9.0, 9.0])
    cautious = jnp.asarray([0.0, 1.0, 0.0, 1.0])
    returns = jnp.where((played > 5.0)[:, None, None], bold, cautious)
    returns = jnp.broadcast_to(returns, (played.size, 5, each)).ravel()
    value, after = dial.measured(outer, returns)
    assert dial.policies_measured * each == returns.size
    assert float(after.targets[0, 0]) < float(after.targets[-1, 0])
    # The range from -8 to 9 and its margin, in the first step.
    assert float(after.low) == pytest.approx(-8.0 - 0.01 * 17.0, rel=1e-5)
    assert float(after.high) == pytest.approx(9.0 + 0.01 * 17.0, rel=1e-5)
    assert float(value) < 4.75  # the mean of the bold one, by the measures that like it best


@pytest.mark.slow
def test_one_training_has_the_optimum_at_every_level():
    env = second_gamble()
    dial = ds.PGSRM(
        env, risk="dial", gamma=1.0, seed=1, updates=300, outer_interval=30, outer_episodes=9000
    ).learn()
    for risk in ("cvar(0.1)", "cvar(0.5)", "cvar(0.8)", "0.5*mean + 0.5*cvar(0.5)", "mean"):
        best = ds.solve(env, risk, gamma=1.0, episodes=100).value
        result = ds.evaluate(dial.at(risk), episodes=50_000)
        assert result.value(risk) > best - 4 * result.standard_error(risk) - 0.02
