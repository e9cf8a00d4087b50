import numpy as np
import pytest

import downside as ds
from downside.studies.frontiers import mixtures


def test_the_ends_are_the_measures_themselves_and_the_middle_is_half_of_each():
    made = mixtures("mean", "cvar(0.1)", 3)
    assert [weight for weight, _ in made] == [0.0, 0.5, 1.0]
    assert [str(risk) for _, risk in made] == ["mean", "0.5*mean + 0.5*cvar(0.1)", "cvar(0.1)"]


def test_thirds_have_a_short_text_that_reads_back_as_the_same_measure():
    for _, risk in mixtures("mean", "exponential(4)", 4):
        again = ds.parse(str(risk))
        assert len(str(risk)) < 40
        ranks = np.linspace(0, 1, 11)
        np.testing.assert_array_equal(risk.cumulative(ranks), again.cumulative(ranks))


def test_terms_that_both_ends_have_are_joined():
    # Half of (mean) and half of (0.5 mean + 0.5 cvar): three quarters of the mean.
    _, middle, _ = [risk for _, risk in mixtures("mean", "0.5*mean + 0.5*cvar(0.2)", 3)]
    assert str(middle) == "0.75*mean + 0.25*cvar(0.2)"


def test_any_two_measures_will_do():
    custom = ds.CustomSpectrum(lambda u: 2 * (1 - u))
    for first, last in [("cvar(0.5)", "cvar(0.1)"), ("dual_power(3)", "mean"), (custom, "mean")]:
        values = [float(risk([3.0, -1.0, 0.5])) for _, risk in mixtures(first, last, 5)]
        np.testing.assert_allclose(values, np.linspace(values[0], values[-1], 5), atol=1e-6)


def test_two_spectra_that_print_alike_are_two_measures():
    # 2 (1 - u) gives the worse of two outcomes 3/4 of the weight, 3 (1 - u)^2 gives it 7/8; half of
    # each is 13/16.
    first, second = (ds.CustomSpectrum(lambda u, k=k: (1 - u) ** k) for k in (1, 2))
    assert str(first) == str(second)
    _, middle, _ = [risk for _, risk in mixtures(first, second, 3)]
    np.testing.assert_allclose(middle([0.0, 1.0]), 3 / 16, atol=1e-6)


def test_one_measure_under_two_names_is_one_term():
    # Half of cvar(1), which is the mean, and half of (0.5 mean + 0.5 cvar).
    _, middle, _ = [risk for _, risk in mixtures("cvar(1)", "0.5*mean + 0.5*cvar(0.2)", 3)]
    assert str(middle) == "0.75*cvar(1) + 0.25*cvar(0.2)"


@pytest.mark.parametrize(
    ("start", "end"), [("mean", "mean"), ("mean", "cvar(1)"), ("0.5*mean + 0.5*mean", "mean")]
)
def test_one_measure_under_two_names_is_refused(start, end):
    with pytest.raises(ValueError, match="`start` and `end` must be two different measures"):
        mixtures(start, end, 5)


@pytest.mark.parametrize("points", [1, 0, -3, True])
def test_less_than_two_points_are_refused(points):
    with pytest.raises(ValueError, match="`points` must be a whole number >= 2"):
        mixtures("mean", "cvar(0.1)", points)
