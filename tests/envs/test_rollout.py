"""Episodes of scripted problems in JAX, whose returns and lengths are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.envs import CliffWalk, MeanReversion
from downside.envs import rollout as rollout_module
from downside.envs.rollout import play, random_legal, rollout, simulate

from .scripted import GO_ON, TERMINATE, TRUNCATE, Scripted

KEY = jax.random.key(0)


def observed(env, policy):
    """A policy on one observation, for a whole batch of states."""

    def act(states, memory, time):
        return jax.vmap(lambda state: policy(env.observe(state)))(states)

    return act


@pytest.mark.parametrize(
    ("last", "expected", "steps"),
    [
        # Scripted pays time + 1 + 10 a, gamma = 0.5: 1 + 2/2 + 3/4 if it is cut after three.
        (GO_ON, 2.75, 3),
        # The second action ends it: 1 + (2 + 10)/2, and 1 + (2 + 20)/2.
        (TERMINATE, 7.0, 2),
        (TRUNCATE, 12.0, 2),
    ],
)
def test_a_return_is_the_discounted_sum_up_to_the_end(last, expected, steps):
    env = Scripted()
    act = observed(env, lambda shown: jnp.where(shown[0] >= 1.0, last, GO_ON))
    got = play(env, act, gamma=0.5, horizon=3, episodes=4, key=KEY)
    np.testing.assert_allclose(got.memory.accumulated, [expected] * 4)
    np.testing.assert_allclose(got.memory.discount_so_far, [0.5**steps] * 4)
    assert got.steps == 4 * steps
    assert got.largest is None


def ending_at(times):
    """A policy that ends each episode at its time."""

    def act(states, memory, time):
        return jnp.where(time == jnp.asarray(times), TERMINATE, GO_ON)

    return act


def from_the_start(count):
    return jnp.zeros(count, jnp.int32)


def no_noise(count):
    return lambda time: jax.random.split(KEY, count)


def test_steps_are_counted_until_each_episodes_end():
    # 11; 1 + 12/2; 1 + 2/2 + 3/4 + 14/8. Together 1 + 2 + 4 steps.
    got = rollout(
        Scripted(), ending_at([0, 1, 3]), from_the_start(3), no_noise(3), gamma=0.5, horizon=9
    )
    np.testing.assert_allclose(got.memory.accumulated, [11.0, 7.0, 4.5])
    np.testing.assert_allclose(got.memory.discount_so_far, [0.5, 0.25, 0.0625])
    assert got.steps == 7


def test_the_loop_stops_when_the_last_episode_is_over():
    times = []

    def act(states, memory, time):
        jax.debug.callback(lambda now: times.append(int(now)), time)
        return ending_at([1, 2])(states, memory, time)

    got = rollout(Scripted(), act, from_the_start(2), no_noise(2), gamma=1.0, horizon=1000)
    jax.effects_barrier()
    assert times == [0, 1, 2]
    assert got.steps == 5


def test_the_policy_sees_the_state_the_memory_and_the_time():
    # With γ = 0.5 it has earned 2 before the third step: it ends there, 2 + 13/4.
    def act(states, memory, time):
        same = (states == time) & (memory.discount_so_far == 0.5**time)
        return jnp.where(same & (memory.accumulated < 2.0), GO_ON, TERMINATE)

    got = rollout(Scripted(), act, from_the_start(1), no_noise(1), gamma=0.5, horizon=9)
    np.testing.assert_allclose(got.memory.accumulated, [5.25])


def test_what_is_tracked_counts_up_to_the_end_of_each_episode():
    # The state, which rises from 1, and what is missing to 5, which is largest at the start.
    def track(state, earned):
        return jnp.stack([1.0 * state, 5.0 - earned])

    got = rollout(
        Scripted(),
        ending_at([0, 2]),
        from_the_start(2) + 1,
        no_noise(2),
        gamma=1.0,
        horizon=9,
        track=track,
    )
    assert got.largest is not None
    np.testing.assert_allclose(got.largest, [[2, 5], [4, 5]])


def test_episodes_end_at_their_own_time():
    # Random play: the return of an episode of n steps is one of few numbers, and they differ.
    def act(states, memory, time):
        return random_legal(jax.random.fold_in(KEY, time), jnp.ones((64, 3), bool))

    got = play(Scripted(), act, gamma=1.0, horizon=2, episodes=64, key=KEY)
    # 11 or 21 at once; else 1 and then 2, 12 or 22.
    returns = np.asarray(got.memory.accumulated)
    assert set(returns) == {11.0, 21.0, 3.0, 13.0, 23.0}
    assert got.steps == 64 + np.isin(returns, [3.0, 13.0, 23.0]).sum()


@pytest.mark.slow
def test_two_policies_with_one_key_meet_the_same_noise():
    # Holding one unit from the start: -P_0 - cost + P_T - penalty; a second one doubles P_T - P_0.
    env = MeanReversion(periods=3, num_trades=5, cost=0.0, terminal_penalty=0.0)

    def buy(amount):
        act = observed(env, lambda shown: jnp.where(shown[2] == 0.0, 2 + amount, 2))
        return play(env, act, gamma=1.0, horizon=3, episodes=16, key=KEY).memory.accumulated

    single, double = buy(1), buy(2)
    assert np.asarray(single).std() > 0.1
    np.testing.assert_allclose(double, 2 * single, rtol=1e-4, atol=1e-5)


def test_random_actions_are_legal_and_all_of_them_occur():
    masks = jnp.array([[True, False, True], [False, True, False]])
    drawn = jax.vmap(lambda key: random_legal(key, masks))(jax.random.split(KEY, 100))
    assert set(np.asarray(drawn[:, 0])) == {0, 2}
    assert set(np.asarray(drawn[:, 1])) == {1}


def test_a_walk_without_slipping_pays_what_can_be_counted():
    # Up, five times right, down: 7 moves at -1 each and the goal.
    env = CliffWalk(slip=0.0, goal_reward=5.0)

    def walk(shown):
        cell = jnp.argmax(shown)
        return jnp.where(cell == 18, 0, jnp.where(cell == 17, 2, 1))

    got = play(env, observed(env, walk), gamma=1.0, horizon=50, episodes=2, key=KEY)
    np.testing.assert_allclose(got.memory.accumulated, [-2.0, -2.0])
    assert got.steps == 14


def test_simulated_episodes_are_independent_and_as_many_as_asked_for(monkeypatch):
    # Five episodes in batches of two. Buying a unit in the only period pays P_1 - P_0.
    monkeypatch.setattr(rollout_module, "_BATCH", 2)
    env = MeanReversion(periods=1, num_trades=5, cost=0.0, terminal_penalty=0.0)
    returns, largest = simulate(env, lambda state, s, c: 3, gamma=1.0, episodes=5, key=KEY)
    assert returns.shape == (5,)
    assert len(set(returns.tolist())) == 5
    assert largest.shape == (5, 1)


def test_simulation_needs_a_horizon_and_stops_there():
    with pytest.raises(ValueError, match="`env` must have a horizon to be simulated to its end"):
        simulate(Scripted(), lambda state, s, c: GO_ON, gamma=1.0, episodes=1, key=KEY)
    # 1 + 2 + 3, and the largest time is 3.
    returns, largest = simulate(
        Scripted(),
        lambda state, s, c: GO_ON,
        gamma=1.0,
        episodes=2,
        key=KEY,
        horizon=3,
        track=lambda state, s: jnp.stack([1.0 * state, s]),
    )
    assert returns.tolist() == [6.0, 6.0]
    assert largest.tolist() == [[3.0, 6.0]] * 2
