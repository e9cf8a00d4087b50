"""The parts of AC-SRM: h from lived returns, advantages, policies."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents.acsrm import LivedSRM
from downside.agents.settings import OnPolicySettings
from downside.envs import Memory
from downside.risk import parse


def algorithm(risk, **changes):
    return LivedSRM.make(parse(risk), OnPolicySettings(**changes))


# --- h ------------------------------------------------------------------------------------------


def test_the_mean_utility_of_the_lived_returns_is_their_risk_value():
    returns = jnp.array([3.0, -1.0, 0.5, 2.0, 7.0, -4.0, 1.0, 0.0])
    made = algorithm("0.3*mean + 0.7*cvar(0.25)")
    h = made.lived(returns, jnp.zeros(())).utility
    # The worst quarter is -4 and -1; the mean is 8.5 / 8.
    np.testing.assert_allclose(h(returns).mean(), 0.3 * 8.5 / 8 + 0.7 * -2.5, rtol=1e-5)


def test_a_share_of_the_mean_makes_h_a_line_in_the_end():
    returns = jnp.array([3.0, -1.0, 0.5, 2.0])
    h = algorithm("cvar(0.5)").lived(returns, jnp.ones(())).utility
    np.testing.assert_allclose(h(jnp.array([-5.0, 0.0, 5.0])), [-5.0, 0.0, 5.0], atol=1e-6)


def test_knots_move_a_share_of_the_way_and_h_stays_the_h_of_its_knots():
    made = algorithm("cvar(0.5)")
    old, new = (
        made.lived(jnp.array(returns), jnp.zeros(()))
        for returns in ([0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0])
    )
    moved = made.moved(old, new, jnp.asarray(0.25))
    np.testing.assert_allclose(moved.utility.knots, [3.0])  # from 2 to 6
    # h(z) = b + min(z - b, 0) / 0.5 with b = 3
    np.testing.assert_allclose(moved.utility(jnp.array([1.0, 3.0, 9.0])), [-1.0, 3.0, 3.0])


def test_the_networks_see_the_return_relative_to_the_bends():
    made = algorithm("cvar(0.5)", step_inputs=0)
    outer = made.lived(jnp.array([0.0, 2.0, 4.0, 6.0]), jnp.zeros(()))
    seen = made.network_input(jnp.array([9.0]), Memory(jnp.asarray(5.0), jnp.asarray(0.5)), outer)
    unit = float(np.std([0.0, 2.0, 4.0, 6.0]))  # the bend is at 4
    np.testing.assert_allclose(seen, [9.0, 1.0 / unit, 0.0, 2.0 / unit, 0.5], rtol=1e-6)


def test_nothing_of_the_return_is_shown_if_only_the_mean_counts():
    made = algorithm("mean", step_inputs=0)
    outer = made.initial_outer(jnp.array([0.0, 1.0]))
    seen = made.network_input(jnp.array([9.0]), Memory(jnp.asarray(5.0), jnp.asarray(0.5)), outer)
    np.testing.assert_array_equal(seen, [9.0])


@pytest.mark.parametrize(("gamma", "observation"), [(0.9, [9.0]), (1.0, [9.0, 2.0])])
def test_short_episodes_have_a_mark_for_each_step(gamma, observation):
    made = algorithm("mean", step_inputs=4, gamma=gamma)
    outer = made.initial_outer(jnp.array([0.0, 1.0]))
    memory = Memory(jnp.asarray(5.0), jnp.asarray(gamma**2))
    seen = made.network_input(jnp.array(observation), memory, outer)
    np.testing.assert_array_equal(seen[-4:], 0.0)
    short = eqx.tree_at(lambda o: o.short, outer, jnp.ones(()))
    seen = made.network_input(jnp.array(observation), memory, short)
    np.testing.assert_array_equal(seen[-4:], [0.0, 0.0, 1.0, 0.0])
