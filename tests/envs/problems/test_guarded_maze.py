import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.envs import GuardedMaze
from downside.envs.problems.guarded_maze import DOWN, LEFT, RIGHT, UP, MazeNoise, MazeState

MAZE = GuardedMaze()


def state(x, y, time=0, settled=False):
    return MazeState(jnp.array([x, y]), jnp.array(settled), jnp.array(time, jnp.int32))


def noise(push=(0.0, 0.0), guard=0.9, cost=1.5):
    return MazeNoise(jnp.array(push), jnp.array(guard), jnp.array(cost))


@pytest.mark.slow
def test_a_move_goes_one_step_plus_noise_and_costs_one():
    after = MAZE.transition(state(2.0, 2.0), RIGHT, noise(push=(0.5, -1.0)))
    np.testing.assert_allclose(after.state.position, [3.1, 1.8], rtol=1e-6)  # 0.2 times the push
    assert (after.reward, after.terminated) == (-1.0, False)


@pytest.mark.parametrize(
    ("x", "y", "action"),
    [
        (1.0, 3.0, LEFT),  # the outer wall
        (4.0, 4.0, UP),  # the wall above, (3..5, 5)
        (4.0, 3.0, RIGHT),  # the wall to the right, (5, 2..5)
        (4.0, 1.6, RIGHT),  # rounds to (5, 2), a wall
    ],
)
def test_walls_stop_a_move_which_costs_all_the_same(x, y, action):
    after = MAZE.transition(state(x, y), action, noise())
    np.testing.assert_allclose(after.state.position, [x, y])
    assert after.reward == -1.0


def test_the_guard_is_met_on_the_first_visit_with_probability_a_fifth_and_paid_once():
    caught = MAZE.transition(state(4.0, 1.0), RIGHT, noise(guard=0.19))
    np.testing.assert_allclose(caught.reward, -1.0 - 32.0 * 1.5)
    assert caught.state.settled
    assert MAZE.transition(caught.state, LEFT, noise(guard=0.0)).reward == -1.0
    free = MAZE.transition(state(4.0, 1.0), RIGHT, noise(guard=0.21))
    assert free.reward == -1.0
    assert MAZE.transition(free.state, LEFT, noise(guard=0.0)).reward == -1.0


def test_a_move_whose_middle_is_in_the_guarded_cell_meets_the_guard():
    # From (4.4, 1) to (5.6, 1) with a push of 1 -> 0.2: the middle (5.0, 1) is watched.
    after = MAZE.transition(state(4.4, 1.0), RIGHT, noise(push=(1.0, 0.0), guard=0.0))
    np.testing.assert_allclose(after.reward, -49.0)


def test_the_goal_pays_and_ends_the_episode():
    after = MAZE.transition(state(6.0, 1.0, time=40), UP, noise())
    assert (after.reward, after.terminated, after.truncated) == (16.0, True, False)


def test_moves_cost_nothing_after_the_paid_ones_and_end_at_the_horizon():
    rewards = [MAZE.transition(state(2.0, 2.0, time), UP, noise()).reward for time in (31, 32)]
    assert rewards == [-1.0, 0.0]
    ends = [MAZE.transition(state(2.0, 2.0, time), UP, noise()).terminated for time in (158, 159)]
    assert ends == [False, True]


def test_the_position_is_observed_as_weights_of_the_nearest_cells():
    shown = MAZE.observe(state(2.25, 3.0, time=80))
    expected = np.zeros((8, 8))
    expected[2, 3], expected[3, 3] = 0.75, 0.25
    np.testing.assert_allclose(shown[:64].reshape(8, 8), expected, atol=1e-6)
    np.testing.assert_allclose(shown[64], 0.5)


def test_the_short_way_is_better_on_average_and_the_long_way_safe():
    # From (2, 1) without noise: right four times, past the guard, then up. Four moves cost 1 and
    # the goal pays 16; the guard takes 6.4 on average.
    def walk(actions, guard):
        firm = GuardedMaze(action_noise=0.0)
        at, total, over = state(2.0, 1.0), 0.0, False
        for action in actions:
            at, reward, over, _ = firm.transition(at, action, noise(guard=guard, cost=1.0))
            total += float(reward)
        assert over
        return total

    short = [RIGHT] * 4 + [UP]
    around = [UP] * 5 + [RIGHT] * 4 + [DOWN] * 4
    assert walk(short, guard=0.5) == 12.0
    assert walk(short, guard=0.1) == 12.0 - 32.0
    assert walk(around, guard=0.1) == 16.0 - 12.0


def test_starts_are_uniform_in_the_lower_left_part():
    keys = jax.random.split(jax.random.key(3), 4_000)
    starts = np.asarray(jax.vmap(MAZE.initial_state)(keys).position)
    assert starts.min() >= 0.6
    assert starts.max() <= 3.6
    np.testing.assert_allclose(starts.mean(axis=0), 2.1, atol=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"guard_probability": 1.5}, r"`guard_probability` must be .*\[0, 1\], got 1.5"),
        ({"horizon": 0}, "`horizon` must be a whole number >= 1, got 0"),
    ],
)
def test_parameters_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GuardedMaze(**arguments)
