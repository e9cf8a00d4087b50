"""The hedging problem, by hand and against closed forms."""

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.envs import Hedging, HedgingState, rollout
from downside.envs.rollout import simulate

KEY = jax.random.key(0)
DEEP: dict[str, Any] = {"model": "heston", "swap": True, "maturity": 30 / 365, "cost": 0.0}


def state(env, price, positions=(0.0,), time=0, highest=None, variance=0.04, accrued=0.0):
    highest = price if highest is None else highest
    return HedgingState(
        jnp.asarray(price),
        jnp.asarray(highest),
        jnp.asarray(variance),
        jnp.asarray(accrued),
        jnp.asarray(positions),
        jnp.asarray(time, jnp.int32),
    )


@pytest.fixture(autouse=True)
def few_episodes_at_once(monkeypatch):
    monkeypatch.setattr(rollout, "_BATCH", 4000)


def returns(env, policy, episodes=2000, seed=0):
    key = jax.random.key(seed)
    return simulate(env, policy, gamma=1.0, episodes=episodes, key=key)[0]


def hold(*positions):
    return lambda state, s, c: jnp.asarray(positions)


# --- rewards by hand --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_pays_the_gain_of_the_new_position_minus_the_cost_of_the_trade():
    env = Hedging(cost=0.01, fixed_cost=0.5, sigma=0.0)
    # From 0.2 to 0.6 at 110: 0.01 * 0.4 * 110 + 0.5 = 0.94, and the price stays.
    result = env.transition(state(env, 110.0, [0.2], time=5), np.array([0.6]), jnp.zeros(1))
    assert result.reward == pytest.approx(-0.94, abs=1e-5)
    assert result.state.positions == pytest.approx(0.6)
    # The position that is held already costs nothing, not even the fixed cost.
    result = env.transition(state(env, 110.0, [0.2], time=5), np.array([0.2]), jnp.zeros(1))
    assert result.reward == 0.0


def test_the_price_moves_after_the_trade():
    env = Hedging(cost=0.0, sigma=0.2)
    result = env.transition(state(env, 110.0, [0.2], time=5), np.array([0.6]), jnp.ones(1))
    after = 110.0 * np.exp(0.2 * np.sqrt(1 / 252) - 0.02 / 252)
    assert result.state.price == pytest.approx(after)
    assert result.reward == pytest.approx(0.6 * (after - 110.0), rel=1e-4)


@pytest.mark.parametrize(
    ("option", "payoff"),
    # At maturity the price is 107 and was 112 before.
    [("call", 7.0), ("put", 0.0), ("lookback", 12.0)],
)
def test_the_last_step_pays_the_option_and_closes_the_position(option, payoff):
    env = Hedging(option=option, cost=0.01, sigma=0.0, min_position=-1.0, max_position=1.0)
    last = state(env, 107.0, [0.3], time=29, highest=112.0)
    result = env.transition(last, np.array([0.5]), jnp.zeros(1))
    # Buys 0.2 and sells 0.5, both at 107, for 1% each.
    assert result.reward == pytest.approx(-0.01 * 0.7 * 107.0 - payoff, abs=1e-4)
    assert result.terminated
    # Closing has a fixed cost where something is held.
    env = dataclasses.replace(env, fixed_cost=0.5)
    nothing = env.transition(last, np.array([0.0]), jnp.zeros(1))
    assert nothing.reward == pytest.approx(-0.01 * 0.3 * 107.0 - payoff - 0.5, abs=1e-4)


def test_the_first_step_pays_the_premium():
    env = Hedging(premium=3.25, cost=0.0)
    nothing = env.transition(env.initial_state(KEY), np.array([0.0]), jnp.zeros(1))
    assert nothing.reward == 3.25
    assert Hedging(model="heston").received_premium == 0.0
    # 0.4 S sigma sqrt(T) at the money, nearly; to four digits 2.7524.
    assert Hedging().received_premium == pytest.approx(2.7524, abs=1e-4)
    # By put-call parity a put 10 in the money is dearer by 10 than the call.
    call = Hedging(strike=110.0).received_premium
    assert Hedging(option="put", strike=110.0).received_premium == pytest.approx(call + 10.0)


@pytest.mark.slow
def test_the_swap_pays_the_variance_and_is_worth_what_is_expected_of_it():
    env = Hedging(**DEEP)
    start = env.initial_state(KEY)
    # V = b at the start: b T.
    np.testing.assert_allclose(env.instrument_prices(start), [100.0, 0.04 * 30 / 365], rtol=1e-6)
    now = state(env, 90.0, [0.0, 0.0], time=20, variance=0.1, accrued=0.002)
    left = 10 / 365
    expected = 0.002 + (0.1 - 0.04) * (1 - np.exp(-left)) + 0.04 * left
    np.testing.assert_allclose(env.instrument_prices(now), [90.0, expected], rtol=1e-6)
    result = env.transition(now, np.array([0.5, 1500.0]), jnp.array([0.3, 0.8]))
    prices = env.instrument_prices(result.state)
    gain = 0.5 * (prices[0] - 90.0) + 1500.0 * (prices[1] - expected)
    assert result.reward == pytest.approx(float(gain), rel=1e-4)
    # The cost is a share of the value traded, of each instrument.
    costly = dataclasses.replace(env, cost=0.01).transition(
        now, np.array([0.5, 1500.0]), jnp.array([0.3, 0.8])
    )
    cost = 0.01 * (0.5 * 90.0 + 1500.0 * expected)
    assert costly.reward == pytest.approx(float(gain) - cost, rel=1e-4)


# --- whole episodes ---------------------------------------------------------------------------


def test_without_a_hedge_the_profit_is_the_premium_minus_the_payoff():
    # Mirrored by hand: the same noise through the formula of the price.
    env = Hedging(periods=3, maturity=3 / 252, premium=2.0, cost=0.01)
    noises = jax.random.normal(KEY, (3, 1))
    now, total = env.initial_state(KEY), 0.0
    for noise in noises:
        result = env.transition(now, np.array([0.0]), noise)
        now, total = result.state, total + result.reward
    step = 0.2 / np.sqrt(252)
    price = 100.0 * np.exp(step * float(noises.sum()) - 1.5 * step**2)
    assert total == pytest.approx(2.0 - max(price - 100.0, 0.0), abs=1e-4)


@pytest.mark.slow
def test_a_price_that_never_moves_makes_the_profit_certain():
    env = Hedging(sigma=0.0, strike=95.0, cost=0.001)
    assert env.received_premium == pytest.approx(5.0, abs=1e-3)
    # Premium 5, payoff 5, and 0.4 bought and sold at 100 for 10 basis points each.
    np.testing.assert_allclose(returns(env, hold(0.4), 8), -0.08, atol=2e-3)


@pytest.mark.slow
def test_holding_the_stock_against_a_call_and_nothing_against_a_put_is_parity():
    # S_T - S_0 - (S_T - K)^+ = K - S_0 - (K - S_T)^+, under the same noise.
    call = Hedging(premium=0.0, cost=0.0, strike=103.0)
    put = dataclasses.replace(call, option="put")
    left, right = returns(call, hold(1.0)), returns(put, hold(0.0))
    np.testing.assert_allclose(left, 3.0 + right, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["call", "put", "lookback"])
def test_without_costs_the_premium_is_fair_and_the_delta_takes_the_risk_away(option):
    spread = []
    for periods in (8, 32):
        env = Hedging(option=option, cost=0.0, periods=periods, strike=102.0)
        profits = returns(env, ds.baselines.BlackScholesDelta(env), 4000)
        # A lookback's premium is a little wrong: the correction is for many steps.
        allowed = 0.06 if option == "lookback" else 0.0
        assert abs(profits.mean()) < allowed + 4 * profits.std() / np.sqrt(4000)
        spread.append(profits.std())
    # The error of a discrete hedge falls with the root of the number of steps: by a half.
    assert 0.4 < spread[1] / spread[0] < 0.62


def test_the_highest_price_counts_from_the_start():
    env = Hedging(option="lookback", premium=0.0, cost=0.0, periods=2)
    now = env.initial_state(KEY)
    for noise in (-2.0, -1.0):
        result = env.transition(now, np.array([0.0]), jnp.array([noise]))
        now = result.state
    assert now.highest == 100.0
    assert now.price < 98.0


# --- actions ----------------------------------------------------------------------------------


def test_the_range_of_positions_is_that_of_a_delta():
    assert Hedging().position_range == (0.0, 1.0)
    assert Hedging(option="put").position_range == (-1.0, 0.0)
    assert Hedging(option="lookback").position_range == (0.0, 2.0)
    assert Hedging(model="heston").position_range == (-1.0, 2.0)
    assert Hedging(option="put", min_position=-0.5).position_range == (-0.5, 0.0)
    box = Hedging(**DEEP, max_swaps=50.0).action_space
    assert box == gym.spaces.Box(np.array([-1, -50], np.float32), np.array([2, 50], np.float32))


def test_positions_beyond_the_limits_are_cut_to_them():
    env = Hedging(max_position=0.7)
    for action, expected in ((0.9, 0.7), (-3.0, 0.0), (0.4, 0.4)):
        result = env.transition(env.initial_state(KEY), np.array([action]), jnp.zeros(1))
        assert result.state.positions == pytest.approx(expected)


def test_positions_to_choose_from_are_points_of_the_continuous_problem():
    env = Hedging(option="put", num_positions=5, cost=0.01, fixed_cost=0.2)
    assert env.action_space == gym.spaces.Discrete(5)
    assert env.relaxed is not None
    continuous, points = env.relaxed
    assert continuous == dataclasses.replace(env, num_positions=None)
    np.testing.assert_allclose(points, [[-1.0], [-0.75], [-0.5], [-0.25], [0.0]])
    now = state(env, 97.0, [-0.25], time=3)
    for number, point in enumerate(points):
        left = env.transition(now, number, jnp.array([0.4]))
        right = continuous.transition(now, point, jnp.array([0.4]))
        jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.slow
@pytest.mark.parametrize("extra", [{}, {"option": "put"}, {"option": "lookback"}, DEEP])
def test_derivatives_by_the_positions_are_finite_differences(extra):
    with jax.enable_x64(True):
        env = Hedging(**{**extra, "cost": 0.002, "periods": 4})
        box: Any = env.action_space
        low, high = box.low, box.high
        rng = np.random.default_rng(1)
        actions = low + (high - low) * rng.uniform(0.1, 0.9, (4, len(low)))
        noises = rng.normal(size=(4, *env.sample_noise(KEY).shape))

        @jax.jit
        def total(actions):
            now, earned = env.initial_state(KEY), 0.0
            for action, noise in zip(actions, noises, strict=True):
                result = env.transition(now, action, noise)
                now, earned = result.state, earned + result.reward
            return earned

        slopes = np.asarray(jax.grad(total)(jnp.asarray(actions)))
        assert np.isfinite(slopes).all()
        assert (slopes != 0.0).all()
        for i, k in np.ndindex(*actions.shape):
            step = np.zeros_like(actions)
            step[i, k] = 1e-6 * (high - low)[k]
            by_hand = (total(actions + step) - total(actions - step)) / (2 * step[i, k])
            np.testing.assert_allclose(slopes[i, k], by_hand, rtol=1e-4, atol=1e-7)


def test_derivatives_are_finite_where_nothing_is_traded():
    env = Hedging(fixed_cost=0.1)
    start = env.initial_state(KEY)
    slope = jax.grad(lambda a: env.transition(start, a, jnp.ones(1)).reward)(jnp.zeros(1))
    assert np.isfinite(slope).all()


# --- observations, parameters -----------------------------------------------------------------


def test_observations_are_in_units_of_the_problem():
    env = Hedging(maturity=0.25, sigma=0.4, strike=80.0, periods=10)  # the length is 0.2
    shown = env.observe(state(env, 100.0, [0.3], time=4))
    np.testing.assert_allclose(shown, [np.log(1.25) / 0.2, 0.4, 0.3], rtol=1e-6)
    env = Hedging(**{**DEEP, "option": "lookback", "maturity": 0.25, "max_swaps": 100.0})
    now = state(env, 100.0, [0.3, 25.0], time=15, highest=110.0, variance=0.16, accrued=0.004)
    worth = 0.004 + 0.12 * (1 - np.exp(-0.125)) + 0.04 * 0.125
    expected = [0.0, 0.5, 0.3, np.log(1.1) / 0.1, 2.0, worth / 0.01, 0.25]
    np.testing.assert_allclose(env.observe(now), expected, rtol=1e-5)


@pytest.mark.parametrize("extra", [{}, {"option": "lookback"}, {**DEEP, "option": "lookback"}])
def test_a_state_is_recovered_from_its_observation(extra):
    env = Hedging(**extra)
    now = env.initial_state(KEY)
    for noise in jax.random.normal(KEY, (3, 2)):
        action = np.array([0.3, 700.0])[: env.num_instruments]
        now = env.transition(now, action, noise[: len(env.sample_noise(KEY))]).state
    if env.option != "lookback":
        now = now._replace(highest=now.price)  # which nothing depends on
    if not env.swap:
        now = now._replace(accrued=jnp.zeros(()))
    for got, expected in zip(env.recover(env.observe(now)), now, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_parameters_that_change_nothing_are_refused():
    with pytest.raises(ValueError, match=r"`vol_of_vol` must be left at 2.0.*model='heston'"):
        Hedging(vol_of_vol=1.0)
    with pytest.raises(ValueError, match=r"`sigma` must be left at 0.2.*model='gbm'"):
        Hedging(model="heston", sigma=0.3)
    with pytest.raises(ValueError, match=r"`swap` must be left at False.*model='heston'"):
        Hedging(swap=True)
    with pytest.raises(ValueError, match=r"`max_swaps` must be left at 5000.*swap=True"):
        Hedging(model="heston", max_swaps=10.0)
    with pytest.raises(ValueError, match=r"`num_positions` must be None with swap=True, got 3"):
        Hedging(**DEEP, num_positions=3)


def test_the_problem_says_that_profits_are_not_discounted():
    assert Hedging().default_gamma == 1.0
    assert ds.ReturnAware(Hedging(), 0.9).default_gamma == 1.0
