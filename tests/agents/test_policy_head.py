import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents.policy_head import PolicyHead


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
