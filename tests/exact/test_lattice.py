"""Lattices: the bounds hold, the values are achieved, and both close."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downside import CVaR, FiniteMDP, Mean, cvar_curve, parse
from downside.exact.boxes import DistanceBoxes, box_utility
from downside.exact.certify import certify
from downside.exact.curve import curve_of, spectral_upper
from downside.exact.finite import FiniteProblem
from downside.exact.lattice import Lattice
from downside.exact.lattice_problem import LatticeProblem
from downside.exact.refinement import Limits
from downside.exact.transitions import TooLargeError, Transitions
from tests.exact.enumeration import all_returns, mdps

RISKS = ["cvar(0.1)", "cvar(0.5)", "0.4*mean + 0.6*cvar(0.25)", "0.5*cvar(0.2) + 0.5*cvar(0.7)"]


def random_mdp(
    seed, *, states=6, actions=3, outcomes=4, gamma=0.9, horizon: int | None = 12
) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    shape = (states, actions, outcomes)
    return FiniteMDP(
        rng.dirichlet(np.ones(outcomes), size=shape[:2]),
        rng.normal(size=shape),
        next_states=rng.integers(0, states, shape),
        gamma=gamma,
        horizon=horizon,
    )


# --- rounding -------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(mdp=mdps(rewards=st.floats(-2, 2)), width=st.sampled_from([0.7, 0.2]), data=st.data())
def test_the_optimum_of_a_lattice_and_its_allowance_bound_the_true_one(mdp, width, data):
    risk = parse(data.draw(st.sampled_from(RISKS)))
    optimum = float(risk(*all_returns(mdp)).max())
    lattice = Lattice(mdp, width)
    curve = curve_of(lattice)
    upper = spectral_upper(lattice, curve, risk) + lattice.rounding
    assert optimum <= upper + 1e-12
    if sum(level < 1.0 for level, _ in risk.atoms) > 1:
        boxes = DistanceBoxes(risk, [lattice, lattice.same(width / 4, 6.0)])
        for _ in range(6):
            assert optimum <= boxes.upper + 1e-12
            if boxes.highest is not None:
                boxes.refine(optimum)


@settings(max_examples=25)
@given(mdp=mdps(rewards=st.floats(-2, 2)), knot=st.floats(-3, 3), seed=st.integers(0, 9))
def test_what_a_policy_achieves_is_never_overstated(mdp, knot, seed):
    # Every path of the controller is listed beside the groups: the same mean, and never less risk.
    problem = LatticeProblem(Lattice(mdp, 0.5), follow=1)
    policy = problem.solve(CVaR(0.3).utility_at(np.array([knot]))).policy
    achieved = problem.achieved(policy)
    np.testing.assert_allclose(achieved.probabilities.sum(), 1.0, atol=1e-12)
    assert achieved.values.max() <= all_returns(mdp)[0].max() + 1e-9
    for level in (0.2, 0.6):
        optimum = float(CVaR(level)(*all_returns(mdp)).max())
        assert achieved.value(CVaR(level)) <= optimum + 1e-9
    simulated = problem.simulate(policy, 4000, seed)
    spread = simulated.std() / np.sqrt(4000)
    mean = float(achieved.probabilities @ achieved.values)
    assert abs(simulated.mean() - mean) <= 6 * spread + 0.25  # ties near the edge of a cell


def test_scarfs_bound_is_attained_by_two_points():
    # One group, mean 1 and variance 4: the worst two points around the knot 1 are -1 and 3, with
    # E[min(G - 1, 0)] = -1. CVaR(0.5) is at least 1 + (-1) / 0.5 = -1.
    from downside.exact.lattice_policy import AchievedReturns

    group = AchievedReturns(np.array([1.0]), np.array([1.0]), np.array([4.0]))
    assert group.value(CVaR(0.5)) == pytest.approx(-1.0)
    assert group.value(Mean()) == pytest.approx(1.0)


def test_rewards_that_fit_the_lattice_need_no_allowance():
    mdp = FiniteMDP(
        [[[0.5, 0.5], [1.0, 0.0]]],
        [[[1.5, -2.0], [0.25, 0.0]]],
        next_states=np.zeros((1, 2, 2), int),
        gamma=1.0,
        horizon=3,
    )
    lattice = Lattice(mdp, 0.25)
    assert not lattice.allowance(np.array([0.05, 0.5])).any()
    assert Lattice(mdp, 0.1).allowance(np.array([0.05]))[0] > 0
    optimum = float(CVaR(0.3)(*all_returns(mdp)).max())
    assert curve_of(lattice).values(0.3).max() == pytest.approx(optimum, abs=1e-9)


def test_the_allowance_bounds_the_noise_of_one_rounding():
    # One sure step that pays half a cell: N is ±δ/2 evenly, CVaR(0.5) of it is -δ/2.
    mdp = FiniteMDP([[[1.0]]], [[[0.5]]], gamma=1.0, horizon=1)
    allowed = Lattice(mdp, 1.0).allowance(np.array([0.5, 0.25, 1.0]))
    assert 0.5 <= allowed[0] <= 0.62
    assert allowed[2] == 0.0


# --- boxes ----------------------------------------------------------------------------------------


@given(z=st.floats(-5, 5), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_the_utility_of_a_box_is_above_all_of_its_knots(z, shares):
    risk, box = parse("0.3*cvar(0.2) + 0.5*cvar(0.6) + 0.2*mean"), ((-1.0, 0.5), (0.0, 2.0))
    knots = [low + share * (high - low) for share, (low, high) in zip(shares, box, strict=True)]
    inner = float(risk.utility_at(np.array(knots))(np.array([z]))[0])
    assert inner <= float(box_utility(risk, box)(np.array([z]))[0]) + 1e-12


def test_a_box_of_one_point_is_the_utility_itself():
    risk = parse("0.3*cvar(0.2) + 0.7*cvar(0.6)")
    z = np.linspace(-2, 2, 9)
    point = box_utility(risk, ((-0.5, -0.5), (1.0, 1.0)))
    np.testing.assert_allclose(point(z), risk.utility_at(np.array([-0.5, 1.0]))(z))


# --- plans ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("text", RISKS)
def test_bounds_hold_the_optimum_that_listing_every_node_finds(seed, text):
    mdp = random_mdp(seed, states=3, actions=2, outcomes=2, horizon=5)
    risk = parse(text)
    result = certify(mdp, risk, Limits(seconds=5))
    problem = FiniteProblem(mdp)
    optimum = float(risk(*all_returns(mdp)).max()) if problem.nodes.size < 60 else None
    if optimum is None:
        candidates = problem.attainable_returns
        knots = sum(level < 1.0 for level, _ in risk.atoms)
        chosen = candidates[:: max(1, len(candidates) // (200 if knots == 1 else 12))]
        optimum = max(
            problem.solve(risk.utility_at(np.array(pick))).value
            for pick in itertools.combinations_with_replacement(chosen, knots)
        )
    assert optimum <= result.upper + 1e-9
    assert result.value <= result.upper
    assert result.upper - result.value <= result.tolerance or result.note


@pytest.mark.parametrize("gamma", [0.8, 1.0])
def test_plans_of_random_problems_tell_the_truth(gamma):
    mdp = random_mdp(5, gamma=gamma, horizon=20)
    mean = Lattice(mdp, 1.0).best_mean
    for text in ("mean", "cvar(0.1)"):
        risk = parse(text)
        result = certify(mdp, risk, Limits(seconds=10))
        assert result.value <= result.upper <= mean + 1e-9
        returns = result.problem.simulate(result.policy, 20_000, 3)
        worth = np.asarray(risk.utility(np.sort(returns))(returns))
        error = worth.std() / np.sqrt(returns.size)
        assert abs(float(risk(returns)) - result.value) <= 4 * error + 0.02
        if text == "mean":
            assert result.value == result.upper == pytest.approx(mean)


@pytest.mark.slow
def test_the_curve_rises_with_the_level_up_to_the_mean():
    mdp = random_mdp(7, horizon=15)
    points = cvar_curve(mdp, [0.05, 0.2, 0.6, 1.0], time_limit=5.0)
    values = [point.value for point in points]
    assert values == sorted(values)
    for point in points:
        assert point.value <= point.upper <= points[-1].value + 1e-12
    alone = certify(mdp, CVaR(0.2), Limits(seconds=5))
    assert points[1].value <= alone.upper + 1e-9
    assert alone.value <= points[1].upper + 1e-9
    with pytest.raises(ValueError, match="`levels` must hold at least one level"):
        cvar_curve(mdp, [])


def test_the_curve_of_a_problem_with_few_nodes_is_exact():
    from downside.envs import BettingGame

    mdp = FiniteMDP.from_environment(BettingGame().tables, gamma=1.0)
    points = list(cvar_curve(mdp, [0.05, 0.2, 1.0]))
    assert all(point.upper - point.value <= 1e-9 for point in points)
    assert points[-1].value == pytest.approx(Lattice(mdp, 1.0).best_mean)


@pytest.mark.slow
def test_long_horizons_are_cut_or_refused_at_once():
    small = {"states": 2, "actions": 2, "outcomes": 2}
    endless = random_mdp(1, gamma=0.8, horizon=10**9, **small)
    short = random_mdp(1, gamma=0.8, horizon=200, **small)
    near = [certify(mdp, CVaR(0.2), Limits(tolerance=0.02)) for mdp in (endless, short)]
    assert near[0].value == pytest.approx(near[1].value, abs=0.02)
    for horizon in (10**5, 10**9):
        with pytest.raises(TooLargeError, match=r"00 decisions count.*at most .* in 40 s"):
            certify(random_mdp(1, gamma=1.0, horizon=horizon), CVaR(0.2), Limits())
    with pytest.raises(TooLargeError, match=r"1,000,000,000 decisions count.*`gamma` 1\.0"):
        Lattice(random_mdp(1, gamma=1.0, horizon=10**9), 1.0)
    with pytest.raises(TooLargeError, match=r"decisions count .*0\.999999"):
        Lattice(random_mdp(1, gamma=0.999999, horizon=None), 1.0)


def test_equal_outcomes_are_listed_once():
    mdp = FiniteMDP(
        [[[0.25, 0.25, 0.5]]], [[[1.0, 1.0, 2.0]]], next_states=[[[0, 0, 0]]], gamma=0.5, horizon=2
    )
    listed = Transitions.of(mdp)
    np.testing.assert_allclose(listed.probabilities, [0.5, 0.5])
    np.testing.assert_allclose(listed.rewards, [1.0, 2.0])


def test_the_policy_refuses_what_is_no_moment_of_the_problem():
    mdp = random_mdp(2, horizon=4)
    policy = LatticeProblem(Lattice(mdp, 0.5)).solve(CVaR(0.5).utility_at([0.0])).policy
    assert policy(0, 0, 0.0) in range(3)
    assert "LatticePolicy(4 decisions" in repr(policy)
    with pytest.raises(ValueError, match=r"`time` must be in \[0, 3\].*got 4"):
        policy(4, 0, 0.0)
    with pytest.raises(ValueError, match=r"`state` must be one in \[0, 5\].*got 6"):
        policy(0, 6, 0.0)


def test_actions_that_differ_by_a_sure_amount_share_their_outcomes():
    # Stock plus order decides what follows; the order costs 0.7 for each unit. Demand is 0 to 6.
    states, shape = 9, (9, 5, 7)
    rewards, leads = np.zeros(shape), np.zeros(shape, dtype=int)
    mask = np.zeros(shape[:2], dtype=bool)
    for stock, order, demand in np.ndindex(*shape):
        have = min(stock + order, states - 1)
        mask[stock, order] = stock + order < states
        leads[stock, order, demand] = max(have - demand, 0)
        rewards[stock, order, demand] = 2.3 * min(demand, have) - 0.7 * order - 0.1 * have
    mdp = FiniteMDP(
        np.broadcast_to([0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1], shape),
        rewards,
        next_states=leads,
        action_mask=mask,
        gamma=0.9,
        horizon=6,
    )
    lattice = Lattice(mdp, 0.05)
    assert lattice.lists.begins.size == states
    assert lattice.lists.probabilities.size < lattice.transitions.states.size / 2
    apart = Lattice(mdp, 0.05)
    pairs = apart.transitions.pairs
    apart.lists = lattice.lists._replace(
        probabilities=apart.transitions.probabilities,
        next_states=apart.transitions.next_states,
        rewards=apart.transitions.rewards,
        begins=pairs,
        of_pair=np.arange(pairs.size),
        amounts=np.zeros(pairs.size),
    )
    for risk in (CVaR(0.2), CVaR(0.6)):
        values = []
        for each in (lattice, apart):
            problem = LatticeProblem(each)
            solution = problem.solve(risk.utility_at([2.0]))
            values.append((solution.value, problem.achieved(solution.policy).value(risk)))
            upper = curve_of(each).highest(risk.alpha) + each.allowance(np.array([risk.alpha]))[0]
            assert values[-1][1] <= upper
        np.testing.assert_allclose(values[0], values[1], atol=0.03)
