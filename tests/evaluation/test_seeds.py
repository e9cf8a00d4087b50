import math

import numpy as np
import pytest
from scipy import stats

from downside.evaluation.seeds import difference_interval, mean_interval, normal, student


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


@pytest.mark.parametrize("seeds", [3, 5])
def test_few_seeds_are_covered_as_promised(seeds):
    draws = np.random.default_rng(seeds)
    ours, theirs = draws.normal(size=(2, 1500, seeds))
    means = [mean_interval(one, 0.95, 400) for one in ours]
    apart = [difference_interval(*both, 0.95, 400) for both in zip(ours, theirs, strict=True)]
    # 1,500 intervals: a share of 0.95 is measured with a standard error of 0.006.
    for found in (means, apart):
        assert np.mean([low <= 0 <= high for low, high in found]) > 0.925
