import itertools
import json

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings

from downside import CVaR, Exponential, FiniteMDP, Mean, parse, solve
from downside.envs import CliffWalk
from downside.exact import AbstractProblem, FiniteProblem, as_problem, certified_bounds, search

from . import enumeration


def trap():
    """Do nothing for sure, or one of two bets; CVaR(0.5) of nothing is 0, of the small bet 0.5.

    From the point mass at 0, h(z) = 2 min(z, 0): nothing above 0 is worth more than 0, so doing
    nothing stays the (first) best action.
    """
    outcomes = [[[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]]
    pays = [[[0.0, 0.0], [0.5, 3.0], [-4.0, 9.0]]]
    ends = [[[0, 0], [0, 0], [0, 0]]]
    return FiniteMDP(outcomes, pays, next_states=ends, gamma=1.0, horizon=1)


def test_the_search_finds_what_the_alternation_from_the_trap_never_sees():
    problem = FiniteProblem(trap())
    stuck = problem.solve(CVaR(0.5).utility(np.zeros(1)))
    again = problem.solve(CVaR(0.5).utility(problem.returns(stuck.policy)))
    assert stuck.value == again.value == 0.0
    assert search(problem, CVaR(0.5)).solution.value == pytest.approx(0.5)
    assert solve(trap(), "cvar(0.5)").value == pytest.approx(0.5)


@pytest.mark.slow
@settings(max_examples=15)
@given(enumeration.mdps(most_states=3, horizons=(1, 2, 3)))
def test_plans_are_as_good_as_the_best_of_all_history_dependent_policies(mdp):
    values, chances = enumeration.all_returns(mdp)
    for risk in (
        CVaR(0.3),
        parse("0.4*mean + 0.6*cvar(0.25)"),
        parse("0.5*cvar(0.2)+0.5*cvar(0.7)"),
    ):
        best = float(np.max(risk(values, chances)))
        plan = solve(mdp, risk, episodes=10)
        assert plan.value == pytest.approx(best, abs=1e-9)
        exact = plan.problem.returns(plan.policy)
        assert float(risk(exact.values, exact.probabilities)) == pytest.approx(best, abs=1e-9)


@settings(max_examples=5)
@given(enumeration.mdps(most_states=3, horizons=(1, 2)))
def test_plans_for_three_knots_and_the_mean_are_as_good_too(mdp):
    risk = parse("0.3*cvar(0.1) + 0.3*cvar(0.4) + 0.2*cvar(0.7) + 0.2*mean")
    best = float(np.max(risk(*enumeration.all_returns(mdp))))
    assert solve(mdp, risk, episodes=10).value == pytest.approx(best, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=15)
@given(enumeration.mdps(most_states=3, horizons=(2, 3)))
def test_j_never_falls_over_the_rounds_of_the_alternation(mdp):
    for risk in (CVaR(0.4), Exponential(3.0)):
        result = search(FiniteProblem(mdp), risk)
        climb = [one.value for one in result.trace if one.start == "risk-neutral"]
        assert np.all(np.diff(climb) >= -1e-9)
        assert result.alternation.value <= result.solution.value + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1268, 1131, 1117, 0, 1, 2])
@pytest.mark.parametrize("text", ["cvar(0.05)", "0.5*mean + 0.5*cvar(0.3)"])
def test_one_knot_among_thousands_is_found(seed, text):
    # J has several peaks here (6,561 attainable returns): a coarse grid misses the highest.
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(3) * 0.6, size=(3, 3))
    rewards = np.round(rng.normal(size=(3, 3, 3)), 3) * np.exp(rng.normal(size=(3, 3, 1)))
    mdp = FiniteMDP(chances, rewards, gamma=0.95, horizon=4)
    plan = solve(mdp, text, episodes=10)
    bounds = certified_bounds(plan.problem, text, tolerance=1e-3, max_solves=1000)
    assert bounds.lower - 1e-9 <= plan.value <= bounds.upper + 1e-9


class Unlisted(AbstractProblem):
    """A problem that does not know which returns it can have, as continuous ones do not."""

    def __init__(self, problem):
        self.problem = problem

    def solve(self, utility):
        return self.problem.solve(utility)

    def returns(self, policy):
        return self.problem.returns(policy)

    @property
    def return_range(self):
        return self.problem.return_range


@pytest.mark.slow
@settings(max_examples=10)
@given(enumeration.mdps(most_states=3, horizons=(2, 3)))
def test_climbs_from_several_starts_find_two_knots_without_a_list_of_returns(mdp):
    values, chances = enumeration.all_returns(mdp)
    risk = parse("0.5*cvar(0.2) + 0.5*cvar(0.7)")
    best = float(np.max(risk(values, chances)))
    result = search(Unlisted(FiniteProblem(mdp)), risk)
    spread = float(np.ptp(values)) + 1e-9
    assert result.upper is None
    assert best - 0.05 * spread <= result.solution.value <= best + 1e-9


@pytest.mark.slow
def test_two_knots_with_many_peaks_are_closed_by_boxes():
    # Gambler's ruin with a goal that pays from then on: climbs alone end 0.2% below.
    bets = [[(7, 1), (3, -1)], [(7, 2), (3, -2)]]
    states, goal = 6, 5
    chances, leads = np.zeros((states, 2, 2)), np.zeros((states, 2, 2), dtype=int)
    for capital in range(states):
        for action, bet in enumerate(bets):
            for k, (tenths, won) in enumerate(bet):
                chances[capital, action, k] = tenths / 10
                leads[capital, action, k] = min(max(capital + won, 0), goal)
    chances[[0, goal]], leads[0], leads[goal] = [1.0, 0.0], 0, goal
    pays = np.zeros((states, 2))
    pays[goal] = 1.0
    mdp = FiniteMDP(chances, pays, start=2, next_states=leads, gamma=0.9, horizon=40)
    risk = parse("0.5*cvar(0.1) + 0.5*cvar(0.5)")
    plan = solve(mdp, risk, episodes=10)
    assert plan.bounds is not None
    low, high = plan.bounds
    assert high - low <= 1e-9
    knots = FiniteProblem(mdp).attainable_returns[::3]
    problem = FiniteProblem(mdp)
    for pick in itertools.combinations_with_replacement(knots, 2):
        assert problem.solve(risk.utility_at(np.array(pick))).value <= high + 1e-9


def test_tables_of_gymnasium_are_solved_as_they_are():
    lake = gym.make("FrozenLake-v1", is_slippery=True)
    plan = solve(lake, "mean", gamma=0.9, episodes=1000)
    assert plan.value == pytest.approx(0.0688909, abs=1e-3)  # value iteration, γ = 0.9


def test_cliff_walk_is_solved_with_certified_bounds():
    plan = solve("downside/CliffWalk-v0", "cvar(0.2)")
    assert plan.bounds is not None
    low, high = plan.bounds
    assert low - 1e-9 <= plan.value <= high + 1e-9
    assert high - low < 1e-2
    assert abs(plan.simulated - plan.value) < 4 * plan.standard_error
    assert solve(CliffWalk(), "mean").value > plan.value


@pytest.mark.slow
def test_ids_environments_and_parameters_mean_the_same():
    import downside.envs  # noqa: F401

    made = gym.make("downside/AmericanPut-v0", sigma=0.4)
    by_id = solve("downside/AmericanPut-v0", "cvar(0.5)", sigma=0.4, episodes=100)
    assert solve(made, CVaR(0.5), episodes=100).value == by_id.value
    assert by_id.gamma == 0.99


@pytest.mark.slow
def test_the_summary_is_plain_data():
    summary = solve("downside/AmericanPut-v0", "cvar(0.2)", gamma=1.0, episodes=1000).summary()
    assert summary["risk"] == "cvar(0.2)"
    assert all(isinstance(price, float) for price in summary["boundary"])
    never = solve("downside/AmericanPut-v0", "mean", gamma=1.0, episodes=1).summary()
    assert never["boundary"] == [None] * 10
    json.dumps(never, allow_nan=False)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("downside/AmericanPut-v0", {"gamma": 0.0}, r"`gamma` must be in \(0, 1\], got 0\.0"),
        ("downside/AmericanPut-v0", {"gamma": 1.1}, r"`gamma` must be in \(0, 1\], got 1\.1"),
        ("downside/AmericanPut-v0", {"refine": 0.0}, r"`refine` must be in \[0\.1, 10\]"),
        ("downside/AmericanPut-v0", {"episodes": 0}, "`episodes` must be a whole number"),
        ("downside/AmericanPutt-v0", {}, "Did you mean 'downside/AmericanPut-v0'"),
        ("CartPole-v1", {}, "can solve, got 'CartPole-v1'. It solves downside/AmericanPut-v0"),
        (trap(), {"gamma": 0.9}, r"`gamma` is part of a FiniteMDP, here 1\.0; got 0\.9"),
    ],
)
def test_bad_input_is_refused_in_words(env, options, message):
    with pytest.raises(ValueError, match=message):
        solve(env, Mean(), **options)


def test_what_cannot_be_planned_says_which_problems_can():
    with pytest.raises(ValueError, match="dynamic programming needs the transition probabilities"):
        as_problem(gym.make("CartPole-v1"), gamma=0.99)
