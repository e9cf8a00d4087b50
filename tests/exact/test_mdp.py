import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from downside.envs.problems.finite.cliff_walk import CliffWalk
from downside.exact.mdp import FiniteMDP

STAY = np.array([[[0.25, 0.75], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.5]]])


def make(probabilities=STAY, rewards=((0.0, 1.0), (2.0, -3.0)), **options):
    return FiniteMDP(probabilities, rewards, **{"gamma": 0.5, "horizon": 3, **options})


class Toy:
    """As much of a toy-text environment as the table needs."""

    def __init__(self, table):
        self.P = table
        self.unwrapped = self


def test_transition_matrices_are_packed_into_outcomes():
    mdp = make(terminal=[False, True])
    np.testing.assert_array_equal(mdp.probabilities[0], [[0.25, 0.75], [1.0, 0.0]])
    np.testing.assert_array_equal(mdp.next_states[0], [[0, 1], [0, 1]])
    np.testing.assert_array_equal(mdp.rewards[0], [[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(mdp.ends[0], [[False, True], [False, True]])
    np.testing.assert_array_equal(mdp.start, [1.0, 0.0])
    assert (mdp.num_states, mdp.num_actions) == (2, 2)


def test_rewards_may_depend_on_the_outcome():
    rewards = np.arange(8.0).reshape(2, 2, 2)
    mdp = make(rewards=rewards)
    np.testing.assert_array_equal(mdp.rewards[1, 0], [3.0 + 2.0, 0.0])  # only state 1 is reached
    np.testing.assert_array_equal(mdp.rewards[1, 1], [6.0, 7.0])


def test_sums_that_are_off_by_rounding_are_put_right():
    mdp = make(probabilities=STAY * (1 + 1e-8))
    np.testing.assert_allclose(mdp.probabilities.sum(axis=2), 1.0, rtol=1e-15)


def test_the_arrays_cannot_be_written_to():
    mdp = make()
    for array in (mdp.probabilities, mdp.rewards, mdp.next_states, mdp.ends, mdp.start):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_rows_of_terminal_states_and_of_forbidden_actions_are_never_looked_at():
    probabilities = STAY.copy()
    probabilities[1] = 0.0
    probabilities[0, 0] = [7.0, -1.0]
    mdp = make(probabilities, terminal=[0, 1], action_mask=[[0, 1], [0, 0]])
    assert mdp.probabilities.shape == (2, 2, 1)
    np.testing.assert_array_equal(mdp.probabilities[0, 1], [1.0])


@pytest.mark.slow
def test_cliff_walk_comes_with_its_tables():
    env = CliffWalk()
    mdp = FiniteMDP.from_tables(env.tables(), gamma=0.99, horizon=100)
    assert mdp.probabilities.shape == (24, 4, 3)  # straight on, or astray to either side
    assert mdp.start[env.start] == 1.0
    assert mdp.rewards.min() == env.step_reward + env.cliff_reward


def test_frozen_lake_comes_from_its_table():
    env = gym.make("FrozenLake-v1", map_name="4x4", is_slippery=True)
    mdp = FiniteMDP.from_gymnasium(env, gamma=0.99)
    assert mdp.probabilities.shape == (16, 4, 3)
    assert mdp.start[0] == 1.0
    # Next to the goal, action 2 (right) slips up, down into the wall, or reaches it.
    np.testing.assert_allclose(sorted(mdp.rewards[14, 2]), [0.0, 0.0, 1.0])
    assert mdp.ends[14, 2].sum() == 1


@pytest.mark.parametrize("name", ["Taxi-v4", "CliffWalking-v1"])
def test_other_toy_texts_have_tables_too(name):
    env = gym.make(name)
    mdp = FiniteMDP.from_gymnasium(env, gamma=1.0, horizon=10)
    assert mdp.num_actions == env.action_space.n  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(mdp.start.sum(), 1.0)


def test_different_rewards_on_the_way_to_one_state_stay_apart():
    table = {0: {0: [(0.5, 0, 1.0, False), (0.25, 0, 2.0, False), (0.25, 0, 2.0, True)]}}
    mdp = FiniteMDP.from_gymnasium(Toy(table), gamma=0.5, start=0)
    np.testing.assert_array_equal(mdp.rewards[0, 0], [1.0, 2.0, 2.0])
    np.testing.assert_array_equal(mdp.ends[0, 0], [False, False, True])


def test_an_action_that_a_table_lacks_is_masked():
    table = {0: {0: [(1.0, 1, 1.0, False)], 1: [(1.0, 0, 0.0, False)]}, 1: {0: [(1.0, 1, 0, True)]}}
    mdp = FiniteMDP.from_gymnasium(Toy(table), gamma=0.5, start=0)
    np.testing.assert_array_equal(mdp.action_mask, [[True, True], [True, False]])


def test_an_endless_problem_is_cut_where_the_rest_is_small_enough():
    # One state that pays 2 or -3 forever at γ = 0.5: a return to come of size 6 at most. 6 * 0.5^T
    # <= 0.1 from T = 6 on: 0.09375.
    mdp = FiniteMDP([[[1.0], [1.0]]], [[2.0, -3.0]], gamma=0.5)
    horizon, error = mdp.truncation(0.1)
    assert horizon == 6
    np.testing.assert_allclose(error, 0.09375, rtol=2e-3)  # W is iterated from above
    assert error >= 0.09375
    assert mdp.truncation().error <= 6e-4 * 1.001
    assert make().truncation(0.1) == (3, 0.0)


def test_a_reward_that_comes_but_once_is_not_counted_forever():
    # Ends with 1: the return to come is at most 1, not 1 / (1 - 0.9) = 10.
    mdp = FiniteMDP([[[0.5, 0.5]]] * 2, [[[0.0, 1.0]]] * 2, [False, True], gamma=0.9)
    np.testing.assert_allclose(mdp.largest_return, 1.0, rtol=1e-12)


WRONG = {
    "sums": (
        {"probabilities": STAY * [[[1.0], [1.0]], [[1.0], [0.9]]]},
        r"must sum to 1 .* got 0\.9 for action 1 in state 1 \(1 such in all\)\. Divide by",
    ),
    "negative": (
        {"probabilities": [[[0.25, 0.75], [1.5, -0.5]], STAY[1]]},
        r"`probabilities` must be non-negative, got -0\.5 for outcome 1 of action 1 in state 0",
    ),
    "flat": (
        {"probabilities": np.ones((2, 2))},
        r"a state, an action and an outcome.*\(2, 2\)",
    ),
    "not square": (
        {"probabilities": np.ones((2, 2, 1))},
        r"must have shape \[S, A, S\] without `next_states`, got \(2, 2, 1\)",
    ),
    "NaN": ({"probabilities": STAY * np.nan}, r"`probabilities` must be finite, got 8 value"),
    "NaN reward": ({"rewards": [[0.0, np.nan], [0, 0]]}, r"`rewards` must be finite"),
    "rewards": ({"rewards": np.ones((2, 3))}, r"`rewards` must have the shape .*got \(2, 3\)"),
    "gamma 0": ({"gamma": 0.0}, r"`gamma` must be in \(0, 1\], got 0\.0"),
    "gamma 1.5": ({"gamma": 1.5}, r"`gamma` must be in \(0, 1\], got 1\.5"),
    "gamma NaN": ({"gamma": np.nan}, r"`gamma` must be in \(0, 1\], got nan"),
    "endless": ({"gamma": 1.0, "horizon": None}, r"`horizon` must be given if `gamma` is 1"),
    "horizon 0": ({"horizon": 0}, r"`horizon` must be at least 1, got 0"),
    "start": ({"start": 2}, r"`start` must be a state in \[0, 1\], got 2"),
    "start below": ({"start": -1}, r"`start` must be a state in \[0, 1\], got -1"),
    "start sums": (
        {"start": [0.5, 0.4]},
        r"`start` must be .* sum to 1.*sum of 0\.9",
    ),
    "start shape": ({"start": [0.5, 0.25, 0.25]}, r"each of the 2 states, got shape \(3,\)"),
    "terminal": ({"terminal": [True]}, r"`terminal` must hold True or False in the shape \(2,\)"),
    "terminal 2": ({"terminal": [0, 2]}, r"`terminal` must hold True or False"),
    "mask": ({"action_mask": [[1, 1], [0, 0]]}, r"`action_mask` must allow.*got none in state 1"),
    "next": ({"next_states": np.full((2, 2, 2), 2)}, r"`next_states` must be in \[0, 1\], got"),
    "next shape": (
        {"next_states": [[0, 1]]},
        r"`next_states` must hold state numbers in",
    ),
    "ends": ({"ends": [True, False]}, r"`ends` must hold True or False in the shape \(2, 2, 2\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_values_are_refused_in_words(case):
    options, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": "high"}, "`gamma` must be a real number, got 'high'"),
        ({"horizon": 2.5}, "`horizon` must be a whole number or None, got 2.5"),
        ({"horizon": True}, "`horizon` must be a whole number or None, got True"),
        ({"start": 0.5}, "`start` must be a state number or a probability per state, got 0.5"),
        ({"rewards": [["a", "b"], ["c", "d"]]}, "`rewards` must be an array of real numbers"),
    ],
)
def test_wrong_types_are_refused_in_words(options, message):
    with pytest.raises(TypeError, match=message):
        make(**options)


def test_an_environment_without_a_table_is_refused_in_words():
    with pytest.raises(TypeError, match=r"`env` must have a table.*FrozenLake"):
        FiniteMDP.from_gymnasium(gym.make("CartPole-v1"), gamma=0.9)
    with pytest.raises(ValueError, match=r"`start` must be given.*no `initial_state_distrib`"):
        FiniteMDP.from_gymnasium(Toy({0: {0: [(1.0, 0, 0.0, True)]}}), gamma=0.9)
    with pytest.raises(ValueError, match=r"`tolerance` must be positive, got 0\.0"):
        make().truncation(0.0)


@pytest.mark.slow
def test_a_problem_refuses_what_is_none_without_the_type_checks_of_the_tests():
    script = """
import json, sys
from downside.exact.bounds import certified_bounds
from downside.exact.finite import FiniteProblem
from downside.exact.mdp import FiniteMDP
problem = FiniteProblem(FiniteMDP([[[1.0]]], [[1.0]], gamma=0.5))
said = []
for call in (
    lambda: FiniteProblem("FrozenLake-v1"),
    lambda: FiniteProblem(problem.mdp, tolerance="fine"),
    lambda: problem.solve("cvar(0.2)"),
    lambda: certified_bounds(problem, 0.2),
):
    try:
        call()
    except TypeError as error:
        said.append(str(error))
json.dump(said, sys.stdout)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    expected = [
        "`mdp` must be a FiniteMDP, got 'FrozenLake-v1'",
        "`tolerance` must be a real number, got 'fine'",
        "`utility` must be a Utility, got 'cvar(0.2)'",
        "`risk` must be a risk measure or its text",
    ]
    for sentence, start in zip(json.loads(done.stdout), expected, strict=True):
        assert sentence.startswith(start)


def test_a_problem_survives_the_way_through_an_environment():
    mdp = make(
        rewards=np.arange(8.0).reshape(2, 2, 2) / 10,
        start=[0.25, 0.75],
        action_mask=[[1, 1], [0, 1]],
        ends=np.arange(8).reshape(2, 2, 2) == 1,
    )
    env = mdp.environment()
    assert (env.horizon, env.time_in_observation) == (3, True)
    again = FiniteMDP.from_environment(env, gamma=0.5)
    for name in ("probabilities", "next_states", "rewards", "ends", "start", "action_mask"):
        np.testing.assert_array_equal(getattr(again, name), getattr(mdp, name))
    assert (again.gamma, again.horizon) == (0.5, 3)
    assert make(horizon=None).environment().horizon is None
