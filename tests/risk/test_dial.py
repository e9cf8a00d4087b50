"""The family of measures that a dial holds."""

import pytest

import downside as ds
from downside.risk import Member, as_dial


def test_the_slope_ratio_is_that_of_h_above_and_below_its_bend():
    # h of 0.5 mean + 0.5 cvar(0.2) has slope 0.5 above its bend and 0.5 + 0.5/0.2 = 3 below.
    assert Member(0.2, 0.5).ratio == pytest.approx(0.5 / 3)
    assert Member(0.2, 0.0).ratio == 0.0
    assert Member(0.2, 1.0).ratio == 1.0


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ("mean", Member(1.0, 1.0)),
        ("cvar(1)", Member(1.0, 1.0)),
        ("cvar(0.05)", Member(0.05, 0.0)),
        ("0.25*mean + 0.75*cvar(0.1)", Member(0.1, 0.25)),
        ("0.5*cvar(0.1) + 0.5*cvar(0.1)", Member(0.1, 0.0)),
    ],
)
def test_a_member_has_a_level_and_a_share_of_the_mean(text, member):
    dial = ds.Dial()
    assert dial.member(text) == member
    assert dial.member(text).risk == ds.parse(text)
    assert text in dial


def test_a_measure_outside_is_an_error_that_names_the_nearest_one():
    dial = ds.Dial((0.05, 0.5))
    with pytest.raises(ValueError, match=r"0\.01.*level is not in \[0\.05, 0\.5\].*cvar\(0\.05\)"):
        dial.member("cvar(0.01)")
    with pytest.raises(ValueError, match=r"no mixture of the mean and one CVaR.*nearest one is"):
        dial.member("0.5*cvar(0.1) + 0.5*cvar(0.3)")
    assert "exponential(4)" not in dial


def test_the_nearest_member_has_the_nearest_spectrum():
    # Of 0.9 cvar(0.2) + 0.1 cvar(0.5) what counts most is cvar(0.2); and a member is its own.
    dial = ds.Dial()
    level = dial.member(dial.nearest("0.9*cvar(0.2) + 0.1*cvar(0.5)")).level
    assert level == pytest.approx(0.2, abs=0.01)
    assert dial.nearest("0.3*mean + 0.7*cvar(0.1)") == ds.parse("0.3*mean + 0.7*cvar(0.1)")


def test_a_dial_is_read_from_its_text():
    assert as_dial("dial") == ds.Dial()
    assert as_dial(" Dial( 0.05 , 0.5 )") == ds.Dial((0.05, 0.5))
    assert as_dial(str(ds.Dial((0.05, 0.5)))) == ds.Dial((0.05, 0.5))
    assert as_dial("cvar(0.1)") is None
    assert as_dial(ds.CVaR(0.1)) is None


def test_wrong_levels_are_named():
    with pytest.raises(ValueError, match=r"`levels` must be two numbers 0 < low < high <= 1"):
        ds.Dial((0.5, 0.1))
    with pytest.raises(TypeError, match=r"`levels` must be two numbers"):
        ds.Dial((0.1, 0.2, 0.3))
    with pytest.raises(
        ValueError, match=r"'dial\(low, high\)' with two levels, got 'dial\(a, b\)'"
    ):
        as_dial("dial(a, b)")
    with pytest.raises(ValueError, match=r"`risk` must be a measure of the dial"):
        ds.Dial((0.1, 0.5), start="cvar(0.9)")
