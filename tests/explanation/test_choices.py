"""The check of a policy's choices, on returns that are given."""

from typing import Any

import numpy as np
import pytest

import downside as ds
from downside.explanation import choices as module
from downside.explanation.calibration import FAILS, HOLDS
from downside.explanation.choices import utility_at
from downside.explanation.simulation import grid_through
from downside.explanation.trajectory import TimeStep
from downside.risk import Distribution

compare_choices: Any = module.compare_choices


class Given:
    """Alternatives with these returns at every step."""

    def __init__(self, returns):
        self.returns = returns

    def returns_of_alternatives(self, steps):
        return [(list(range(len(self.returns))), self.returns) for _ in steps]


def episode(action=0, length=1):
    blank = {"observation": np.zeros(1), "legal": None, "state": None, "reward": None}
    steps = [
        TimeStep(time=t, accumulated=1.0, discount_so_far=0.5, action=action, **blank)
        for t in range(length)
    ]
    return [
        *steps,
        TimeStep(time=length, accumulated=1.0, discount_so_far=0.5, action=None, **blank),
    ]


@pytest.mark.parametrize(
    "risk", ["mean", "cvar(0.3)", "0.4*mean + 0.6*cvar(0.25)", "exponential(4)"]
)
def test_the_utility_has_the_value_of_the_measure_as_its_mean_at_the_start(risk):
    values = np.sort(np.random.default_rng(0).normal(size=40))
    utility = utility_at(ds.parse(risk), Distribution(values))
    np.testing.assert_allclose(utility(values).mean(), ds.parse(risk)(values), rtol=1e-6)
    # And not less than the mean utility of anything else.
    other = 0.7 * values - 0.1
    assert utility(other).mean() <= ds.parse(risk)(other) + 1e-9


def test_the_utility_is_straight_beyond_its_lines():
    # cvar(0.5) of 0, 2: the line is at 0, and the slope below it 2; 1 - ... above it nothing.
    utility = utility_at(ds.parse("cvar(0.5)"), Distribution(np.array([0.0, 2.0])))
    np.testing.assert_allclose(utility(np.array([-10.0, -1.0, 0.0, 5.0])), [-20.0, -2.0, 0.0, 0.0])


def test_a_better_action_gains_its_difference_once_for_each_step():
    # Totals are 1 + 0.5 G: action 1 is ahead by 0.5 * 3, at each of two steps.
    returns = np.stack([np.zeros(10), np.full(10, 3.0)])
    episodes = [episode(action=0, length=2)] * 3
    choices = compare_choices(Given(returns), ds.parse("mean"), episodes, [0, 1, 2])
    assert choices.gain == pytest.approx(3.0)
    assert choices.decisions == 6
    best = [episode(action=1, length=2)] * 3
    choices = compare_choices(Given(returns), ds.parse("mean"), best, [0, 1, 2])
    assert choices.gain == 0.0


def test_steps_that_are_left_out_are_made_up_for():
    returns = np.stack([np.zeros(10), np.full(10, 3.0)])
    episodes = [episode(length=10)] * 2
    choices = compare_choices(Given(returns), ds.parse("mean"), episodes, [0, 5, 10])
    assert choices.gain == pytest.approx(15.0)


def test_luck_is_no_better_choice():
    # Twenty equally good actions: the best of them in a sample is ahead by luck alone.
    noise = np.random.default_rng(1).normal(size=(20, 400))
    choices = compare_choices(Given(noise), ds.parse("mean"), [episode()] * 2, [0])
    assert abs(choices.gain) < 0.1
    assert (noise.mean(axis=1) - noise[0].mean()).max() > 0.1


def test_an_optimal_choice_is_not_blamed_where_the_measure_of_the_step_would():
    # After a fair coin: A returns -1 or 3, B has x: 0 or 10, and y: -2 (0.4) or 100. The worst
    # half is -1 and 0 with x, -0.5 on average, and -2, -1 and some 3 with y, -1 on average: x is
    # right. Seen from B the worst half of x is 0, and of y (0.4 * -2 + 0.1 * 100) / 0.5 = 18.4.
    start = Distribution(np.array([-1.0, 0.0, 3.0, 10.0]))
    x, y = np.repeat([0.0, 10.0], 5), np.repeat([-2.0, 100.0], [4, 6])
    assert ds.parse("cvar(0.5)")(y) == pytest.approx(18.4)
    utility = utility_at(ds.parse("cvar(0.5)"), start)
    assert utility(x).mean() > utility(y).mean()


def test_an_action_that_lifts_every_total_is_better_for_every_measure():
    # All totals are 1 with action 0, and 2.5 with action 1; above its line h itself is flat.
    returns = np.stack([np.zeros(10), np.full(10, 3.0)])
    for risk in ("cvar(0.2)", "exponential(4)"):
        choices = compare_choices(Given(returns), ds.parse(risk), [episode()] * 3, [0])
        assert choices.gain == pytest.approx(1.5)


def test_episodes_that_are_over_keep_their_totals():
    # Half of the episodes are over with 1; the others change from 1 to 2.5. The worst half stays.
    returns = np.stack([np.zeros(10), np.full(10, 3.0)])
    episodes = [episode(length=1), episode(length=2)] * 2
    choices = compare_choices(Given(returns), ds.parse("cvar(0.5)"), episodes, [1])
    assert choices.gain == pytest.approx(0.0)
    choices = compare_choices(Given(returns), ds.parse("mean"), episodes, [1])
    assert choices.gain == pytest.approx(2 * 0.75)


def test_nothing_is_compared_where_nothing_is_decided():
    assert compare_choices(Given(np.zeros((2, 4))), ds.parse("mean"), [episode()], [1]) is None


def test_the_grid_of_a_continuous_action_goes_through_it():
    grid = grid_through((0.3,), np.array([-1.0]), np.array([1.0]))
    values = [value for (value,) in grid]
    assert values == sorted(values)
    assert 0.3 in values
    assert (values[0], values[-1]) == (-1.0, 1.0)
    # Points every 0.2; none is closer than a quarter of that.
    assert len(grid) == 12
    assert len(grid_through((0.21,), np.array([-1.0]), np.array([1.0]))) == 11


def test_the_grid_of_a_vector_moves_one_coordinate_at_a_time():
    grid = grid_through((0.0, 4.0, 2.0), np.array([-1.0, 0.0, 2.0]), np.array([1.0, 4.0, 2.0]))
    assert grid[0] == (0.0, 4.0, 2.0)
    moved = [sum(a != b for a, b in zip(grid[0], point, strict=True)) for point in grid[1:]]
    assert set(moved) == {1}
    assert {point[2] for point in grid} == {2.0}  # it has no room
    assert (0.0, 0.0, 2.0) in grid
    assert (-1.0, 4.0, 2.0) in grid


def test_a_verdict_on_choices_needs_a_gain_that_matters_and_is_not_chance():
    from downside.explanation.calibration import _verdict

    assert _verdict(0.04, 0.05, 0.1) == HOLDS
    assert _verdict(0.3, 0.05 + 0.01, 0.1) == FAILS
