import jax
import jax.numpy as jnp
import numpy as np

from downside.ops import return_targets, shortfall_target, utility_target
from downside.risk import Utility

# Two steps with gamma = 0.5. The first reward is 1 or -2, equally likely; then either a safe reward
# or a coin toss between two:
#   after  1: 0 for sure, or  4 and -4;
#   after -2: 1 for sure, or  6 and -2.
GAMMA = 0.5
TREE = {1.0: [(0.0,), (4.0, -4.0)], -2.0: [(1.0,), (6.0, -2.0)]}


def test_return_targets_discount_the_quantiles_of_the_successor():
    # 2 + 0.5 * (-1, 3).
    after = jnp.array([-1.0, 3.0])
    got = return_targets(2.0, after, gamma=0.5, terminated=False)
    np.testing.assert_allclose(got, [1.5, 3.5])


def test_return_targets_at_the_end_are_the_reward_whatever_the_network_says_beyond():
    after = jnp.array([-jnp.inf, jnp.nan, 3.0])
    got = return_targets(2.0, after, gamma=0.5, terminated=True)
    np.testing.assert_array_equal(got, [2.0, 2.0, 2.0])


def test_expected_utility_follows_lemma_one_on_a_tree():
    # h(z) = 0.5 z + min(z - 1, 0).
    # After  1, s = 1:  safe h(1) = 0.5;       toss (h(3) + h(-1)) / 2 = (1.5 - 2.5) / 2 = -0.5.
    # After -2, s = -2: safe h(-1.5) = -3.25;  toss (h(1) + h(-3)) / 2 = (0.5 - 5.5) / 2 = -2.5.
    # The best are 0.5 and -2.5, so V = (0.5 - 2.5) / 2 = -1. Directly: the return is 1 with
    # probability 3/4 and -3 with 1/4, and E[h] = 3/4 * 0.5 - 1/4 * 5.5 = -1.
    utility = Utility(jnp.array([1.0]), jnp.array([1.0]), linear=0.5)
    first = []
    for reward, actions in TREE.items():
        accumulated, discount_so_far = 0.0 + 1.0 * reward, GAMMA * 1.0
        scores = [
            np.mean(
                [
                    utility_target(utility, accumulated + discount_so_far * last, 99.0, True)
                    for last in outcomes
                ]
            )
            for outcomes in actions
        ]
        np.testing.assert_allclose(scores, [0.5, -0.5] if reward == 1 else [-3.25, -2.5])
        first.append(utility_target(utility, accumulated, float(max(scores)), False))
    np.testing.assert_allclose(np.mean(first), -1.0)
    returns = jnp.array([1.0, -3.0])
    np.testing.assert_allclose(utility.expectation(returns, jnp.array([0.75, 0.25])), -1.0)


def test_the_shortfall_follows_its_recursion_on_the_same_tree():
    # b = 1, and b' = (b - r) / gamma.
    # After  1, b = 0: safe b' = 0: 0;              toss b' = -8, 8: (0 - 4) / 2 = -2.
    # After -2, b = 6: safe b' = 10: -0.5 * 10 = -5; toss b' = 0, 16: (0 - 8) / 2 = -4.
    # The best are 0 and -4, so W = 0.5 * (0 - 4) / 2 = -1. Directly: the return is 1 with
    # probability 3/4 and -3 with 1/4, and -E(1 - G)^+ = -4/4 = -1.
    first = []
    for reward, actions in TREE.items():
        target = (1.0 - reward) / GAMMA
        scores = [
            np.mean(
                [
                    shortfall_target((target - last) / GAMMA, 99.0, gamma=GAMMA, terminated=True)
                    for last in outcomes
                ]
            )
            for outcomes in actions
        ]
        np.testing.assert_allclose(scores, [0, -2] if reward == 1 else [-5, -4])
        first.append(shortfall_target(target, float(max(scores)), gamma=GAMMA, terminated=False))
    np.testing.assert_allclose(np.mean(first), -1.0)


def test_a_successor_without_legal_actions_does_not_matter_at_the_end():
    utility = Utility(jnp.array([1.0]), jnp.array([1.0]))
    assert utility_target(utility, 0.0, -jnp.inf, True) == -1
    assert shortfall_target(4.0, -jnp.inf, gamma=0.5, terminated=True) == -2


def test_a_batch_of_transitions_is_mapped_over():
    utility = Utility(jnp.array([1.0]), jnp.array([1.0]))
    ends = jnp.array([True, False])
    numbers = jnp.array([0.0, 3.0])
    got = jax.jit(jax.vmap(utility_target, in_axes=(None, 0, 0, 0)))(
        utility, numbers, numbers, ends
    )
    np.testing.assert_allclose(got, [-1.0, 3.0])
    got = jax.vmap(lambda b, w, end: shortfall_target(b, w, gamma=0.5, terminated=end))(
        numbers + 2.0, -numbers, ends
    )
    np.testing.assert_allclose(got, [-1.0, -1.5])
    got = jax.vmap(lambda r, q, end: return_targets(r, q, gamma=0.5, terminated=end))(
        numbers, jnp.array([[2.0, 4.0], [2.0, 4.0]]), ends
    )
    np.testing.assert_allclose(got, [[0.0, 0.0], [4.0, 5.0]])
