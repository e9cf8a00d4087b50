import jax.numpy as jnp
import numpy as np

from downside.ops import generalised_advantages


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
