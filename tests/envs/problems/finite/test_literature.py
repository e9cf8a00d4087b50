import numpy as np
import pytest

from downside import FiniteMDP, solve
from downside.envs.problems.finite.literature import (
    GamblersRuin,
    Inventory,
    MachineReplacement,
    RiverSwim,
)


def test_the_counterexample_has_25_with_action_2():
    # cvar(0.5): worst half of {-50: 1/4, 250: 1/4, 100: 1/2} is (-50/4 + 100/4) / 0.5 = 25.
    plan = solve("downside/DualCounterexample-v0", "cvar(0.5)", gamma=1.0, episodes=100)
    assert plan.value == pytest.approx(25.0, abs=1e-9)
    assert plan.bounds == pytest.approx((25.0, 25.0), abs=1e-9)
    assert plan.policy(0, 0, 0.0) == 2


def test_a_bold_gambler_wins_with_one_bet():
    # Goal 2 from 1: the only bet that matters wins with probability 0.7, and waiting pays nothing.
    plan = solve(GamblersRuin(goal=2, start=1, horizon=3), "mean", gamma=1.0, episodes=100)
    assert plan.value == pytest.approx(0.7)


def test_a_new_machine_is_kept_and_a_broken_one_replaced():
    env = MachineReplacement(levels=3, wear=1.0, success=1.0, horizon=4)
    plan = solve(env, "mean", gamma=0.9, episodes=100)
    # Keep at levels 0; at level 1 a step costs 10, so it is replaced for 2: 2 γ + 2 γ^3.
    assert plan.value == pytest.approx(-2 * 0.9 - 0.0, abs=2.0)
    assert plan.policy(0, 0, 0.0) == 0
    assert plan.policy(1, 1, 0.0) == 1


def test_inventory_rows_are_distributions_and_sales_pay():
    tables = Inventory(capacity=4, max_order=2, demand=1.5).tables
    rows = tables.outcomes.probabilities.sum(axis=2)
    np.testing.assert_allclose(rows[tables.outcomes.action_mask], 1.0)
    assert tables.outcomes.rewards.max() == pytest.approx(5.0 * 4)  # sell all that is there
    np.testing.assert_array_equal(tables.outcomes.action_mask[4], [True, False, False])


def test_down_the_river_the_small_reward_is_sure():
    plan = solve(RiverSwim(horizon=5), "cvar(0.05)", gamma=1.0, episodes=100)
    assert plan.value == pytest.approx(0.5)


def test_tables_are_the_problem_that_the_planner_sees():
    env = RiverSwim()
    mdp = FiniteMDP.from_environment(env.tables, gamma=0.9)
    assert mdp.num_states == env.length
    assert env.horizon == mdp.horizon == 40


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RiverSwim(up=0.8, back=0.3), r"`back` must be a finite number in"),
        (lambda: GamblersRuin(start=10), r"`start` must be at most 9, got 10"),
        (lambda: Inventory(demand=0.0), r"`demand` must be a finite number in \(0"),
        (lambda: MachineReplacement(levels=1), r"`levels` must be a whole number >= 2"),
    ],
)
def test_bad_parameters_are_refused_in_words(make, message):
    with pytest.raises(ValueError, match=message):
        make()
