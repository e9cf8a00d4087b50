import pytest

from downside.risk import (
    CustomSpectrum,
    CVaR,
    DualPower,
    Exponential,
    Mean,
    WeightedCVaR,
    WeightedSum,
)


def test_a_weighted_sum_is_a_measure_however_it_is_written():
    written = 0.5 * Mean() + 0.5 * CVaR(0.2)
    assert written == WeightedCVaR([0.2, 1.0], [0.5, 0.5])
    assert written == CVaR(0.2) * 0.5 + Mean() * 0.5
    assert written == (Mean() + CVaR(0.2)) / 2
    assert written == sum([0.5 * CVaR(1.0), 0.3 * CVaR(0.2), 0.2 * CVaR(0.2)])
    assert hash(written) == hash(WeightedCVaR([0.2, 1.0], [0.5, 0.5]))


def test_measures_that_are_the_mean_are_equal_to_it():
    assert CVaR(1.0) == Mean()
    assert DualPower(1.0) == Mean()
    assert hash(CVaR(1.0)) == hash(DualPower(1.0)) == hash(Mean())


def test_nested_sums_are_flat_and_read_back():
    inner = WeightedSum(((0.5, Mean()), (0.5, CVaR(0.2))))
    nested = WeightedSum(((0.5, inner), (0.5, Mean())))
    assert repr(nested) == "0.25 * Mean() + 0.25 * CVaR(0.2) + 0.5 * Mean()"


def test_the_name_of_a_function_does_not_matter():
    def spectrum(u):
        return 1 - u

    assert CustomSpectrum(spectrum) == CustomSpectrum(lambda u: 1 - u)


def test_different_measures_differ():
    assert CVaR(1e-13) != CVaR(1e-14)
    assert CVaR(0.2) != CVaR(0.2001)
    assert CVaR(0.2) != CVaR(0.3)
    assert Exponential(2.0) != DualPower(2.0)
    assert 0.5 * Mean() + 0.5 * CVaR(0.2) != 0.4 * Mean() + 0.6 * CVaR(0.2)
    assert CVaR(0.2) != "cvar(0.2)"


def test_sums_of_sums_are_flat():
    inner = 0.5 * Mean() + 0.5 * CVaR(0.2)
    outer = 0.5 * inner + 0.5 * Exponential(4.0)
    assert repr(outer) == "0.25 * Mean() + 0.25 * CVaR(0.2) + 0.5 * Exponential(4.0)"
    assert outer.atoms[0] == (0.2, 0.25)


def test_a_term_of_weight_zero_does_not_count():
    assert 1.0 * CVaR(0.5) + 0.0 * Mean() == CVaR(0.5)
    assert not (1.0 * CVaR(0.5) + 0.0 * Mean()).strictly_monotone


def test_an_unfinished_sum_says_so_when_it_is_used():
    half = 0.5 * Mean()
    with pytest.raises(ValueError, match=r"must sum to 1, got 0\.5 in 0\.5\*mean"):
        half([1.0, 2.0])
    with pytest.raises(ValueError, match="must sum to 1, got 2 in"):
        (Mean() + CVaR(0.5)).spectrum(0.5)


def test_weights_must_be_non_negative():
    with pytest.raises(ValueError, match=r"must be non-negative, got -0\.5 for mean"):
        _ = -0.5 * Mean()
