"""The narrative, for people who have not read the paper."""

import numpy as np
import pytest

import downside as ds
from downside.explanation import narrative


def risk_at(risk, later, s=0.0):
    start = np.arange(1.0, 101.0)
    return ds.conditional_risk(risk, ds.Distribution(start), ds.Distribution(later), s=s)


def development(before, now, **changes):
    given = {"step": 3, "expected_before": 50.0, "expected": 80.0, "spread": 29.0, "exact": True}
    return narrative.development(before, now, **{**given, **changes})


def test_a_gain_makes_only_the_extreme_tail_matter():
    before = risk_at("cvar(0.5)", np.arange(1.0, 101.0))
    now = risk_at(
        "cvar(0.5)", np.arange(43.0, 143.0)
    )  # 43, ..., 50: 8 of 100 are among the worst 50
    assert development(before, now) == (
        "Step 3 went much better than expected: the expected total went from 50.0 to 80.0. Now the "
        "worst 50% seen from the start has become the worst 8% seen from here: only the extreme "
        "tail still matters, so it guards against the rare bad end."
    )


def test_a_loss_makes_more_outcomes_count():
    before = risk_at("cvar(0.5)", np.arange(1.0, 101.0))
    now = risk_at("cvar(0.5)", np.arange(-29.0, 71.0))
    text = development(before, now, expected=30.0)
    assert "went much worse than expected" in text
    assert "has become the worst 80% seen from here" in text
    assert "readier to take risks that pay" in text
    hopeless = risk_at("cvar(0.5)", np.arange(-100.0, 0.0))
    text = development(before, hopeless, expected=-50.0)
    assert "every outcome seen from here lies in the worst 50% seen from the start" in text
    assert "no better than maximise the average" in text


def test_what_is_settled_is_said_to_be_settled():
    before = risk_at("cvar(0.5)", np.arange(1.0, 101.0))
    safe = risk_at("cvar(0.5)", np.arange(60.0, 70.0))
    assert "the measure is settled" in development(before, safe)
    assert "what it does matters little" in development(before, safe, exact=False)


def test_with_the_mean_in_the_measure_good_news_makes_it_bolder():
    risk = "0.5*mean + 0.5*cvar(0.3)"
    before, now = risk_at(risk, np.arange(1.0, 101.0)), risk_at(risk, np.arange(21.0, 121.0))
    text = development(before, now)
    # ξ of the tail falls from 1 to 1/3: a quarter of the weight is left on the worst 10%.
    assert "25% on the worst 10% of outcomes and 75% on the average of all outcomes" in text
    assert "moved further away" in text
    assert "readier to take risks" in text


def test_parts_that_have_become_the_same_are_named_once():
    # All that can still come is among the worst half: half of the measure and the other half agree.
    hopeless = risk_at("0.5*mean + 0.5*cvar(0.5)", np.arange(-100.0, 0.0))
    assert narrative.aim(hopeless) == "the average of all outcomes"


def test_small_news_are_called_small():
    same = risk_at("cvar(0.5)", np.arange(1.0, 101.0))
    text = development(same, same, expected=50.1)
    assert text.startswith("Step 3 brought little news")
    assert text.endswith("its attitude is about what it was.")


def test_the_opening_says_where_the_line_is_and_the_ending_where_it_ended():
    start = risk_at("cvar(0.5)", np.arange(1.0, 101.0))
    text = narrative.opening(start, 50.5)
    assert "cares about the worst 50% of outcomes" in text
    assert "if the total comes to less than 50.0" in text
    good = risk_at("cvar(0.5)", np.zeros(1), s=80.0)
    bad = risk_at("cvar(0.5)", np.zeros(1), s=20.0)
    assert narrative.ending(80.0, good).endswith("not among the worst 50%.")
    assert narrative.ending(20.0, bad).endswith("it is among the worst 50%.")


def test_many_levels_are_said_as_a_blend():
    assert narrative.aim(risk_at("exponential(4)", np.arange(1.0, 101.0))).startswith(
        "a blend of the worst"
    )


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"), (0.0004, "less than 0.1%"), (0.004, "0.4%"), (0.08, "8%"), (0.083, "8.3%"),
        (0.168, "17%"), (1.0, "100%"),
    ],
)  # fmt: skip
def test_shares_read_well(share, text):
    assert narrative.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0001, "-0.0001"),
        (1e-9, "0"),
        (0.5767, "0.577"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
    ],
)
def test_numbers_read_well(value, text):
    assert narrative.number(value) == text
