import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.envs import CliffWalk, MeanReversion
from downside.train.rollout import greedy_returns, random_legal

from ..envs.scripted import GO_ON, TERMINATE, TRUNCATE, Scripted

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        # Scripted pays time + 1 + 10 a, gamma = 0.5: 1 + 2/2 + 3/4 if it is cut after three.
        (GO_ON, 2.75),
        # The second action ends it: 1 + (2 + 10)/2, and 1 + (2 + 20)/2.
        (TERMINATE, 7.0),
        (TRUNCATE, 12.0),
    ],
)
def test_a_return_is_the_discounted_sum_up_to_the_end(last, expected):
    def act(observation, mask, key):
        return jnp.where(observation[0] >= 1.0, last, GO_ON)

    got = greedy_returns(Scripted(), act, gamma=0.5, horizon=3, episodes=4, key=KEY)
    np.testing.assert_allclose(got, [expected] * 4)


def test_episodes_end_at_their_own_time():
    # Random play: the return of an episode of n steps is one of few numbers, and they differ.
    got = greedy_returns(
        Scripted(),
        lambda observation, mask, key: random_legal(key, mask),
        gamma=1.0,
        horizon=2,
        episodes=64,
        key=KEY,
    )
    # 11 or 21 at once; else 1 and then 2, 12 or 22.
    assert set(np.asarray(got)) == {11.0, 21.0, 3.0, 13.0, 23.0}


def test_two_policies_with_one_key_meet_the_same_noise():
    # Holding one unit from the start: -P_0 - cost + P_T - penalty; a second one doubles P_T - P_0.
    env = MeanReversion(periods=3, num_trades=5, cost=0.0, terminal_penalty=0.0)

    def buy(amount):
        def act(observation, mask, key):
            return jnp.where(observation[2] == 0.0, 2 + amount, 2)

        return greedy_returns(env, act, gamma=1.0, horizon=3, episodes=16, key=KEY)

    one, two = buy(1), buy(2)
    assert np.asarray(one).std() > 0.1
    np.testing.assert_allclose(two, 2 * one, rtol=1e-4, atol=1e-5)


def test_random_actions_are_legal_and_all_of_them_occur():
    masks = jnp.array([[True, False, True], [False, True, False]])
    drawn = jax.vmap(lambda key: random_legal(key, masks))(jax.random.split(KEY, 100))
    assert set(np.asarray(drawn[:, 0])) == {0, 2}
    assert set(np.asarray(drawn[:, 1])) == {1}


def test_a_walk_without_slipping_pays_what_can_be_counted():
    # Up, five times right, down: 7 moves at -1 each and the goal.
    def act(observation, mask, key):
        cell = jnp.argmax(observation)
        return jnp.where(cell == 18, 0, jnp.where(cell == 17, 2, 1))

    got = greedy_returns(
        CliffWalk(slip=0.0, goal_reward=5.0), act, gamma=1.0, horizon=50, episodes=2, key=KEY
    )
    np.testing.assert_allclose(got, [-2.0, -2.0])
