import math

import numpy as np
import pytest

from downside import CVaR, Exponential, Mean, parse
from downside.envs import MeanReversion
from downside.envs.problems.finance.prices import ornstein_uhlenbeck_deviation
from downside.exact import TradingProblem, solve

NOISE = np.linspace(-6.0, 6.0, 301)
CHANCE = np.exp(-0.5 * NOISE**2) / np.exp(-0.5 * NOISE**2).sum()


def two_trades(env, gamma, utility):
    """max E[h(G)] with two trades, by direct quadrature over both moves of the price."""
    deviation = ornstein_uhlenbeck_deviation(kappa=env.kappa, sigma=env.sigma, dt=env.dt)
    decay = math.exp(-env.kappa * env.dt)

    def move(price):
        return env.mean + (price - env.mean) * decay + deviation * NOISE

    best = -np.inf
    for first in env.trades:
        limit = env.inventory_limit or np.inf
        if abs(env.initial_inventory + first) > limit + 1e-9:
            continue
        earned = -first * env.initial_price - env.cost * first**2
        total = 0.0
        for chance, price in zip(CHANCE, move(env.initial_price), strict=True):
            options = []
            for second in env.trades:
                held = env.initial_inventory + first + second
                if abs(held) > limit + 1e-9:
                    continue
                reward = -second * price - env.cost * second**2
                end = reward + held * move(price) - env.terminal_penalty * held**2
                options.append(earned + gamma * end)
            total += chance * np.max(utility(np.array(options)) @ CHANCE)
        best = max(best, total)
    return best


SMALL = {"periods": 2, "maturity": 0.5, "num_trades": 5, "max_trade": 1.0}
OFTEN = ("default", "limited")


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        pytest.param(MeanReversion(**env), id=name, marks=[] if name in OFTEN else pytest.mark.long)
        for name, env in {
            "default": SMALL,
            "away": {**SMALL, "initial_price": 1.4, "sigma": 0.7, "cost": 0.02},
            "limited": {
                **SMALL,
                "inventory_limit": 0.6,
                "initial_inventory": 0.5,
                "initial_price": 0.5,
            },
            "even": {**SMALL, "num_trades": 4, "mean": 2.0, "initial_price": 1.5},
            "brownian": {**SMALL, "kappa": 0.0, "terminal_penalty": 0.0, "mean": 0.0},
        }.items()
    ],
)
def test_two_trades_agree_with_direct_quadrature(env):
    problem = TradingProblem(env, gamma=0.9, episodes=20_000)
    centre = float(np.mean(problem.return_range))
    for risk in (CVaR(0.3), Exponential(4.0), parse("0.5*mean + 0.5*cvar(0.2)")):
        utility = risk.utility(centre + np.linspace(-0.5, 0.5, 20))
        expected = two_trades(env, 0.9, utility)
        got = problem.solve(utility).value
        assert got == pytest.approx(expected, abs=2e-3 * risk.spectrum_at_zero), str(risk)


@pytest.fixture(scope="module")
def paper():
    """The paper's problem at half the default resolution."""
    return TradingProblem(MeanReversion(), gamma=0.99, refine=0.5)


@pytest.mark.slow
def test_what_the_recursion_promises_is_what_the_policy_earns(paper):
    for text, knot in (("cvar(0.5)", 1.42), ("0.5*mean + 0.5*cvar(0.2)", 0.0)):
        utility = parse(text).utility_at([knot])
        value, policy = paper.solve(utility)
        worth = np.asarray(utility(paper.simulate(policy, 100_000, seed=11)))
        assert abs(worth.mean() - value) < 4.5 * worth.std() / math.sqrt(100_000) + 2e-3


@pytest.mark.long
def test_half_the_resolution_changes_little(paper):
    # The default against twice its steps: the error falls with their fourth power.
    finer = TradingProblem(MeanReversion(), gamma=0.99)
    utility = CVaR(0.5).utility_at([1.42])
    assert paper.solve(utility).value == pytest.approx(finer.solve(utility).value, rel=5e-3)


COARSE = {"gamma": 1.0, "refine": 0.5, "episodes": 50_000}


@pytest.mark.slow
def test_a_plan_is_never_worse_than_doing_nothing():
    # The peak of J at knot 0 is narrow: between it and the next one J falls to -0.03.
    still = {"mean": 0.0, "initial_price": 0.0, "terminal_penalty": 0.0, "num_trades": 5}
    env = MeanReversion(sigma=0.5, kappa=1.0, periods=5, **still)
    plan = solve(env, "cvar(0.5)", **COARSE)
    assert plan.value > -1e-3
    assert plan.simulated > -1e-3


@pytest.mark.long
def test_a_plan_is_never_worse_than_selling_what_one_has():
    # A Brownian price: for the mean there is nothing to gain from trading, for CVaR there is.
    env = MeanReversion(kappa=0.0, terminal_penalty=0.0, initial_inventory=10.0, num_trades=5)
    selling = np.where(np.arange(10) < 5, -2.0, 0.0)
    noise = np.random.default_rng(0).normal(size=(100_000, 10))
    prices = 1.0 + np.cumsum(math.sqrt(0.1) * noise, axis=1)
    prices = np.concatenate([np.ones((len(noise), 1)), prices], axis=1)
    rewards = -(prices[:, :10] @ selling) - 0.005 * np.sum(selling**2)
    plan = solve(env, "cvar(0.5)", **COARSE)
    assert plan.simulated > float(CVaR(0.5)(rewards)) - 4 * plan.standard_error


@pytest.mark.long
def test_prices_of_a_hundred_are_no_different_from_prices_of_one():
    # Ten times the price, its noise and the rest in proportion: ten times the value, at γ = 1.
    small = MeanReversion(periods=3, num_trades=5)
    large = MeanReversion(
        periods=3,
        num_trades=5,
        mean=10.0,
        initial_price=10.0,
        sigma=10.0,
        cost=0.05,
        terminal_penalty=5.0,
    )
    plans = [solve(env, "cvar(0.5)", **COARSE) for env in (small, large)]
    assert plans[1].value == pytest.approx(10 * plans[0].value, rel=5e-3, abs=1e-4)


def test_a_problem_that_does_not_fit_says_so():
    with pytest.raises(ValueError, match="`env` is too large for the planner"):
        TradingProblem(MeanReversion(periods=252, num_trades=101), gamma=0.99, episodes=100)


@pytest.mark.slow
def test_the_policy_keeps_to_the_inventory_limit():
    env = MeanReversion(inventory_limit=1.0, periods=4, num_trades=9)
    problem = TradingProblem(env, gamma=0.99, refine=0.5, episodes=5_000)
    free = TradingProblem(
        MeanReversion(periods=4, num_trades=9), gamma=0.99, refine=0.5, episodes=5_000
    )
    neutral = Mean().utility(np.zeros(1))
    assert problem.solve(neutral).value < free.solve(neutral).value
    bound = problem.solve(neutral).policy.grid.inventories
    assert float(abs(bound).max()) <= 1.0 + 1e-5


@pytest.mark.long
def test_a_plan_of_the_papers_cvar_comes_close_to_an_independent_solver():
    # An independent dynamic-programming solution: 0.577. The paper's best agent: 0.28.
    plan = solve("downside/MeanReversion-v0", "cvar(0.5)", refine=0.5)
    assert plan.value == pytest.approx(0.577, abs=0.004)
    assert plan.simulated > 0.56
    assert abs(plan.simulated - plan.value) < 4 * plan.standard_error + 2e-3
    assert plan.boundary is None
    assert plan.bounds is None


def test_a_price_without_noise_is_refused():
    with pytest.raises(ValueError, match=r"`sigma` must be above 0 for the planner, got 0\.0"):
        TradingProblem(MeanReversion(sigma=0.0), gamma=0.99)
