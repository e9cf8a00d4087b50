import jax.numpy as jnp
import numpy as np

from downside.ops import generalised_advantages, less_common_noise


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


def test_what_episodes_of_one_seed_share_is_taken_off_by_hand():
    # Two parts of one step: each is foretold by the other. β = (1·3 + 3·1) / (3² + 1²) = 0.6.
    got, beta = less_common_noise(jnp.array([[1.0], [3.0]]), jnp.ones((2, 1)), 2)
    np.testing.assert_allclose(beta, 0.6, rtol=1e-6)
    np.testing.assert_allclose(got, [[1.0 - 0.6 * 3.0], [3.0 - 0.6 * 1.0]], rtol=1e-6)


def test_rows_of_three_parts_are_compared_step_by_step_and_dummy_steps_left_out():
    # Parts of two steps. In the second step the last part did nothing but reset.
    advantages = jnp.array([[3.0], [1.0], [3.0], [1.0], [3.0], [90.0]])
    weights = jnp.array([[1.0], [1.0], [1.0], [1.0], [1.0], [0.0]])
    got, beta = less_common_noise(advantages, weights, 3)
    np.testing.assert_allclose(beta, 1.0, rtol=1e-6)  # what they share is all there is
    np.testing.assert_allclose(got[:5], 0.0, atol=1e-6)


def test_advantages_stay_where_the_seed_tells_nothing():
    # Opposite in the two parts: the regression would have a negative coefficient.
    advantages = jnp.array([[1.0, -2.0], [-1.0, 2.0]])
    got, beta = less_common_noise(advantages, jnp.ones((2, 2)), 2)
    assert float(beta) == 0.0
    np.testing.assert_allclose(got, advantages)
