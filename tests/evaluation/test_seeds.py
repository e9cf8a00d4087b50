import math

import numpy as np
import pytest
from scipy import stats

import downside as ds
from downside.evaluation.seeds import (
    difference_interval,
    estimate_difference,
    estimate_mean,
    estimate_value,
    mean_interval,
    normal,
    student,
)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_students_t_is_that_of_the_tables(confidence, freedom):
    wanted = stats.t.ppf((1 + confidence) / 2, freedom)
    assert student(confidence, freedom) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_the_normal_quantile_is_that_of_the_tables(confidence):
    assert normal(confidence) == pytest.approx(stats.norm.ppf((1 + confidence) / 2))


def test_of_two_seeds_the_interval_is_stretched_from_the_mean_to_the_seeds():
    # Resampled means are 0, 1 and 2, so that the middle 95% are 0 to 2. Stretched from the mean, 1,
    # by sqrt(2) and by t / z = 12.706 / 1.960 with one degree of freedom.
    low, high = mean_interval(np.array([0.0, 2.0]), 0.95, 4000)
    reach = math.sqrt(2) * 12.706205 / 1.959964
    assert (low, high) == pytest.approx((1 - reach, 1 + reach), rel=1e-5)


def test_the_interval_of_a_difference_has_the_freedom_of_welch():
    # Variances of the means 9 and 0: all freedom is the first's, 2, and t = 4.302653.
    first, second = np.array([0.0, 0.0, 9.0]), np.array([1.0, 1.0])
    low, high = difference_interval(first, second, 0.95, 4000)
    # Resampled means of the first are at most 6 above and 3 below its own, 3.
    stretch = math.sqrt(3 / 2) * 4.302653 / 1.959964
    assert low == pytest.approx(2 - 3 * stretch, rel=1e-5)
    assert high == pytest.approx(2 + 6 * stretch, rel=1e-5)


def test_equal_seeds_have_an_interval_of_no_width():
    same = np.array([1.5, 1.5, 1.5])
    assert mean_interval(same, 0.95, 200) == (1.5, 1.5)
    assert difference_interval(same, same, 0.95, 200) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_few_seeds_are_covered_as_promised(seeds):
    draws = np.random.default_rng(seeds)
    ours, theirs = draws.normal(size=(2, 1500, seeds))
    means = [mean_interval(one, 0.95, 400) for one in ours]
    apart = [difference_interval(*both, 0.95, 400) for both in zip(ours, theirs, strict=True)]
    # 1,500 intervals: a share of 0.95 is measured with a standard error of 0.006.
    for estimates in (means, apart):
        assert np.mean([low <= 0 <= high for low, high in estimates]) > 0.925


# --- estimates --------------------------------------------------------------------------------


def returns(mean, seed=0):
    """Two returns around a mean, under the noise of a seed."""
    return ds.Evaluation(np.array([mean - 1.0, mean + 1.0]), seed=seed, aligned=True)


def test_the_symmetric_interval_is_students():
    # 1, 2 and 6: mean 3, standard deviation sqrt(7), t = 4.3027 with two degrees of freedom.
    estimate = estimate_mean([1.0, 2.0, 6.0], resamples=None)
    assert estimate.value == pytest.approx(3.0)
    assert estimate.high - 3.0 == pytest.approx(4.302653 * math.sqrt(7 / 3), rel=1e-6)
    assert estimate.low + estimate.high == pytest.approx(6.0)
    assert (estimate.values, estimate.seeds) == ((1.0, 2.0, 6.0), 3)


def test_the_resampled_interval_is_widened():
    # Resampled means are from 1 to 3; widened by sqrt(3 / 2) and by t / z = 4.302653 / 1.959964.
    estimate = estimate_mean([1.0, 2.0, 3.0])
    assert (estimate.low, estimate.high) == pytest.approx((2 - 2.68865, 2 + 2.68865), rel=1e-5)


def test_the_interval_is_never_narrower_than_the_errors_of_the_values():
    # Three values that agree by chance, each with standard error 0.3: 1.96 * 0.3 / sqrt(3).
    close = estimate_mean([1.0, 1.0, 1.0], [0.3, 0.3, 0.3])
    np.testing.assert_allclose(close[:3], [1.0, 1.0 - 0.3395, 1.0 + 0.3395], atol=1e-3)
    wide = estimate_mean([1.0, 2.0, 3.0])
    assert estimate_mean([1.0, 2.0, 3.0], [0.01, 0.01, 0.01]) == wide
    assert estimate_mean([1.0])[:3] == (1.0, 1.0, 1.0)


def test_the_interval_of_a_single_seed_is_over_its_episodes():
    evaluation = ds.Evaluation(np.random.default_rng(0).normal(size=10_000))
    estimate = estimate_value([evaluation], "mean")
    half = 1.959964 * evaluation.standard_error("mean")
    assert estimate.high - estimate.value == pytest.approx(half)
    assert estimate.value - estimate.low == pytest.approx(half)


def test_noise_that_the_seeds_share_cancels_in_a_difference():
    # Seeds differ by tens, the two agents by 1 in every seed.
    first = [returns(mean + 1.0) for mean in (0.0, 10.0, 40.0)]
    second = [returns(mean) for mean in (0.0, 10.0, 40.0)]
    estimate = estimate_difference(first, second, ds.Mean(), resamples=None)
    assert (estimate.low, estimate.high) == pytest.approx((1.0, 1.0))


def test_with_a_single_seed_episodes_under_the_same_noise_are_paired():
    noise = np.random.default_rng(1).normal(size=1000)
    first, second = (ds.Evaluation(noise + up, seed=3, aligned=True) for up in (0.5, 0.0))
    paired = estimate_difference([first], [second], ds.Mean())
    assert paired.high - paired.low == pytest.approx(0.0, abs=1e-9)
    other = ds.Evaluation(noise, seed=4, aligned=True)
    apart = estimate_difference([first], [other], ds.Mean())
    # Two means of a thousand: 2 * 1.96 * sqrt(2 / 1000) of a standard deviation of about 1.
    assert apart.high - apart.low == pytest.approx(0.175 * noise.std(), rel=0.01)
