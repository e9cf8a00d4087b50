"""Replay buffers, and what learners get from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents import SRM, Networks, QuantileLearner, SimulatorSettings, StaticCVaR
from downside.agents.networks import make_trunk
from downside.envs import CliffWalk, Memory, TradingState
from downside.risk import CVaR
from downside.train.backends.gymnasium.program import shuffled
from downside.train.backends.jax.program import _begin, _step_all
from downside.train.backends.replay import (
    NumpyReplayBuffer,
    Observed,
    ReplayBuffer,
    Ring,
    Transition,
    as_branch,
    simulate_branches,
)

from ...agents.by_hand import linear_network
from ...envs.scripted import GO_ON, TERMINATE, Scripted
from ..tiny import ENV

# --- in a compiled program --------------------------------------------------------------------


def transitions(*numbers):
    """Transitions that carry a number in every part."""
    n = jnp.asarray(numbers, float)
    whole = n.astype(jnp.int32)
    return Transition(n, Memory(n + 10, n + 20), whole, n, n + 100.0, whole % 2 == 0, n + 30)


def empty(capacity):
    return ReplayBuffer.empty(jax.tree.map(lambda leaf: leaf[0], transitions(0)), capacity)


@pytest.mark.slow
def test_the_oldest_transitions_are_overwritten():
    replay = empty(6)
    for first in (1, 3, 5, 7):
        replay = replay.add(transitions(first, first + 1))
    np.testing.assert_array_equal(replay.storage.reward, [7, 8, 3, 4, 5, 6])
    np.testing.assert_array_equal(replay.storage.next_state, [107, 108, 103, 104, 105, 106])
    assert (replay.capacity, int(replay.added)) == (6, 8)
    np.testing.assert_array_equal(replay.latest(4).reward, [5, 6, 7, 8])


def test_only_what_was_added_is_sampled_and_its_parts_stay_together():
    replay = empty(6).add(transitions(1, 2)).add(transitions(3, 4))
    sampled = jax.jit(ReplayBuffer.sample, static_argnums=2)(replay, jax.random.key(0), 200)
    number = np.asarray(sampled.action)
    assert set(number) == {1, 2, 3, 4}
    np.testing.assert_array_equal(sampled.reward, number)
    np.testing.assert_array_equal(sampled.next_state, number + 100.0)
    np.testing.assert_array_equal(sampled.memory.accumulated, number + 10.0)
    np.testing.assert_array_equal(sampled.memory.discount_so_far, number + 20.0)
    np.testing.assert_array_equal(sampled.terminated, number % 2 == 0)
    counts = np.bincount(number)[1:]
    assert counts.min() > 25  # 50 expected, standard deviation 6


# --- in the host's memory ---------------------------------------------------------------------


def samples(*numbers):
    """Transitions with the number as reward and as s; above 90 they end the episode; γ = 0.5."""
    n = np.asarray(numbers, float)
    columns = np.stack([n, n], axis=-1)
    state = Observed(columns, np.zeros((len(n), 0), bool))
    after = Observed(columns, np.ones((len(n), 2), bool))
    half = np.full(len(n), 0.5)
    return Transition(state, Memory(n, n), n.astype(int), n, after, n > 90, half)


def numpy_buffer(capacity):
    return NumpyReplayBuffer(observation_size=2, num_actions=2, capacity=capacity)


def test_the_numpy_buffer_overwrites_its_oldest_transitions():
    replay = numpy_buffer(4)
    replay.add(samples(1, 2, 3))
    assert set(replay.sample(np.random.default_rng(0), (50,)).reward) == {1, 2, 3}
    assert replay.filled().reward.tolist() == [1, 2, 3]
    replay.add(samples(4, 5))
    assert replay.storage.reward.tolist() == [5, 2, 3, 4]
    assert replay.filled().reward.tolist() == [5, 2, 3, 4]
    assert int(replay.added) == 5


def test_several_steps_are_taken_as_one():
    replay = numpy_buffer(8)
    first = replay.add(samples(1, 10), np.array([-1, -1]))
    second = replay.add(samples(2, 95), first)  # the second episode ends
    third = replay.add(samples(3, 20), np.array([second[0], -1]))
    sampled = replay.sample(np.random.default_rng(0), (200,), 3)
    by_memory = {
        int(s): (reward, after[0], ended, discount)
        for s, reward, after, ended, discount in zip(
            sampled.memory.accumulated,
            sampled.reward,
            sampled.next_state.observation,
            sampled.terminated,
            sampled.discount,
            strict=True,
        )
    }
    assert by_memory == {
        1: (1 + 2 / 2 + 3 / 4, 3, False, 1 / 8),
        2: (2 + 3 / 2, 3, False, 1 / 4),  # the third has not followed yet
        3: (3, 3, False, 1 / 2),
        10: (10 + 95 / 2, 95, True, 1 / 4),  # not into the next episode
        95: (95, 95, True, 1 / 2),
        20: (20, 20, False, 1 / 2),
    }
    # What follows is overwritten after what it follows, so that links never lead astray.
    fourth = replay.add(samples(4, 30), third)
    replay.add(samples(5, 40), fourth)
    sampled = replay.sample(np.random.default_rng(0), (200,), 2)
    rewards = dict(zip(sampled.memory.accumulated.astype(int), sampled.reward, strict=True))
    assert rewards == {2: 3.5, 95: 95, 3: 5, 20: 35, 4: 6.5, 30: 50, 5: 5, 40: 40}


def test_a_small_buffer_does_not_link_to_what_was_overwritten():
    replay = numpy_buffer(3)
    first = replay.add(samples(1, 2), np.array([-1, -1]))
    replay.add(samples(3, 4), first)
    assert replay.storage.reward.tolist() == [4, 2, 3]
    assert replay.successor.tolist() == [-1, 0, -1]


def test_some_transitions_are_taken_with_the_memory_of_another():
    # The first three of five hand theirs round; what happened to each stays as it was.
    batch = samples(1, 2, 3, 4, 5)
    batch = batch._replace(memory=Memory(10 + np.arange(5.0), 0.5 + np.arange(5.0) / 10))
    got = shuffled(batch, 3)
    np.testing.assert_allclose(got.memory.accumulated, [12, 10, 11, 13, 14])
    np.testing.assert_allclose(got.memory.discount_so_far, [0.7, 0.5, 0.6, 0.8, 0.9])
    for name in set(Transition._fields) - {"memory"}:
        jax.tree.map(np.testing.assert_array_equal, getattr(got, name), getattr(batch, name))
    np.testing.assert_allclose(shuffled(batch, 0).memory.accumulated, batch.memory.accumulated)


def test_a_ring_holds_what_was_written_last():
    ring = Ring(3, (), float)
    assert len(ring.filled()) == 0
    ring.add(np.array([1.0, 2.0]))
    assert ring.filled().tolist() == [1, 2]
    ring.add(np.array([3.0, 4.0]))
    assert ring.filled().tolist() == [4, 2, 3]


# --- transitions as they were lived through ---------------------------------------------------


def test_a_transition_is_a_branch_with_one_action_and_one_outcome():
    # Scripted pays time + 1 + 10 a and observes the time. At time 1 with (s, c) = (1, 0.5),
    # ending pays 12: s' = 1 + 0.5 * 12 = 7, c' = 0.25.
    env, start = Scripted(), jnp.ones((), jnp.int32)
    after = env.transition(start, TERMINATE, jnp.zeros(()))
    memory = Memory(jnp.array(1.0), jnp.array(0.5))
    branch = as_branch(
        env,
        Transition(
            start,
            memory,
            jnp.asarray(TERMINATE),
            after.reward,
            after.state,
            after.terminated,
            jnp.array(0.5),
        ),
    )
    np.testing.assert_allclose(branch.observation, [1])
    assert branch.memory == memory
    np.testing.assert_array_equal(branch.actions, [TERMINATE])
    np.testing.assert_array_equal(branch.weights, [1])
    np.testing.assert_allclose(branch.rewards, [[12]])
    np.testing.assert_allclose(branch.next_observations, [[[2]]])
    np.testing.assert_allclose(branch.next_memory.accumulated, [[7]])
    np.testing.assert_allclose(branch.next_memory.discount_so_far, [[0.25]])
    np.testing.assert_array_equal(branch.next_masks, [[[True] * 3]])
    np.testing.assert_array_equal(branch.terminated, [[True]])
    np.testing.assert_allclose(branch.discounts, [[0.5]])


@pytest.mark.slow
def test_a_time_limit_bootstraps_from_the_final_observation_and_starts_anew():
    # Two steps up from the bottom left of 4 x 6 without slipping: cells 18, 12, 6. Each pays -1,
    # so s = -1 - 0.5 and c = 0.25 at the limit, which is no end of the problem.
    env = CliffWalk(slip=0.0, horizon=2)
    states = _begin(jax.vmap(env.initial_state)(jax.random.split(jax.random.key(0), 3)), 3)
    actions = jnp.full(3, GO_ON, jnp.int32)
    first, states, over = _step_all(env, 0.5, states, actions, jax.random.key(1))
    np.testing.assert_array_equal(states.inner.time, [1, 1, 1])
    assert not over.any()
    np.testing.assert_array_equal(first.memory.accumulated, [0] * 3)
    last, states, over = _step_all(env, 0.5, states, actions, jax.random.key(2))
    np.testing.assert_array_equal(last.memory.accumulated, [-1] * 3)
    np.testing.assert_array_equal(last.terminated, [False] * 3)
    assert over.all()
    np.testing.assert_array_equal(last.next_state.cell, [6] * 3)
    branch = as_branch(env, jax.tree.map(lambda leaf: leaf[0], last))
    np.testing.assert_allclose(branch.next_memory.accumulated, [[-1.5]])
    np.testing.assert_allclose(branch.next_memory.discount_so_far, [[0.25]])
    assert not branch.terminated.any()
    np.testing.assert_array_equal(states.inner.cell, [18] * 3)
    np.testing.assert_array_equal(states.inner.time, [0] * 3)
    np.testing.assert_array_equal(states.memory.accumulated, [0] * 3)
    np.testing.assert_array_equal(states.memory.discount_so_far, [1] * 3)


# --- simulated afresh -------------------------------------------------------------------------

SETTINGS = SimulatorSettings(top_actions=4, random_actions=1, samples_per_action=3, gamma=0.5)
SCORES = [3.0, 1.0, 5.0, 2.0, 4.0]


def simulate(algorithm, outer, settings=SETTINGS, *, amount=0.0, weight=None):
    """Branches at price 1.5 with two units, after a reward of 2 in the first period."""
    size = 3 + algorithm.memory_input(outer).size
    weight = np.zeros((size, 5)) if weight is None else weight
    critic = linear_network(weight, SCORES, (5,))
    networks = Networks(critic, linear_network(np.zeros((size, 10)), np.zeros(10), (5, 2)))
    trunk = make_trunk(None, (4,), "silu", False)
    learner = QuantileLearner(algorithm, settings, trunk, 5, 10, 10)
    state = TradingState(jnp.array(1.5), jnp.array(2.0), jnp.array(1, jnp.int32))
    return simulate_branches(
        learner,
        settings,
        ENV,
        networks,
        outer,
        state,
        Memory(jnp.array(2.0), jnp.array(0.5)),
        jnp.asarray(amount, float),
        jax.random.key(3),
    )


def srm():
    algorithm = SRM.make(CVaR(0.5), SETTINGS)
    return algorithm, algorithm.initial_outer(jnp.zeros(2))


@pytest.fixture(scope="module")
def branch():
    return simulate(*srm())


@pytest.mark.slow
def test_the_best_legal_actions_come_first_and_illegal_ones_do_not_count(branch):
    # With two units under a limit of two, buying (actions 3 and 4) is illegal. Of the others,
    # 2, 0 and 1 score 5, 3 and 1. There is no fourth: the best one again, without weight, since
    # what follows an illegal action need not be finite. The last action is drawn at random among
    # the legal ones.
    np.testing.assert_array_equal(branch.actions[:4], [2, 0, 1, 2])
    assert branch.actions[4] in (0, 1, 2)
    np.testing.assert_allclose(branch.weights, [1, 1, 1, 0, 0.2])


def test_all_actions_meet_the_same_noise(branch):
    prices = np.asarray(branch.next_observations[:, :, 0])
    assert prices.shape == (5, 3)
    np.testing.assert_array_equal(prices, np.broadcast_to(prices[0], prices.shape))
    assert np.unique(prices[0]).size == 3


def test_what_follows_is_what_each_action_leads_to(branch):
    # Doing nothing, selling 2, selling 1 at the price 1.5: -a P - 0.005 a^2.
    expected = np.array([0.0, 3.0 - 0.02, 1.5 - 0.005])
    np.testing.assert_allclose(branch.rewards[:3], np.repeat(expected[:, None], 3, 1), rtol=1e-5)
    np.testing.assert_allclose(branch.next_observations[:3, 0, 1], [2, 0, 1])
    np.testing.assert_array_equal(branch.next_masks[1, 0], [True] * 5)
    np.testing.assert_array_equal(branch.next_masks[0, 0], [True, True, True, False, False])
    assert not branch.terminated.any()


@pytest.mark.parametrize("amount", [0.0, -0.7])
def test_relabelled_branches_obey_the_equations_of_their_memory(amount):
    made = simulate(*srm(), amount=amount)
    accumulated, discount = made.memory
    np.testing.assert_allclose(accumulated, 2.0 + amount, rtol=1e-6)
    np.testing.assert_allclose(discount, 0.5)
    after = made.next_memory
    np.testing.assert_allclose(after.accumulated, accumulated + 0.5 * made.rewards, rtol=1e-5)
    np.testing.assert_allclose(after.discount_so_far, np.full((5, 3), 0.25))


def test_relabelled_targets_obey_their_equation():
    algorithm, outer = StaticCVaR.make(CVaR(0.5), SETTINGS), jnp.array(3.0)
    made, inputs = simulate(algorithm, outer, amount=0.4), algorithm.memory_input(outer)
    # b = (3 - 2 - 0.4) / 0.5 = 1.2, and b' = (b - r) / 0.5.
    (b,), (after,) = inputs.show(made.memory), inputs.show(made.next_memory)
    np.testing.assert_allclose(b, 1.2, rtol=1e-6)
    np.testing.assert_allclose(after, (b - made.rewards) / 0.5, rtol=1e-5)


@pytest.mark.slow
def test_the_best_actions_are_those_of_the_memory_as_it_will_be():
    # Action 1 gains 1 for each unit of accumulated reward: 1 + 2 is no match for 5, 1 + 2 + 4 is.
    weight = np.zeros((5, 5))
    weight[-2, 1] = 1.0
    few = SimulatorSettings(top_actions=1, random_actions=1, samples_per_action=3, gamma=0.5)
    actions = [
        int(simulate(*srm(), few, amount=amount, weight=weight).actions[0]) for amount in (0.0, 4.0)
    ]
    assert actions == [2, 1]
