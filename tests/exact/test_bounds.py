import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downside.envs.problems.finite.cliff_walk import CliffWalk
from downside.exact.bounds import certified_bounds
from downside.exact.finite import FiniteProblem
from downside.exact.mdp import FiniteMDP
from downside.exact.problem import AbstractProblem, Solution
from downside.risk import CVaR, Distribution, Exponential, Mean, WeightedCVaR
from tests.exact.enumeration import all_returns, best_over_knots, mdps

ONE_KNOT = [CVaR(0.1), CVaR(0.5), CVaR(0.8), 0.5 * Mean() + 0.5 * CVaR(0.2)]


class OfOnePolicy(AbstractProblem):
    """Nothing to decide: J(b) is known in closed form, and only through `solve`."""

    def __init__(self, returns):
        self._returns = returns

    def solve(self, utility):
        expected = utility.expectation(self._returns.values, self._returns.probabilities)
        return Solution(float(expected), None)

    def returns(self, policy):
        raise AssertionError("an estimate must not enter a certified bound")

    def simulate(self, policy, episodes, seed):
        raise AssertionError("a simulation must not enter a certified bound")

    @property
    def return_range(self):
        return float(self._returns.values[0]), float(self._returns.values[-1])


@pytest.mark.slow
@settings(max_examples=25)
@given(mdp=mdps(), risk=st.sampled_from(ONE_KNOT))
def test_the_bounds_close_on_the_best_of_all_policies(mdp, risk):
    optimum = risk(*all_returns(mdp)).max()
    bounds = certified_bounds(FiniteProblem(mdp), risk, tolerance=0.0)
    np.testing.assert_allclose([bounds.lower, bounds.upper], optimum, atol=1e-9)


@settings(max_examples=25)
@given(mdp=mdps(), risk=st.sampled_from(ONE_KNOT), most=st.integers(2, 6))
def test_the_bounds_hold_however_early_the_search_stops(mdp, risk, most):
    optimum = risk(*all_returns(mdp)).max()
    problem = FiniteProblem(mdp)
    bounds = certified_bounds(problem, risk, tolerance=0.1, max_solves=most)
    assert bounds.solves == len(bounds.trace) <= most
    assert bounds.lower - 1e-9 <= optimum <= bounds.upper + 1e-9
    returns = problem.returns(bounds.policy)
    np.testing.assert_allclose(risk(returns.values, returns.probabilities), bounds.lower, atol=1e-9)
    for earlier, later in zip(bounds.trace, bounds.trace[1:], strict=False):
        assert earlier.lower <= later.lower
        assert earlier.upper >= later.upper - 1e-9


def test_the_two_slopes_meet_where_the_bound_is_highest():
    # 0, 1 or 4 with probabilities 1/4, 1/4, 1/2 and CVaR(0.5) = 0.5:
    # J(b) = b + 2 E[min(G - b, 0)]: J(0) = 0, J(4) = 4 - 2 (4 / 4 + 3 / 4) = 0.5, J(1) = 0.5.
    # From 0 the bound rises with slope 1, from 4 to the left with slope 1/0.5 - 1 = 1: they meet at
    # b with b = 0.5 + (4 - b), i.e. 2.25, at the height 2.25. J(2.25) = 2.25 - 2 * (2.25 + 1.25)/4.
    problem = OfOnePolicy(Distribution([0.0, 1.0, 4.0], [0.25, 0.25, 0.5]))
    first, second, third, *_ = certified_bounds(problem, CVaR(0.5), tolerance=1e-6).trace
    assert first == (0.0, 0.0, 0.0, np.inf)
    assert second == (4.0, 0.5, 0.5, 2.25)
    assert third[:2] == (2.25, 0.5)


@pytest.mark.parametrize("risk", ONE_KNOT)
def test_a_continuous_knot_is_found_to_the_tolerance(risk):
    returns = Distribution(np.random.default_rng(0).normal(size=50))
    bounds = certified_bounds(OfOnePolicy(returns), risk, tolerance=1e-3, max_solves=3000)
    assert bounds.gap <= 1e-3
    assert bounds.lower <= float(risk(returns.values, returns.probabilities)) <= bounds.upper


def test_the_trap_of_the_alternation_does_not_catch_the_bounds():
    # Nothing, or 10 with probability 0.9 and -1 otherwise: (0.1 * -1 + 0.4 * 10) / 0.5 = 7.8.
    mdp = FiniteMDP(
        [[[1.0, 0.0], [0.9, 0.1]]],
        [[[0.0, 0.0], [10.0, -1.0]]],
        next_states=np.zeros((1, 2, 2), int),
        gamma=1.0,
        horizon=1,
    )
    bounds = certified_bounds(FiniteProblem(mdp), "cvar(0.5)", tolerance=0.0)
    np.testing.assert_allclose([bounds.lower, bounds.upper], 7.8)
    assert bounds.policy(0, 0, 0.0) == 1


@pytest.mark.slow
def test_the_problems_own_error_widens_the_interval():
    # One state that pays 2 or -3 for ever at γ = 0.5; cut, a return can be off by 6 * 0.5^T.
    mdp = FiniteMDP([[[0.5, 0.5]]], [[[2.0, -3.0]]], next_states=[[[0, 0]]], gamma=0.5)
    fine, rough = FiniteProblem(mdp, tolerance=1e-3), FiniteProblem(mdp, tolerance=0.1)
    assert 0.05 < rough.return_error <= 0.1
    for risk in ONE_KNOT:
        inner = certified_bounds(fine, risk, tolerance=1e-4)
        outer = certified_bounds(rough, risk, tolerance=1e-4)
        assert outer.gap >= 2 * rough.return_error - 1e-12
        assert outer.lower <= inner.lower <= inner.upper <= outer.upper


def test_the_mean_needs_one_solve():
    problem = OfOnePolicy(Distribution([0.0, 3.0], [1 / 3, 2 / 3]))
    bounds = certified_bounds(problem, Mean())
    assert (bounds.lower, bounds.upper, bounds.knot, bounds.solves) == (2.0, 2.0, None, 1)


def test_a_sure_return_needs_one_solve():
    bounds = certified_bounds(OfOnePolicy(Distribution([3.0])), CVaR(0.2), tolerance=0.0)
    assert (bounds.lower, bounds.upper, bounds.solves) == (3.0, 3.0, 1)


@pytest.mark.slow
def test_cliff_walk_closes_in_a_few_solves():
    mdp = FiniteMDP.from_tables(CliffWalk(rows=3, columns=4).tables(), gamma=0.95, horizon=25)
    problem = FiniteProblem(mdp)
    bounds = certified_bounds(problem, CVaR(0.2), tolerance=0.0)
    np.testing.assert_allclose(bounds.upper, best_over_knots(problem, CVaR(0.2)).value, rtol=1e-12)
    np.testing.assert_allclose(bounds.gap, 0.0, atol=1e-12)
    assert bounds.solves < 20


def test_bad_input_is_refused_in_words():
    problem = OfOnePolicy(Distribution([0.0, 1.0]))
    for risk in (WeightedCVaR([0.1, 0.5], [0.5, 0.5]), Exponential(2.0)):
        with pytest.raises(ValueError, match="`risk` must be one CVaR, the mean, or"):
            certified_bounds(problem, risk)
    with pytest.raises(ValueError, match=r"`tolerance` must be at least 0, got -0\.1"):
        certified_bounds(problem, CVaR(0.5), tolerance=-0.1)
    with pytest.raises(ValueError, match=r"`max_solves` must be a whole number .* 2, got 1"):
        certified_bounds(problem, CVaR(0.5), max_solves=1)
