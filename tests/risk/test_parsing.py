import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downside.risk import (
    CVaR,
    DualPower,
    Exponential,
    Mean,
    RiskSyntaxError,
    WeightedCVaR,
    as_risk,
    parse,
)

from . import strategies


@pytest.mark.parametrize(
    ("text", "risk"),
    [
        ("mean", Mean()),
        ("cvar(1.0)", Mean()),
        ("cvar(0.2)", CVaR(0.2)),
        ("CVaR(20%)", CVaR(0.2)),
        ("es(alpha=0.2)", CVaR(0.2)),
        ("cvar(2e-1)", CVaR(0.2)),
        ("cvar(.2)", CVaR(0.2)),
        ("exponential(4)", Exponential(4.0)),
        ("exp(4)", Exponential(4.0)),
        ("dual_power(2)", DualPower(2.0)),
        ("dual(2)", DualPower(2.0)),
        ("0.5*mean + 0.5*cvar(0.2)", 0.5 * Mean() + 0.5 * CVaR(0.2)),
        ("0.5*cvar(0.2)+0.5*cvar(1.0)", WeightedCVaR([0.2, 1.0], [0.5, 0.5])),
        (
            "0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0)",
            WeightedCVaR([0.1, 0.6, 1.0], [0.2, 0.3, 0.5]),
        ),
        ("(mean + cvar(0.2)) / 2", 0.5 * Mean() + 0.5 * CVaR(0.2)),
        ("50%*(0.5*mean + 0.5*cvar(0.2)) + 50%*exp(4)", None),
        ("  1 * cvar( 0.2 )\n", CVaR(0.2)),
        ("1/3*mean + 2/3*cvar(1/2)", Mean() / 3 + 2 / 3 * CVaR(0.5)),
        ("mean*0.5 + cvar(0.1)/2", 0.5 * Mean() + 0.5 * CVaR(0.1)),
        ("erm(4)", Exponential(4.0)),
    ],
)
def test_texts_and_what_they_mean(text, risk):
    got = parse(text)
    assert got == (risk if risk is not None else parse(str(got)))


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("0.5*mean + 0.5*cvra(0.2)", 15, "There is no risk measure 'cvra'. Did you mean 'cvar'?"),
        ("zzz", 0, "There is no risk measure 'zzz'. There are: mean,"),
        ("cvar(2)", 5, "`alpha` must be in (0, 1], got 2.0."),
        ("0.5*cvar(0.5) + 0.5*cvar(-0.2)", 25, "`alpha` must be in (0, 1], got -0.2."),
        ("1e999*mean", 0, "The number is too large."),
        ("mean/1e-320", 5, "must be non-negative, got inf"),
        ("cvar(alpha=0.2, alpha=0.3)", 16, "The argument 'alpha' is given twice."),
        ("cvar(\u0663)", 5, "Expected a number"),
        ("mean + cvar(0.2)", 0, "must sum to 1, got 2"),
        ("cvar", 0, "'cvar' takes alpha, e.g. cvar(0.2); got 0 argument(s)."),
        ("cvar()", 0, "'cvar' takes alpha, e.g. cvar(0.2); got 0 argument(s)."),
        ("cvar(0.2, 0.3)", 0, "got 2 argument(s)."),
        ("cvar(0.2, alpha=0.3)", 0, "got 2 argument(s)."),
        ("mean(1)", 0, "'mean' takes no arguments"),
        ("cvar(beta=0.2)", 5, "There is no argument 'beta' here; allowed: alpha."),
        ("cvar(alpha 0.2)", 11, "Expected '='."),
        ("cvar(0.2", 8, "Expected ',' or ')'."),
        ("cvar(", 5, "Expected a number, found the end."),
        ("(mean", 5, "Expected ')'."),
        ("mean)", 4, "Expected '+' or the end, found ')'."),
        ("0.5 mean", 4, "Expected '*' and a risk measure after 0.5."),
        ("0.5*", 4, "Expected the name of a risk measure, found the end."),
        ("0.5*mean +", 10, "Expected the name of a risk measure, found the end."),
        ("-0.5*mean", 0, "The weight of a risk measure must be non-negative."),
        ("mean/0", 5, "`divisor` must be above 0"),
        ("1/0*mean", 2, "The divisor must not be 0."),
        ("", 0, "The text of a risk measure is empty"),
        ("   ", 0, "The text of a risk measure is empty"),
        ("__import__('os')", 0, "There is no risk measure '__import__'."),
        ("cvar(0.2); mean", 9, "Expected '+' or the end, found ';'."),
        ("(" * 500 + "mean", 21, "Brackets may be nested at most 20 deep."),
    ],
)
def test_errors_point_at_the_offending_character(text, position, message):
    with pytest.raises(RiskSyntaxError) as caught:
        parse(text)
    explanation, shown, caret = str(caught.value).rsplit("\n", 2)
    assert message in explanation
    assert len(shown) - 2 >= 0
    assert caret.index("^") == 2 + min(position, 60)


def test_as_risk_takes_measures_and_texts():
    assert as_risk("cvar(0.2)") == as_risk(CVaR(0.2)) == CVaR(0.2)
    with pytest.raises(ValueError, match=r"must sum to 1, got 0\.5"):
        as_risk(0.5 * Mean())


@given(strategies.risks)
def test_every_measure_survives_being_written_down(risk):
    assert parse(str(risk)) == risk


@given(st.text(alphabet="0123456789.%()+*/- \tcvarmenxpdul_=,é\u202e<>", max_size=40))
def test_any_text_is_read_or_refused_in_words(text):
    with contextlib.suppress(RiskSyntaxError):  # any other error is a failure
        assert parse(text).cumulative(1.0) == pytest.approx(1.0)


def test_every_objective_of_the_papers_tables_is_read():
    # The columns of tables 2 and 3 of the paper.
    columns = json.loads((Path(__file__).parent / "paper_objectives.json").read_text())
    assert len({parse(column) for column in columns}) == 7
