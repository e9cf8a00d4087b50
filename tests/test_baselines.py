"""Hedges from textbooks, evaluated and compared like agents."""

import dataclasses
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import downside as ds
from downside.baselines import (
    BlackScholesDelta,
    DeltaBand,
    LelandDelta,
    NoHedge,
    WhalleyWilmottBand,
)
from downside.envs import GymnasiumEnv, Hedging, HedgingState, rollout

ENV = Hedging()


@pytest.fixture(autouse=True)
def few_episodes_at_once(monkeypatch):
    monkeypatch.setattr(rollout, "_BATCH", 4000)


def state(price, held=0.0, time=0, highest=None, positions=None):
    highest = price if highest is None else highest
    return HedgingState(
        jnp.asarray(price),
        jnp.asarray(highest),
        jnp.asarray(0.04),
        jnp.asarray(0.0),
        jnp.asarray([held] if positions is None else positions),
        jnp.asarray(time, jnp.int32),
    )


def d1(price, deviation):
    return np.log(price / 100.0) / deviation + deviation / 2


def test_the_delta_is_that_of_black_and_scholes():
    got = BlackScholesDelta(ENV)(state(103.0, time=10))
    expected = norm.cdf(d1(103.0, 0.2 * np.sqrt(20 / 252)))
    assert got == pytest.approx(expected, abs=1e-5)
    put = dataclasses.replace(ENV, option="put")
    assert BlackScholesDelta(put)(state(103.0, time=10)) == pytest.approx(expected - 1.0, abs=1e-5)


def test_lelands_delta_is_at_a_higher_volatility():
    # sqrt(8/pi) * 0.001 / (0.2 / sqrt(252)) = 0.12666: the variance is so much higher.
    deviation = 0.2 * np.sqrt(1.12666 * 20 / 252)
    got = LelandDelta(ENV)(state(103.0, time=10))
    assert got == pytest.approx(norm.cdf(d1(103.0, deviation)), abs=1e-5)
    free = dataclasses.replace(ENV, cost=0.0)
    np.testing.assert_allclose(
        LelandDelta(free)(state(103.0)), BlackScholesDelta(free)(state(103.0))
    )
    still = Hedging(sigma=0.0)
    assert LelandDelta(still)(state(103.0)) == 1.0


def test_a_band_is_left_alone_inside_and_entered_at_its_edge():
    delta = float(BlackScholesDelta(ENV)(state(103.0, time=10))[0])
    band = DeltaBand(ENV, half_width=0.05)
    for held, expected in ((delta + 0.03, delta + 0.03), (0.1, delta - 0.05), (1.0, delta + 0.05)):
        assert band(state(103.0, held, time=10)) == pytest.approx(expected, abs=1e-6)


def test_the_band_of_whalley_and_wilmott_has_their_width():
    deviation = 0.2 * np.sqrt(20 / 252)
    gamma = norm.pdf(d1(103.0, deviation)) / (103.0 * deviation)
    width = (1.5 * 0.001 * 103.0 * gamma**2 / 2.0) ** (1 / 3)
    delta = float(norm.cdf(d1(103.0, deviation)))
    band = WhalleyWilmottBand(ENV, risk_aversion=2.0)
    assert band(state(103.0, 0.0, time=10)) == pytest.approx(delta - width, abs=1e-5)
    assert band(state(103.0, delta, time=10)) == pytest.approx(delta, abs=1e-5)


@pytest.mark.slow
def test_nothing_is_held_without_a_hedge():
    profits = NoHedge(ENV).simulate_returns(20_000, 0)
    assert abs(profits.mean()) < 4 * profits.std() / np.sqrt(20_000)
    assert profits.max() == pytest.approx(ENV.received_premium, abs=1e-5)


def test_positions_are_legal_whatever_the_hedge_wants():
    limited = Hedging(max_position=0.4)
    assert BlackScholesDelta(limited)(state(120.0)) == pytest.approx(0.4)
    few = Hedging(num_positions=5)  # 0, 0.25, ...
    action = BlackScholesDelta(few)(state(100.0))
    assert action.dtype == jnp.int32
    assert action == 2
    both = Hedging(model="heston", swap=True)
    got = BlackScholesDelta(both)(state(100.0, positions=[0.0, 0.0]))
    assert got.shape == (2,)
    assert got[1] == 0.0


@pytest.mark.slow
def test_the_figures_of_the_default_problem():
    # From an independent simulation of 200,000 paths: mean, cvar(0.2) and cvar(0.05) of the delta
    # are -0.273, -0.918 and -1.358, of a band of half-width 0.02 -0.230, -0.884 and -1.303. With
    # 40,000 paths the standard errors here are 0.002, 0.005 and 0.010.
    for hedge, figures in (
        (BlackScholesDelta(ENV), (-0.273, -0.918, -1.358)),
        (DeltaBand(ENV, half_width=0.02), (-0.230, -0.884, -1.303)),
    ):
        evaluation = ds.evaluate(hedge, episodes=40_000, seed=0)
        for risk, figure in zip(("mean", "cvar(0.2)", "cvar(0.05)"), figures, strict=True):
            error = evaluation.standard_error(risk)
            assert evaluation.value(risk) == pytest.approx(figure, abs=4 * error)


def test_the_price_makes_the_seller_indifferent():
    # At that premium the same hedge, in the same episodes, is worth 0.
    hedge = DeltaBand(ENV, half_width=0.02)
    price = hedge.price("cvar(0.2)", episodes=4000, seed=3)
    assert price > ENV.received_premium
    at_price = dataclasses.replace(hedge, env=dataclasses.replace(ENV, premium=price))
    worth = ds.evaluate(at_price, episodes=4000, seed=3).value("cvar(0.2)")
    assert worth == pytest.approx(0.0, abs=1e-4)


@pytest.mark.slow
def test_an_agent_has_a_price_too():
    tiny: dict[str, Any] = {
        "updates": 2,
        "batch_size": 16,
        "outer_interval": 1,
        "outer_episodes": 32,
    }
    agent = ds.PGSRM(Hedging(periods=3), risk="cvar(0.5)", hidden_sizes=(4,), **tiny)
    agent.learn()
    result = ds.evaluate(agent, episodes=500)
    for risk in ("cvar(0.5)", "mean"):
        expected = ENV.received_premium - result.value(risk)
        assert agent.price(risk, episodes=500) == pytest.approx(expected, abs=1e-5)
    assert agent.price(episodes=500) == agent.price("cvar(0.5)", episodes=500)
    with pytest.raises(ValueError, match="`episodes` must be a whole number of at least 1, got 0"):
        agent.price(episodes=0)
    other = ds.PGSRM("downside/MeanReversion-v0", risk="mean", **tiny)
    with pytest.raises(TypeError, match="`price` is for the hedging problem"):
        other.price()


def test_hedges_are_evaluated_and_compared_in_the_same_episodes():
    first = ds.evaluate(DeltaBand(ENV, half_width=0.02), episodes=4000)
    second = ds.evaluate(BlackScholesDelta(ENV), episodes=4000)
    assert first.label == "DeltaBand"
    assert first.aligned
    difference = ds.compare(first, second, "cvar(0.2)")
    assert difference.method == "paired episodes"
    assert difference.low > 0.0


def test_what_can_be_evaluated_can_be_compared_as_it_is(monkeypatch):
    monkeypatch.setattr("downside.evaluation.episodes._EPISODES", 4000)
    hedges = DeltaBand(ENV, half_width=0.02), BlackScholesDelta(ENV)
    got = ds.compare(*hedges, "cvar(0.2)")
    first, second = (ds.evaluate(hedge, episodes=4000) for hedge in hedges)
    expected = ds.compare(first, second, "cvar(0.2)")
    assert got == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        Hedging(periods=5),
        Hedging(periods=5, num_positions=21),
        Hedging(periods=5, option="lookback"),
        Hedging(periods=5, model="heston", swap=True),
    ],
)
def test_predictions_from_observations_are_the_actions_in_their_states(env):
    hedge = DeltaBand(env, half_width=0.01)
    face = GymnasiumEnv(env)
    observation, _ = face.reset(seed=0)
    for _ in range(5):
        action, _ = hedge.predict(observation)
        np.testing.assert_allclose(action, hedge(face.state), atol=2e-3)
        assert action in env.action_space
        observation, *_ = face.step(action)
    batch, _ = hedge.predict(np.stack([observation, observation]))
    assert len(batch) == 2


@pytest.mark.slow
def test_hedges_work_where_stable_baselines_models_do():
    env = gym.make("downside/Hedging-v0", cost=0.0, sigma=0.01)
    mean, deviation = ds.evaluate_policy(BlackScholesDelta(env), env, 5, seed=0)
    assert mean == pytest.approx(0.0, abs=0.05)
    assert deviation < 0.1


def test_other_problems_and_observations_are_refused():
    with pytest.raises(TypeError, match="`env` must be the hedging problem, got"):
        NoHedge("downside/MeanReversion-v0")
    with pytest.raises(ValueError, match=r"`observation` must have shape \(3,\) or \(n, 3\), got"):
        NoHedge(ENV).predict(np.zeros(4))
    with pytest.raises(ValueError, match=r"`half_width` must be a finite number in \[0, inf\)"):
        DeltaBand(ENV, half_width=-0.1)
    with pytest.raises(ValueError, match=r"`risk_aversion` must be a finite number in \(0, inf\)"):
        WhalleyWilmottBand(ENV, risk_aversion=0.0)


def test_a_hedge_is_compiled_once_for_all_parameters_that_are_equal():
    assert jax.tree.structure(DeltaBand(ENV, half_width=0.1)) == jax.tree.structure(
        DeltaBand("downside/Hedging-v0", half_width=0.1)
    )
