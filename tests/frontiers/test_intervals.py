import math

import numpy as np
import pytest

import downside as ds
from downside.frontiers.intervals import difference, valued

from .by_hand import evaluation


def test_the_interval_over_seeds_is_students():
    # Means 1, 2 and 6: mean 3, standard deviation sqrt(7), t = 4.3027 with two degrees of freedom.
    found = valued([evaluation(mean, 0.0) for mean in (1.0, 2.0, 6.0)], ds.Mean(), 0.95)
    assert found.value == pytest.approx(3.0)
    assert found.high - 3.0 == pytest.approx(4.302653 * math.sqrt(7 / 3), rel=1e-6)
    assert found.low + found.high == pytest.approx(6.0)
    assert found.seeds == pytest.approx((1.0, 2.0, 6.0))


def test_with_one_seed_the_interval_is_over_its_episodes():
    returns = np.random.default_rng(0).normal(size=10_000)
    found = valued([ds.Evaluation(returns)], ds.Mean(), 0.95)
    assert found.high - found.value == pytest.approx(1.96 * returns.std() / 100, rel=1e-3)


def both(first, second, confidence=0.95):
    ours, theirs = (valued(side, ds.Mean(), confidence) for side in (first, second))
    return difference((ours, first), (theirs, second), ds.Mean(), confidence)


def test_what_the_seeds_share_drops_out_of_a_difference():
    # Seeds differ by tens, the two points by 1 in every seed.
    first = [evaluation(mean + 1.0, 0.0) for mean in (0.0, 10.0, 40.0)]
    second = [evaluation(mean, 0.0) for mean in (0.0, 10.0, 40.0)]
    found = both(first, second)
    assert found.low == pytest.approx(1.0)
    assert found.high == pytest.approx(1.0)


def test_with_one_seed_episodes_under_the_same_noise_are_paired():
    noise = np.random.default_rng(1).normal(size=1000)
    first, second = (ds.Evaluation(noise + up, seed=3, aligned=True) for up in (0.5, 0.0))
    paired = both([first], [second])
    assert paired.high - paired.low == pytest.approx(0.0, abs=1e-9)
    apart = both([first], [ds.Evaluation(noise, seed=4, aligned=True)])
    # Two means of a thousand: 2 * 1.96 * sqrt(2 / 1000) of a standard deviation of about 1.
    assert apart.high - apart.low == pytest.approx(0.175 * noise.std(), rel=0.01)
