"""The parts of AC-SRM: h from lived returns, advantages, policies."""

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents.acsrm import (
    ActorCritic,
    LivedSRM,
    _normalised,
    _rescaled,
    generalised_advantages,
)
from downside.agents.networks import MLP, Network
from downside.agents.policy_head import PolicyHead
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


# --- advantages ---------------------------------------------------------------------------------


def test_advantages_by_hand_bootstrap_through_truncation_and_not_through_termination():
    # Errors with γ = 0.5, one column each: terminated, truncated, still running at the end.
    rewards = jnp.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    values = jnp.array([[4.0, 4.0, 4.0], [6.0, 6.0, 6.0]])
    next_values = jnp.array([[6.0, 6.0, 6.0], [8.0, 8.0, 8.0]])
    last = jnp.array([[False] * 3, [True, False, False]])
    over = jnp.array([[False] * 3, [True, True, False]])
    got = generalised_advantages(rewards, values, next_values, last, over, gamma=0.5, decay=0.5)
    # Last step: 2 - 6 = -4, or 2 + 4 - 6 = 0. First step: 1 + 3 - 4 = 0, plus a quarter of that.
    np.testing.assert_allclose(got, [[-1.0, 0.0, 0.0], [-4.0, 0.0, 0.0]])


def test_nothing_flows_back_from_the_next_episode():
    ones = jnp.ones((2, 1))
    over = jnp.array([[True], [False]])
    got = generalised_advantages(
        jnp.array([[1.0], [100.0]]), 0 * ones, 0 * ones, over, over, gamma=1.0, decay=1.0
    )
    np.testing.assert_allclose(got[0], 1.0)


# --- policies -----------------------------------------------------------------------------------


def test_a_gaussian_policy_has_its_density_and_is_clipped_to_the_box():
    low, high = np.array([-1.0, 0.0], np.float32), np.array([3.0, 10.0], np.float32)
    head = PolicyHead.of(gym.spaces.Box(low, high), "env")
    outputs, log_std = jnp.array([0.5, 2.0]), jnp.log(jnp.array([0.5, 2.0]))
    mask = jnp.ones(0, bool)
    raw = head.sample(outputs, log_std, mask, jnp.array([1.0, -0.5]))
    np.testing.assert_allclose(raw, [1.0, 1.0])
    np.testing.assert_allclose(head.action(raw), [3.0, 10.0])
    np.testing.assert_allclose(head.action(jnp.array([-0.5, 7.0])), [0.0, 10.0])
    np.testing.assert_allclose(head.unclipped(head.action(jnp.array([0.25, -0.5]))), [0.25, -0.5])
    got = head.log_probability(outputs, log_std, mask, raw)
    density = jax.scipy.stats.norm.logpdf(raw, outputs, jnp.exp(log_std)).sum()
    np.testing.assert_allclose(got, density, rtol=1e-6)


def test_each_choice_of_a_multidiscrete_space_is_a_softmax_over_its_legal_actions():
    space = gym.spaces.MultiDiscrete([2, 3], start=[0, 5])
    head = PolicyHead.of(space, "env")
    outputs = jnp.log(jnp.array([1.0, 3.0, 1.0, 2.0, 5.0]))
    mask = jnp.array([True, True, True, True, False])
    # 3/4 for action 1, and 1/3 for action 0 among the two that are legal.
    got = head.log_probability(outputs, jnp.zeros(0), mask, jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(jnp.exp(got), 0.75 / 3, rtol=1e-5)
    entropy = -sum(p * np.log(p) for p in (0.25, 0.75)) - sum(p * np.log(p) for p in (1 / 3, 2 / 3))
    np.testing.assert_allclose(head.entropy(outputs, jnp.zeros(0), mask), entropy, rtol=1e-5)
    np.testing.assert_array_equal(head.action(head.mode(outputs, mask)), [1, 6])
    noise = jax.random.uniform(jax.random.key(0), (2000, 5), minval=1e-6)
    drawn = jax.vmap(lambda n: head.sample(outputs, jnp.zeros(0), mask, n))(noise)
    assert set(np.unique(drawn[:, 1])) == {0.0, 1.0}
    np.testing.assert_allclose(drawn.mean(axis=0), [0.75, 2 / 3], atol=0.04)
    np.testing.assert_array_equal(
        head.action_of_rows(np.asarray(drawn)), jax.vmap(head.action)(drawn)
    )


def test_a_box_without_bounds_counts_in_units_of_one():
    head = PolicyHead.of(gym.spaces.Box(-np.inf, np.inf, (2, 1), np.float32), "env")
    np.testing.assert_allclose(head.action(jnp.array([0.5, -3.0])), [[0.5], [-3.0]])


def test_actions_that_no_policy_has_are_refused():
    with pytest.raises(ValueError, match=r"Box \(of floats\), Discrete or MultiDiscrete.*MyEnv"):
        PolicyHead.of(gym.spaces.MultiBinary(3), "MyEnv")


# --- networks -----------------------------------------------------------------------------------


def test_another_scale_of_the_outputs_leaves_what_a_network_computes():
    network = Network(MLP(jax.random.key(0), 2, (4,), "tanh"), 2, (1,))
    network = eqx.tree_at(lambda n: n.head.weight, network, jnp.arange(4.0)[:, None])
    other = _rescaled(network, jnp.asarray(3.0), jnp.asarray(5.0), jnp.asarray(0.5))
    np.testing.assert_allclose(other.scale.output_mean, 1.5)
    np.testing.assert_allclose(other.scale.output_spread, 3.0)
    x = jnp.array([0.3, -2.0])
    np.testing.assert_allclose(network(x), other(x), rtol=1e-5)


def test_inputs_are_normalised_by_all_that_was_seen():
    network = Network(MLP(jax.random.key(0), 3, (4,), "tanh"), 3, (1,))
    networks = ActorCritic(network, network, network)
    parts = np.random.default_rng(0).normal(3.0, 2.0, (2, 50, 3)).astype(np.float32)
    parts[..., 2] = 7.0  # never changes
    count = jnp.zeros(())
    for part in parts:
        networks, count = _normalised(networks, jnp.asarray(part), jnp.ones(50), count)
    scale, rows = networks.critic.scale, parts.reshape(100, 3)
    np.testing.assert_allclose(scale.input_mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scale.input_spread[:2], rows[:, :2].std(axis=0), rtol=1e-4)
    assert scale.input_spread[2] > 0.5
