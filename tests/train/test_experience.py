import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents import SRM, Networks, Settings, StaticCVaR
from downside.envs import CliffWalk, JaxReturnAware, TradingState
from downside.risk import CVaR
from downside.train.experience import (
    Lived,
    Replay,
    lived_decision,
    relabelled,
    simulated_decision,
)
from downside.train.fused import _live

from ..agents.by_hand import linear_network
from ..envs.scripted import GO_ON, TERMINATE, Scripted
from .tiny import ENV


def lived(*numbers):
    """Transitions that carry a number in every part."""
    values = jnp.asarray(numbers, float)
    whole = values.astype(jnp.int32)
    return Lived(values, whole, values, values + 100.0, whole % 2 == 0)


def empty(capacity):
    return Replay.empty(jax.tree.map(lambda leaf: leaf[0], lived(0)), capacity)


# --- the replay -------------------------------------------------------------------------------


def test_the_oldest_transitions_are_overwritten():
    replay = empty(6)
    for first in (1, 3, 5, 7):
        replay = replay.add(lived(first, first + 1))
    np.testing.assert_array_equal(replay.storage.reward, [7, 8, 3, 4, 5, 6])
    np.testing.assert_array_equal(replay.storage.next_state, [107, 108, 103, 104, 105, 106])
    assert (replay.capacity, int(replay.added)) == (6, 8)


def test_only_what_was_added_is_sampled_and_its_parts_stay_together():
    replay = empty(6).add(lived(1, 2)).add(lived(3, 4))
    sampled = jax.jit(Replay.sample, static_argnums=2)(replay, jax.random.key(0), 200)
    assert set(np.asarray(sampled.action)) == {1, 2, 3, 4}
    np.testing.assert_array_equal(sampled.reward, sampled.action)
    np.testing.assert_array_equal(sampled.next_state, sampled.action + 100.0)
    np.testing.assert_array_equal(sampled.terminated, np.asarray(sampled.action) % 2 == 0)
    counts = np.bincount(np.asarray(sampled.action))[1:]
    assert counts.min() > 25  # 50 expected, standard deviation 6


# --- as it was lived through ------------------------------------------------------------------


def step(env, state, action):
    after = env.transition(state, action, env.sample_noise(jax.random.key(0)))
    return Lived(state, jnp.asarray(action), after.reward, after.state, after.terminated)


def test_a_transition_is_a_decision_with_one_action_and_one_outcome():
    # Scripted pays time + 1 + 10 a and observes the time: 1, then 12; s' = 1 + 0.5 * 12 = 7.
    env = JaxReturnAware(Scripted(), 0.5)
    first = step(env, env.initial_state(jax.random.key(0)), GO_ON)
    decision = lived_decision(env, step(env, first.next_state, TERMINATE), 0.9)
    np.testing.assert_allclose(decision.observation, [1, 1, 0.5])
    np.testing.assert_array_equal(decision.actions, [TERMINATE])
    np.testing.assert_array_equal(decision.emphasis, [1])
    np.testing.assert_allclose(decision.rewards, [[12]])
    np.testing.assert_allclose(decision.next_observations, [[[2, 7, 0.25]]])
    np.testing.assert_array_equal(decision.next_masks, [[[True] * 3]])
    np.testing.assert_array_equal(decision.terminated, [[True]])


def test_a_time_limit_bootstraps_from_the_final_observation_and_starts_anew():
    # Two steps up from the bottom left of 4 x 6 without slipping: cells 18, 12, 6. Each pays -1,
    # so s = -1 - 0.5 and c = 0.25 at the limit, which is no end of the problem.
    env = JaxReturnAware(CliffWalk(slip=0.0, horizon=2), 0.5)
    states = jax.vmap(env.initial_state)(jax.random.split(jax.random.key(0), 3))
    actions = jnp.zeros(3, jnp.int32)
    first, states = _live(env, states, actions, jax.random.key(1))
    np.testing.assert_array_equal(states.inner.time, [1, 1, 1])
    last, states = _live(env, states, actions, jax.random.key(2))
    np.testing.assert_array_equal(first.next_state.accumulated, last.state.accumulated)
    np.testing.assert_array_equal(last.terminated, [False] * 3)
    np.testing.assert_array_equal(last.next_state.inner.cell, [6] * 3)
    decision = lived_decision(env, jax.tree.map(lambda leaf: leaf[0], last), 0.9)
    np.testing.assert_allclose(decision.next_observations[0, 0, -2:], [-1.5, 0.25])
    assert not decision.terminated.any()
    np.testing.assert_array_equal(states.inner.cell, [18] * 3)
    np.testing.assert_array_equal(states.inner.time, [0] * 3)
    np.testing.assert_array_equal(states.accumulated, [0] * 3)
    np.testing.assert_array_equal(states.discount_so_far, [1] * 3)


# --- simulated afresh -------------------------------------------------------------------------

SETTINGS = Settings(near_greedy=4, random_actions=1, outcomes=3, gamma=0.5)
SCORES = [3.0, 1.0, 5.0, 2.0, 4.0]


def simulate(algorithm, goal, settings=SETTINGS, *, inventory=2.0, amount=0.0, weight=None):
    """Decisions at price 1.5 with some inventory, after a reward of 2 in the first period."""
    env = algorithm.wrap(ENV, goal)
    size = env.observation_space.shape[0]
    weight = np.zeros((size, 5)) if weight is None else weight
    critic = linear_network(weight, SCORES, (5,))
    networks = Networks(critic, linear_network(np.zeros((size, 10)), np.zeros(10), (5, 2)))
    inner = TradingState(jnp.array(1.5), jnp.asarray(inventory, float), jnp.array(1, jnp.int32))
    memory = algorithm.remembered(jnp.array(2.0), jnp.array(0.5), goal)
    state = type(env.initial_state(jax.random.key(0)))(inner, *memory)
    return simulated_decision(
        algorithm,
        settings,
        env,
        networks,
        goal,
        state,
        jnp.asarray(amount, float),
        jax.random.key(3),
    )


def srm():
    algorithm = SRM.make(CVaR(0.5), SETTINGS)
    return algorithm, algorithm.first_goal(jnp.zeros(2))


@pytest.fixture(scope="module")
def decision():
    return simulate(*srm())


def test_the_best_legal_actions_come_first_and_illegal_ones_do_not_count(decision):
    # With two units under a limit of two, buying (actions 3 and 4) is illegal. Of the others,
    # 2, 0 and 1 score 5, 3 and 1. There is no fourth: the best one again, without emphasis, since
    # what follows an illegal action need not be finite. The last action is drawn at random among
    # the legal ones.
    np.testing.assert_array_equal(decision.actions[:4], [2, 0, 1, 2])
    assert decision.actions[4] in (0, 1, 2)
    np.testing.assert_allclose(decision.emphasis, [1, 1, 1, 0, 0.2])


def test_all_actions_meet_the_same_noise(decision):
    prices = np.asarray(decision.next_observations[:, :, 0])
    assert prices.shape == (5, 3)
    np.testing.assert_array_equal(prices, np.broadcast_to(prices[0], prices.shape))
    assert np.unique(prices[0]).size == 3


def test_what_follows_is_what_each_action_leads_to(decision):
    # Doing nothing, selling 2, selling 1 at the price 1.5: -a P - 0.005 a^2.
    expected = np.array([0.0, 3.0 - 0.02, 1.5 - 0.005])
    np.testing.assert_allclose(decision.rewards[:3], np.repeat(expected[:, None], 3, 1), rtol=1e-5)
    np.testing.assert_allclose(decision.next_observations[:3, 0, 1], [2, 0, 1])
    np.testing.assert_array_equal(decision.next_masks[1, 0], [True] * 5)
    np.testing.assert_array_equal(decision.next_masks[0, 0], [True, True, True, False, False])
    assert not decision.terminated.any()


def test_relabelled_decisions_obey_the_equations_of_their_memory(decision):
    algorithm, _ = srm()
    for amount in (0.0, -0.7):
        made = relabelled(algorithm, decision, jnp.asarray(amount))
        accumulated, discount = made.observation[-2], made.observation[-1]
        np.testing.assert_allclose(accumulated, 2.0 + amount, rtol=1e-6)
        np.testing.assert_allclose(
            made.next_observations[..., -2], accumulated + discount * made.rewards, rtol=1e-5
        )
        np.testing.assert_allclose(made.next_observations[..., -1], 0.5 * discount)


def test_relabelled_targets_obey_their_equation():
    algorithm, goal = StaticCVaR.make(CVaR(0.5), SETTINGS), jnp.array(3.0)
    made = relabelled(algorithm, simulate(algorithm, goal), jnp.array(0.4))
    # b = (3 - 2) / 0.5 = 2, and 0.4 more.
    np.testing.assert_allclose(made.observation[-1], 2.4, rtol=1e-6)
    expected = (made.observation[-1] - made.rewards) / 0.5
    np.testing.assert_allclose(made.next_observations[..., -1], expected, rtol=1e-5)


def test_the_best_actions_are_those_of_the_memory_as_it_will_be():
    # Action 1 gains 1 for each unit of accumulated reward: 1 + 2 is no match for 5, 1 + 2 + 4 is.
    weight = np.zeros((5, 5))
    weight[-2, 1] = 1.0
    few = Settings(near_greedy=1, random_actions=1, outcomes=3, gamma=0.5)
    actions = [
        int(simulate(*srm(), few, amount=amount, weight=weight).actions[0]) for amount in (0.0, 4.0)
    ]
    assert actions == [2, 1]
