"""Long texts of risk measures are read in a time that grows with their length."""

import time

import numpy as np
import pytest

import downside as ds


@pytest.mark.slow
def test_a_sum_of_two_thousand_terms_is_read_in_a_moment():
    # Levels 1/2000, ..., 1 with equal weights. At level u all CVaRs above u count: the cumulated
    # spectrum at 1 is 1, and at u = 1/2000 it is the mean over i of min(1, 1/i), H(2000)/2000.
    text = " + ".join(f"0.0005*cvar({i / 2000!r})" for i in range(1, 2001))
    begin = time.process_time()
    risk = ds.parse(text)
    assert time.process_time() - begin < 5.0  # it took 14 s when it grew with the square
    harmonic = sum(1 / i for i in range(1, 2001))
    np.testing.assert_allclose(float(risk.cumulative(1 / 2000)), harmonic / 2000, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mean + " * 20_000 + "mean", r"`text` must have at most 100,000 characters, got 140,004"),
        ("+".join(["mean"] * 2_501), r"may name at most 2,500 measures.*ds\.WeightedCVaR"),
    ],
)
def test_a_text_without_end_is_refused(text, message):
    with pytest.raises(ds.RiskSyntaxError, match=message):
        ds.parse(text)


def test_terms_of_weight_zero_are_left_out_of_a_sum():
    assert str(ds.parse("0*mean + 0.25*cvar(0.5) + 0.75*cvar(0.1)")) == str(
        ds.parse("0.25*cvar(0.5) + 0.75*cvar(0.1)")
    )
