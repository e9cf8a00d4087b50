"""Prices and deltas against published values, identities and simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.envs.problems.finance import black_scholes

SPOTS = jnp.array([60.0, 95.0, 100.0, 130.0])


def test_a_call_has_its_textbook_value():
    # S = 42, K = 40, sigma = 0.2, half a year, no interest: d1 = ln(1.05)/0.14142 + 0.07071 =
    # 0.41571, d2 = 0.27429; 42 * 0.66119 - 40 * 0.60807 = 3.4472.
    spot = jnp.asarray(42.0)
    got = black_scholes.price("call", spot, spot, 40.0, jnp.asarray(0.2 * 0.5**0.5))
    assert got == pytest.approx(3.4472, abs=2e-4)


def test_put_call_parity():
    deviation = jnp.full(4, 0.1)
    call = black_scholes.price("call", SPOTS, SPOTS, 100.0, deviation)
    put = black_scholes.price("put", SPOTS, SPOTS, 100.0, deviation)
    np.testing.assert_allclose(call - put, SPOTS - 100.0, atol=1e-4)
    call = black_scholes.delta("call", SPOTS, SPOTS, 100.0, deviation)
    put = black_scholes.delta("put", SPOTS, SPOTS, 100.0, deviation)
    np.testing.assert_allclose(call - put, np.ones(4), atol=1e-6)


@pytest.mark.parametrize("option", ["call", "put", "lookback"])
def test_a_price_without_noise_is_the_payoff(option):
    got = black_scholes.price(option, SPOTS, jnp.full(4, 110.0), 100.0, jnp.zeros(4))
    expected = {
        "call": [0.0, 0.0, 0.0, 30.0],
        "put": [40.0, 5.0, 0.0, 0.0],
        # The highest price is 110, or the spot if that is above it.
        "lookback": [10.0, 10.0, 10.0, 30.0],
    }
    np.testing.assert_allclose(got, expected[option], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["call", "put", "lookback"])
def test_the_delta_is_the_derivative_of_the_price(option):
    highest, deviation = jnp.maximum(SPOTS, 105.0), jnp.full(4, 0.2)

    def price(spot, highest, deviation):
        return black_scholes.price(option, spot, highest, 100.0, deviation, 0.03)

    slopes = jax.vmap(jax.grad(price))(SPOTS, highest, deviation)
    got = black_scholes.delta(option, SPOTS, highest, 100.0, deviation, 0.03)
    np.testing.assert_allclose(got, slopes, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_correction_for_a_lookback_that_is_watched_daily():
    # 400,000 mirrored paths of 20 steps with sigma sqrt(dt) = 0.02, strike 103.
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(200_000, 20))
    noise = np.concatenate([noise, -noise])
    paths = 100.0 * np.exp(np.cumsum(0.02 * noise - 0.0002, axis=1))
    payoffs = np.maximum(np.maximum(paths.max(axis=1), 100.0) - 103.0, 0.0)
    error = payoffs.std() / np.sqrt(len(payoffs))  # 0.0081
    assert error < 0.01
    spot, deviation = jnp.asarray(100.0), jnp.asarray(0.02 * 20**0.5)
    corrected = black_scholes.price("lookback", spot, spot, 103.0, deviation, 0.02)
    # By Spitzer's identity the mean of the highest of n sums of normals exceeds the corrected one
    # by 1/(2 sqrt(2 pi n)) deviations of a step: 0.09 here, for about half of the paths.
    missing = float(payoffs.mean() - corrected)
    assert 0.0 < missing < 0.09
    watched_always = black_scholes.price("lookback", spot, spot, 103.0, deviation)
    assert watched_always - payoffs.mean() > 10 * missing
