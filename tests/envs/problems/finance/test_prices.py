import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from downside.envs import AmericanPut, MeanReversion
from downside.envs.problems.finance.prices import ornstein_uhlenbeck, ornstein_uhlenbeck_deviation

PATHS = 200_000


def final_steps(core, action):
    """The last step of many episodes in which one action is taken throughout."""

    def episode(key):
        def body(state, key):
            step = core.step(key, state, action)
            return step.state, step

        _, steps = jax.lax.scan(body, core.initial_state(key), jax.random.split(key, core.periods))
        return jax.tree.map(lambda leaf: leaf[-1], steps)

    return jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), PATHS))


def assert_moments(samples, mean, variance):
    """Mean and variance within five standard errors."""
    samples = np.asarray(samples, np.float64)
    deviations = (samples - samples.mean()) ** 2
    assert abs(samples.mean() - mean) < 5 * samples.std() / np.sqrt(samples.size)
    assert abs(deviations.mean() - variance) < 5 * deviations.std() / np.sqrt(samples.size)


@pytest.mark.slow
def test_the_price_of_the_put_is_lognormal():
    core = AmericanPut(drift=-0.3, sigma=0.3, initial_price=1.2, maturity=1.5, periods=5)
    price = final_steps(core, 0).state.price
    # log P_T is normal with mean log P_0 + (ζ - σ²/2) T and variance σ² T.
    assert_moments(np.log(price), np.log(1.2) + (-0.3 - 0.045) * 1.5, 0.09 * 1.5)
    mean = 1.2 * np.exp(-0.3 * 1.5)
    assert_moments(price, mean, mean**2 * np.expm1(0.09 * 1.5))


@pytest.mark.slow
@pytest.mark.parametrize("core", [MeanReversion(), AmericanPut(process="ou", sigma=1.0)])
def test_the_reverting_price_has_the_mean_and_variance_of_its_process(core):
    core = type(core)(**{**vars(core), "initial_price": 1.8})
    price = final_steps(core, 0).state.price
    # ζ + (P_0 - ζ) e^{-κT}, and σ² (1 - e^{-2κT}) / 2κ, with ζ = 1, κ = 2, σ = 1, T = 1.
    assert_moments(price, 1.0 + 0.8 * np.exp(-2.0), -np.expm1(-4.0) / 4.0)


@pytest.mark.slow
def test_holding_to_maturity_pays_what_the_black_scholes_formula_says():
    rewards = np.asarray(final_steps(AmericanPut(), 0).reward, np.float64)
    # E max(K - P_T, 0), undiscounted, with K = P_0 = T = 1: Φ(-d2) - e^ζ Φ(-d1).
    d1 = (-0.3 + 0.045) / 0.3
    expected = norm.cdf(-(d1 - 0.3)) - np.exp(-0.3) * norm.cdf(-d1)
    assert abs(rewards.mean() - expected) < 5 * rewards.std() / np.sqrt(PATHS)
    np.testing.assert_allclose(expected, 0.2805, atol=5e-5)


def test_a_price_without_reversion_is_a_brownian_motion():
    # Variance σ² Δt = 4 · 0.25 = 1, and no pull towards the mean.
    assert ornstein_uhlenbeck_deviation(kappa=0.0, sigma=2.0, dt=0.25) == 1.0
    after = ornstein_uhlenbeck(
        jnp.array(3.0), jnp.array(-0.5), kappa=0.0, mean=1.0, sigma=2.0, dt=0.25
    )
    np.testing.assert_allclose(after, 2.5)


def test_slow_reversion_is_continuous_with_none():
    slow = ornstein_uhlenbeck_deviation(kappa=1e-12, sigma=2.0, dt=0.25)
    np.testing.assert_allclose(slow, 1.0, rtol=1e-11)


def test_one_long_step_has_the_law_of_many_short_ones():
    # The discretisation is exact: ten variances composed are the variance of ten steps at once.
    decay = np.exp(-2.0 * 0.1)
    short = ornstein_uhlenbeck_deviation(kappa=2.0, sigma=1.0, dt=0.1) ** 2
    composed = short * sum(decay ** (2 * k) for k in range(10))
    long = ornstein_uhlenbeck_deviation(kappa=2.0, sigma=1.0, dt=1.0) ** 2
    np.testing.assert_allclose(composed, long, rtol=1e-12)
