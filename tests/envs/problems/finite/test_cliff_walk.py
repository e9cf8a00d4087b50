import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.envs import CliffWalk, GridState

UP, RIGHT, DOWN, LEFT = range(4)
STRAIGHT, TO_THE_LEFT, TO_THE_RIGHT = range(3)
# Cells of the 3 x 4 grid that the tests use; S start, # cliff, G goal.
#  0  1  2  3
#  4  5  6  7
#  S  #  #  G     (8, 9, 10, 11)
SMALL = CliffWalk(rows=3, columns=4, slip=0.2, cliff_reward=-5.0, goal_reward=2.0)


def state(cell, time=0):
    return GridState(jnp.asarray(cell, jnp.int32), jnp.asarray(time, jnp.int32))


@pytest.mark.parametrize(
    ("cell", "action", "noise", "reached"),
    [
        (5, UP, STRAIGHT, 1),
        (5, RIGHT, STRAIGHT, 6),
        (5, DOWN, STRAIGHT, 9),
        (5, LEFT, STRAIGHT, 4),
        (5, UP, TO_THE_LEFT, 4),
        (5, UP, TO_THE_RIGHT, 6),
        (5, RIGHT, TO_THE_LEFT, 1),
        (5, RIGHT, TO_THE_RIGHT, 9),
        (0, UP, STRAIGHT, 0),
        (0, LEFT, STRAIGHT, 0),
        (3, RIGHT, STRAIGHT, 3),
        (8, DOWN, STRAIGHT, 8),
    ],
)
def test_a_move_goes_to_the_neighbour_or_stays_at_a_wall(cell, action, noise, reached):
    assert SMALL.transition(state(cell), action, noise).state.cell == reached


@pytest.mark.parametrize(
    ("cell", "action", "reward", "ends"),
    [(5, UP, -1.0, False), (5, DOWN, -6.0, True), (7, DOWN, 1.0, True), (8, RIGHT, -6.0, True)],
)
def test_falling_and_arriving_end_the_episode_and_pay_extra(cell, action, reward, ends):
    after = SMALL.transition(state(cell), action, STRAIGHT)
    assert after.reward == reward
    assert after.terminated == ends


def test_the_time_limit_truncates_but_not_at_the_goal():
    core = CliffWalk(rows=3, columns=4, horizon=7)
    wandering = core.transition(state(5, 6), UP, STRAIGHT)
    assert wandering.truncated
    assert not wandering.terminated
    arriving = core.transition(state(7, 6), DOWN, STRAIGHT)
    assert arriving.terminated
    assert not arriving.truncated
    assert not core.transition(state(5, 5), UP, STRAIGHT).truncated


def test_without_a_time_limit_nothing_truncates():
    assert not CliffWalk(horizon=None).transition(state(5, 10**6), UP, STRAIGHT).truncated


def test_the_observation_is_one_hot_in_the_cell():
    np.testing.assert_array_equal(SMALL.observe(state(6)), np.eye(12, dtype=np.float32)[6])


@pytest.mark.slow
def test_the_tables_are_those_of_the_grid():
    tables = SMALL.tables()
    # From 5 to the right: 6 with 0.8, up to 1 with 0.1, off the cliff into 9 with 0.1.
    expected = np.zeros(12)
    expected[[6, 1, 9]] = 0.8, 0.1, 0.1
    np.testing.assert_allclose(tables.probabilities[5, RIGHT], expected, rtol=1e-12)
    np.testing.assert_array_equal(tables.rewards[5, RIGHT, [6, 1, 9]], [-1.0, -1.0, -6.0])
    # Into the corner: straight on and one of the slips both stay.
    np.testing.assert_allclose(tables.probabilities[0, UP, [0, 1]], [0.9, 0.1], rtol=1e-12)
    assert tables.start == 8
    np.testing.assert_array_equal(np.flatnonzero(tables.terminal), [9, 10, 11])
    np.testing.assert_allclose(tables.probabilities.sum(-1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(tables.probabilities[tables.terminal, 0], np.eye(12)[9:])
    assert not tables.rewards[tables.terminal].any()


@pytest.mark.slow
def test_rewards_in_the_tables_are_not_rounded():
    tables = CliffWalk(step_reward=-0.1, cliff_reward=-0.2).tables()
    assert set(np.unique(tables.rewards)) == {-0.1 - 0.2, -0.1, 0.0}


@pytest.mark.slow
def test_sampled_moves_have_the_probabilities_of_the_tables():
    keys = jax.random.split(jax.random.key(0), 50_000)
    cells = jax.vmap(lambda key: SMALL.step(key, state(5), RIGHT).state.cell)(keys)
    shares = np.bincount(np.asarray(cells), minlength=12) / len(keys)
    # The standard error of a share of 0.1 is 0.0013.
    np.testing.assert_allclose(shares, SMALL.tables().probabilities[5, RIGHT], atol=0.008)


def test_the_risk_neutral_walk_of_the_default_grid_follows_the_edge():
    # What makes the problem one of risk: the way with the best mean is not the safe one.
    core = CliffWalk()
    tables = core.tables()
    scores = np.zeros((core.num_cells, 4))
    for _ in range(300):
        values = scores.max(-1)
        scores = (tables.probabilities * (tables.rewards + values)).sum(-1)
    edge = scores.argmax(-1)[12:18]
    np.testing.assert_array_equal(edge, [RIGHT] * 5 + [DOWN])
