"""Heston's model against its moments and its semi-analytic price."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from downside.envs.problems.finance.heston import Heston

PATHS, STEPS = 200_000, 30
MATURITY, START = 30 / 365, 0.04
# The second one stays far from 0, where the variance is a squared normal throughout.
MODELS = {
    "wild": Heston(1.0, 0.04, 2.0, -0.7, MATURITY / STEPS),
    "calm": Heston(3.0, 0.09, 0.3, -0.4, MATURITY / STEPS),
}


@pytest.fixture(scope="module", params=list(MODELS))
def simulated(request):
    model = MODELS[request.param]

    @jax.jit
    def run(key):
        def body(carry, key):
            price, variance, accrued = carry
            noise = jax.random.normal(key, (2, PATHS))
            after, expectation = model.next_variance(variance, noise[0])
            price = model.next_price(price, variance, after, expectation, noise[1])
            return (price, after, accrued + model.accrued(variance, after)), None

        start = (jnp.full(PATHS, 100.0), jnp.full(PATHS, START), jnp.zeros(PATHS))
        return jax.lax.scan(body, start, jax.random.split(key, STEPS))[0]

    ends = [np.asarray(values, float) for values in run(jax.random.key(0))]
    return model, *ends


def close(values, expected, errors=4.0):
    """Whether a mean is so many standard errors from what it should be."""
    assert abs(values.mean() - expected) < errors * values.std() / np.sqrt(len(values))


@pytest.mark.slow
def test_the_variance_has_its_mean_and_its_variance(simulated):
    model, _, variance, _ = simulated
    a, b, vol = model.reversion, model.long_variance, model.vol_of_vol
    decay = np.exp(-a * MATURITY)
    mean = b + (START - b) * decay
    spread = START * vol**2 / a * (decay - decay**2) + b * vol**2 / (2 * a) * (1 - decay) ** 2
    assert (variance >= 0.0).all()
    close(variance, mean)
    close((variance - mean) ** 2, spread)


def test_the_price_is_a_martingale(simulated):
    close(simulated[1], 100.0)


def test_the_variance_swap_is_a_martingale(simulated):
    model, _, _, accrued = simulated  # at maturity it is what has accrued
    start = model.swap(jnp.zeros(()), jnp.asarray(START), jnp.asarray(MATURITY))
    close(accrued, float(start))
    # By hand at the start: b T + (V - b)(1 - e^{-aT})/a.
    a, b = model.reversion, model.long_variance
    by_hand = b * MATURITY + (START - b) * (1 - np.exp(-a * MATURITY)) / a
    assert float(start) == pytest.approx(by_hand, rel=1e-5)


def test_calls_have_the_price_of_the_characteristic_function(simulated):
    model, price, _, _ = simulated
    for strike in (95.0, 100.0, 108.0):
        close(np.maximum(price - strike, 0.0), call(model, strike))


def call(model, strike):
    """The integral of Lewis (2001) over the characteristic function of the log price."""
    a, b, vol, rho = model.reversion, model.long_variance, model.vol_of_vol, model.correlation

    def characteristic(u):
        tilted = a - rho * vol * 1j * u
        d = np.sqrt(tilted**2 + vol**2 * (1j * u + u * u))
        g = (tilted - d) / (tilted + d)
        gone = 1 - g * np.exp(-d * MATURITY)
        level = a * b / vol**2 * ((tilted - d) * MATURITY - 2 * np.log(gone / (1 - g)))
        return np.exp(level + (tilted - d) / vol**2 * (1 - np.exp(-d * MATURITY)) / gone * START)

    def integrand(u):
        wave = np.exp(1j * u * np.log(100.0 / strike)) * characteristic(u - 0.5j)
        return wave.real / (u * u + 0.25)

    return 100.0 - np.sqrt(100.0 * strike) / np.pi * quad(integrand, 0, 1000, limit=1000)[0]


@pytest.mark.slow
def test_a_step_from_any_variance_is_a_martingale_to_the_last_digits():
    # Numerical integration over both normals instead of sampling: 400 points in each direction.
    points = (np.arange(400) + 0.5) / 400
    normals = jax.scipy.special.ndtri(jnp.asarray(points))
    first, second = (grid.ravel() for grid in jnp.meshgrid(normals, normals))
    for model in MODELS.values():
        for variance in (0.0, 0.001, 0.04, 0.5):
            before = jnp.full(first.shape, variance)
            after, expectation = model.next_variance(before, first)
            price = model.next_price(jnp.full(first.shape, 1.0), before, after, expectation, second)
            # The midpoint rule misses a bit of the exponential's tail.
            np.testing.assert_allclose(price.mean(), 1.0, atol=2e-4)
            np.testing.assert_allclose(
                after.mean(), model.moments(jnp.asarray(variance))[0], rtol=3e-2
            )
