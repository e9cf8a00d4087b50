import functools
import math

import numpy as np
import pytest
from scipy import stats

from downside import CVaR, Mean, parse
from downside.envs import AmericanPut
from downside.exact import OptionProblem, estimate, solve

UNDISCOUNTED = OptionProblem(AmericanPut(), gamma=1.0)


def binomial(env, gamma, steps_per_period=100):
    """The best expected discounted payoff on a recombining tree, exercise at the decision times."""
    steps = env.periods * steps_per_period
    dt = env.maturity / steps
    up = math.exp(env.sigma * math.sqrt(dt))
    chance = (math.exp(env.drift * dt) - 1 / up) / (up - 1 / up)
    sign = 1 if env.kind == "put" else -1

    def payoff(step):
        prices = env.initial_price * up ** (2.0 * np.arange(step + 1) - step)
        return np.maximum(sign * (env.strike - prices), 0.0)

    value = gamma ** (env.periods - 1) * payoff(steps)
    for step in range(steps - 1, -1, -1):
        value = chance * value[1:] + (1 - chance) * value[:-1]
        if step % steps_per_period == 0:
            value = np.maximum(value, gamma ** (step // steps_per_period) * payoff(step))
    return value[0]


@functools.cache
def best_cvar(alpha):
    """The best over a fine grid of knots: (value, policy)."""
    utilities = [CVaR(alpha).utility_at([b]) for b in np.linspace(0.0, 0.5, 51)]
    return max(map(UNDISCOUNTED.solve, utilities), key=lambda solution: solution.value)


def test_the_papers_put_is_never_exercised_early_for_the_mean():
    # The price falls, so waiting pays: the value is that of the European put, in closed form
    # K Φ(-d2) - P e^ζ Φ(-d1) with d1 = (log(P/K) + (ζ + σ²/2) T) / σ.
    d1 = (-0.3 + 0.045) / 0.3
    closed = stats.norm.cdf(-(d1 - 0.3)) - math.exp(-0.3) * stats.norm.cdf(-d1)
    solution = UNDISCOUNTED.solve(Mean().utility(np.zeros(1)))
    assert solution.value == pytest.approx(closed, rel=1e-4)
    assert round(solution.value, 4) == 0.2805  # an independent solver
    assert np.isnan(UNDISCOUNTED.boundary(solution.policy)).all()


def test_cvar_of_the_papers_put():
    assert best_cvar(0.6).value == pytest.approx(0.1677, rel=5e-3)  # the same solver


@pytest.mark.parametrize(
    ("env", "gamma"),
    [
        (AmericanPut(drift=0.1, sigma=0.4), 0.97),
        (AmericanPut(drift=0.02, periods=4, maturity=0.5), 0.95),
        (AmericanPut(kind="call", drift=-0.2, strike=0.9), 0.99),
        (AmericanPut(kind="call", drift=0.1), 0.98),
    ],
)
def test_the_mean_agrees_with_a_binomial_tree(env, gamma):
    solution = OptionProblem(env, gamma=gamma).solve(Mean().utility(np.zeros(1)))
    assert solution.value == pytest.approx(binomial(env, gamma), rel=3e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        AmericanPut(),
        AmericanPut(kind="call", drift=0.2, sigma=0.5, periods=5),
        AmericanPut(process="ou", sigma=0.6, mean=0.9),
        AmericanPut(process="ou", kind="call", kappa=0.0, sigma=0.3),
    ],
    ids=lambda env: f"{env.kind}-{env.process}-{env.sigma}",
)
@pytest.mark.parametrize("text", ["cvar(0.4)", "exponential(3)", "0.5*mean + 0.5*cvar(0.2)"])
def test_recursion_exact_returns_and_simulation_agree(env, text):
    risk = parse(text)
    problem = OptionProblem(env, gamma=0.98)
    utility = risk.utility(np.linspace(*problem.return_range, 50))
    value, policy = problem.solve(utility)
    exact = problem.returns(policy)
    assert utility.expectation(exact.values, exact.probabilities) == pytest.approx(value, abs=1e-6)
    run = problem.simulate(policy, 50_000, seed=3)
    worth = np.asarray(utility(run))
    assert abs(worth.mean() - value) < 4.5 * worth.std() / math.sqrt(len(run)) + 1e-6


@pytest.mark.slow
def test_the_default_grid_has_converged():
    finer = OptionProblem(AmericanPut(), gamma=1.0, nodes=1601)
    for alpha, knot in ((0.2, 0.12), (0.6, 0.33)):
        utility = CVaR(alpha).utility_at([knot])
        values = [problem.solve(utility).value for problem in (UNDISCOUNTED, finer)]
        assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_the_boundary_at_the_start_is_one_whatever_the_price_there():
    edges = []
    for price in (0.7, 0.75, 0.8):
        problem = OptionProblem(AmericanPut(initial_price=price), gamma=0.9)
        edges.append(problem.boundary(problem.solve(Mean().utility(np.zeros(1))).policy)[0])
    np.testing.assert_allclose(edges, edges[0], atol=2e-3)


def test_the_more_averse_exercise_sooner():
    # Figure 1b of the paper: the boundary rises as alpha falls.
    cautious = UNDISCOUNTED.boundary(best_cvar(0.2).policy)
    moderate = UNDISCOUNTED.boundary(best_cvar(0.6).policy)
    assert np.all(cautious > moderate + 0.1)
    assert np.all(np.diff(cautious) > -2e-3)  # the closer maturity, the sooner


@pytest.mark.slow
def test_a_plan_of_the_put():
    plan = solve("downside/AmericanPut-v0", "cvar(0.6)", gamma=1.0)
    assert plan.value == pytest.approx(0.1677, rel=5e-3)
    assert abs(plan.simulated - plan.value) < 4 * plan.standard_error
    assert len(plan.returns) == 500_000
    assert plan.alternation <= plan.value + 1e-9
    assert plan.boundary is not None
    values = plan.evaluate(["mean", CVaR(0.6)])
    assert values["cvar(0.6)"] == plan.estimate
    assert values["mean"].value == pytest.approx(plan.returns.mean())
    again = plan.evaluate("mean", episodes=20_000, seed=5)["mean"]
    assert abs(again.value - values["mean"].value) < 5 * again.standard_error


@pytest.mark.slow
def test_the_standard_error_is_that_of_repeated_estimates():
    rng = np.random.default_rng(0)
    risk = parse("0.5*mean + 0.5*cvar(0.2)")
    estimates = [estimate(risk, rng.normal(size=2000)) for _ in range(300)]
    spread = np.std([one.value for one in estimates])
    assert np.mean([one.standard_error for one in estimates]) == pytest.approx(spread, rel=0.15)


def test_a_price_without_noise_is_refused():
    with pytest.raises(ValueError, match=r"`sigma` must be above 0 for the planner, got 0\.0"):
        OptionProblem(AmericanPut(sigma=0.0), gamma=1.0)
