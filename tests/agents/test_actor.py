"""Actors by hand: the clock, networks at different steps, and actions within their bounds."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents.actor import ActionHead, Actor, Clock
from downside.agents.networks import make_trunk
from downside.envs import MeanReversion, Memory

from ..envs.steered import Steered


def actor(steps=3, size=2, outputs=2):
    clock = Clock(jnp.arange(steps, dtype=float), 0)
    made = Actor.make(jax.random.key(0), make_trunk(None, (4,), "tanh"), size, outputs, clock)
    # Outputs that are not 0: otherwise the steps would not differ.
    weight = jax.random.normal(jax.random.key(1), made.networks.head.weight.shape)
    return eqx.tree_at(lambda a: a.networks.head.weight, made, weight)


def memory(discount=1.0):
    return Memory(jnp.zeros(()), jnp.asarray(discount))


def test_a_clock_reads_the_nearest_step_from_the_observation_or_from_the_discount():
    shown = Clock(jnp.array([0.0, 0.1, 0.2]), 1)
    assert int(shown(jnp.array([9.0, 0.11]), memory())) == 1
    discounts = Clock(0.9 ** jnp.arange(4), None)
    assert int(discounts(jnp.array([9.0, 0.11]), memory(0.9**3))) == 3


@pytest.mark.slow
@pytest.mark.parametrize("steps", [[2, 2, 2, 2], [0, 2, 1, 2]], ids=["one step", "several"])
def test_a_batch_has_the_outputs_of_its_rows_whatever_their_steps(steps):
    networks, rows = actor(), jnp.arange(8.0).reshape(4, 2) / 8
    together = jax.vmap(lambda row, step: networks(row, step))(rows, jnp.array(steps))
    alone = [networks.at_step(row, jnp.asarray(t)) for row, t in zip(rows, steps, strict=True)]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-5)
    assert not np.allclose(networks.at_step(rows[0], jnp.asarray(0)), together[0]) or steps[0] == 0


def test_steps_beyond_the_last_network_use_the_last_one():
    networks, row = actor(), jnp.array([0.5, -0.5])
    last, beyond = (networks.at_step(row, jnp.asarray(step)) for step in (2, 7))
    np.testing.assert_array_equal(last, beyond)


def test_outputs_of_0_are_the_middle_of_the_box_and_large_ones_its_ends():
    head, env = ActionHead.of(Steered())
    assert env.num_actions == 0
    np.testing.assert_allclose(head.point(jnp.zeros(2)), [0.0, 2.0])
    np.testing.assert_allclose(head.point(jnp.array([50.0, -50.0])), [1.0, 0.0])


def test_discrete_trades_are_points_of_a_box_and_the_nearest_legal_one_is_taken():
    # Trades -2, -1, 0, 1, 2; tanh(0.4) * 2 = 0.76 is nearest to 1, which is illegal here.
    env = MeanReversion(num_trades=5)
    head, relaxed = ActionHead.of(env)
    assert isinstance(relaxed, MeanReversion)
    assert relaxed.continuous
    legal = jnp.ones(5, bool)
    assert int(head.action(jnp.array([0.4]), legal)) == 3
    assert int(head.action(jnp.array([0.4]), legal.at[3].set(False))) == 2


def test_a_shift_before_rounding_is_in_steps_of_the_grid():
    # 2 tanh(0.4) = 0.76 between the trades -2, -1, 0, 1, 2: 1 without a shift, 0 from -0.26 on.
    head, _ = ActionHead.of(MeanReversion(num_trades=5))
    np.testing.assert_allclose(head.spacing, [1.0], rtol=1e-6)
    bounds, mask = (jnp.array([-2.0]), jnp.array([2.0])), jnp.ones(5, bool)
    for shift, expected in ((0.0, 1.0), (-0.2, 1.0), (-0.3, 0.0)):
        got = head.legal_point(jnp.array([0.4]), mask, bounds, jnp.ones((), bool), shift)
        np.testing.assert_allclose(got, [expected], atol=1e-6)


def test_the_spacing_of_a_grid_is_the_smallest_step_in_each_direction():
    grid = jnp.array([[0.0, 5.0], [1.0, 5.0], [1.5, 5.0]])
    head = ActionHead(jnp.array([0.0, 0.0]), jnp.array([2.0, 9.0]), grid, 3)
    np.testing.assert_allclose(head.spacing, [0.5, 0.0])


def test_derivatives_pass_through_bounds_and_rounding():
    head, _ = ActionHead.of(MeanReversion(num_trades=5))
    bounds = jnp.array([-2.0]), jnp.array([0.5])

    def point(output, rounded):
        mask = jnp.ones(5, bool)
        return head.legal_point(output[None], mask, bounds, jnp.asarray(rounded))[0]

    # 2 tanh(0.4) = 0.76: cut to 0.5, rounded to 1; the slope is 2 (1 - tanh(0.4)²) in both cases.
    slope = 2 * (1 - np.tanh(0.4) ** 2)
    for rounded, expected in ((False, 0.5), (True, 1.0)):
        value, derivative = jax.value_and_grad(point)(jnp.asarray(0.4), rounded)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        np.testing.assert_allclose(derivative, slope, rtol=1e-5)
