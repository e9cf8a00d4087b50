import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downside.ops import (
    greedy,
    masked,
    mean_score,
    shortfall_score,
    spectral_score,
    utility_score,
)
from downside.risk import CVaR, DualPower, Exponential, Mean

from ..risk import strategies

QUANTILES = jnp.array([[20.0, -10.0, 0.0, 5.0], [1.0, 1.0, 3.0, 2.0]])


def test_the_mean_score_is_the_mean():
    # 15 / 4 and 7 / 4.
    np.testing.assert_allclose(mean_score(QUANTILES), [3.75, 1.75])


def test_the_spectral_score_weighs_sorted_quantiles():
    # CVaR(0.375) of four quantiles: 2/3 of the worst, 1/3 of the next.
    # (-10, 0): -20/3; (1, 1): 1.
    weights = CVaR(0.375).quantile_weights(4)
    np.testing.assert_allclose(spectral_score(QUANTILES, weights), [-20 / 3, 1], rtol=1e-6)


def test_the_shortfall_score_counts_what_is_missing_to_the_target():
    # Below 2: (12 + 2) / 4 and (1 + 1) / 4.
    np.testing.assert_allclose(shortfall_score(QUANTILES, 2.0), [-3.5, -0.5])


def test_the_utility_score_is_taken_of_the_whole_return():
    # CVaR(0.5) with its bend at 2: h(z) = 2 + 2 min(z - 2, 0); s = 1, c = 0.5:
    # z = 11, -4, 1, 3.5 -> 2, -10, 0, 2: -1.5; z = 1.5, 1.5, 2.5, 2 -> 1, 1, 2, 2: 1.5.
    utility = CVaR(0.5).utility_at(jnp.array([2.0]))
    np.testing.assert_allclose(utility_score(QUANTILES, utility, 1.0, 0.5), [-1.5, 1.5])


@pytest.mark.slow
@settings(max_examples=25)
@given(strategies.risks, st.sampled_from([1, 4, 21]), st.integers(0, 2**32 - 1))
def test_the_spectral_score_is_the_risk_measure(risk, count, seed):
    quantiles = np.random.default_rng(seed).normal(size=(3, count))
    got = spectral_score(jnp.asarray(quantiles), risk.quantile_weights(count))
    np.testing.assert_allclose(got, risk(quantiles), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("risk", [DualPower(3.0), Exponential(4.0), CVaR(0.3)], ids=str)
@given(st.sampled_from([5, 30]), st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_the_utility_score_is_the_double_sum_of_algorithm_two(risk, count, seed):
    # sum_ij mu_i (s + c theta_j - start_i)^- / N with mu_i = phi(tau_{i-1}) - phi(tau_i), plus what
    # the algorithm leaves out: the constant, and the share phi(1) of the mean.
    rng = np.random.default_rng(seed)
    start, theta = np.sort(rng.normal(size=count)), rng.normal(size=(4, count))
    s, c = float(rng.normal()), float(rng.uniform(0.1, 1.0))
    if isinstance(risk, CVaR):  # appendix D: 1/alpha at j = floor(alpha N) + 1
        mu = np.zeros(count)
        mu[int(np.floor(risk.alpha * count))] = 1 / risk.alpha
    else:
        mu = -np.diff(risk.spectrum(np.arange(count + 1) / count))
    short = np.minimum(s + c * theta[..., None] - start, 0.0)
    double_sum = (short * mu).sum(axis=(-2, -1)) / count
    mean_share = risk.spectrum_at_one * (s + c * theta.mean(axis=-1))
    utility = risk.utility(jnp.asarray(start))
    expected = double_sum + mean_share + float(utility.offset)
    got = jax.jit(utility_score)(jnp.asarray(theta), utility, s, c)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_the_utility_of_a_cvar_ranks_actions_as_the_shortfall_does():
    # h(s + c G) = b + (s + c G - b)^- / alpha = b - c/alpha (b' - G)^+ with b' = (b - s) / c.
    quantiles = jax.random.normal(jax.random.key(0), (5, 20))
    b, s, c, alpha = 0.7, 0.4, 0.8, 0.25
    utility = CVaR(alpha).utility_at(jnp.array([b]))
    expected = b + c / alpha * shortfall_score(quantiles, (b - s) / c)
    np.testing.assert_allclose(utility_score(quantiles, utility, s, c), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 50, 200])
def test_cvar_of_everything_is_the_mean(count):
    quantiles = jax.random.normal(jax.random.key(count), (5, count)) * 37.0
    weights = CVaR(1.0).quantile_weights(count)
    mean = np.asarray(quantiles).mean(axis=-1)
    np.testing.assert_allclose(mean_score(quantiles), mean, atol=1e-4)
    np.testing.assert_allclose(spectral_score(quantiles, weights), mean, atol=1e-4)


@pytest.mark.parametrize("count", range(1, 300, 13))
def test_the_weights_of_the_mean_are_equal_to_the_last_bit(count):
    weights = np.asarray(jnp.asarray(Mean().quantile_weights(count), dtype=jnp.float32))
    np.testing.assert_array_equal(weights, np.float32(1.0 / count))


def test_the_gradient_of_a_spectral_score_goes_to_the_quantiles_by_rank():
    # CVaR(0.375): 2/3 for the worst (-10, second), 1/3 for the next (0, third).
    weights = CVaR(0.375).quantile_weights(4)
    gradient = jax.grad(lambda q: spectral_score(q, weights)[0])(QUANTILES)
    np.testing.assert_allclose(gradient, [[0, 2 / 3, 1 / 3, 0], [0, 0, 0, 0]], rtol=1e-6)


def test_illegal_actions_have_a_score_of_minus_infinity():
    got = masked(jnp.array([1.0, 2.0, jnp.nan]), jnp.array([True, False, False]))
    np.testing.assert_array_equal(got, [1.0, -np.inf, -np.inf])


@pytest.mark.parametrize(
    ("scores", "mask", "best"),
    [
        ([1.0, 3.0, 2.0], [True, True, True], 1),
        ([1.0, 3.0, 2.0], [True, False, True], 2),
        ([3.0, 1.0, 1.0], [False, True, True], 1),  # the first of two equals
        ([np.nan, -5.0, -4.0], [False, True, True], 2),
        ([np.inf, -np.inf, -np.inf], [False, False, True], 2),
    ],
)
def test_the_greedy_action_is_the_first_best_legal_one(scores, mask, best):
    assert greedy(jnp.array(scores), jnp.array(mask)) == best


@given(st.integers(0, 2**32 - 1))
def test_the_greedy_action_is_legal_and_no_legal_one_is_better(seed):
    rng = np.random.default_rng(seed)
    scores, mask = rng.integers(-3, 3, size=6).astype(float), rng.random(6) < 0.5
    mask[rng.integers(6)] = True
    best = int(greedy(jnp.asarray(scores), jnp.asarray(mask)))
    legal = np.flatnonzero(mask)
    assert best == min(a for a in legal if scores[a] == scores[legal].max())
