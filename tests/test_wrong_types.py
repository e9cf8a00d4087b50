"""What a user sees who passes the wrong type, without the type checks that the tests switch on."""

import pytest

from .untyped import answers

CASES = {
    "ds.CVaR('a lot')": "`alpha` must be a real number, got 'a lot'",
    "ds.CVaR(None)": "`alpha` must be a real number, got None",
    "ds.CVaR(True)": "`alpha` must be a real number, got True",
    "'half' * ds.Mean()": "`weight` must be a real number, got 'half'",
    "ds.Mean() + 1": "unsupported operand",
    "ds.CustomSpectrum(3.0)": "`phi` must be a function of the rank or steps {level: height}",
    "ds.parse(0.2)": "`text` must be a string such as",
    "ds.conditional_risk(0.2, [1.0], [1.0])": "`risk` must be a risk measure or its text",
    "ds.CVaR(0.5)('abc')": "`values` must be an array of real numbers",
    "ds.CVaR(0.5)([1j])": "`values` must be an array of real numbers, got dtype complex128",
    "ds.Mean().quantile_weights(2.5)": "`count` must be a whole number of at least 1, got 2.5",
    "ds.Dial(0.1)": "`levels` must be two numbers, the lowest and the highest level, got 0.1",
    "ds.cvar": "module 'downside' has no attribute 'cvar'",
}


@pytest.fixture(scope="module")
def messages():
    return answers("import downside as ds", list(CASES))


@pytest.mark.parametrize("case", CASES)
def test_wrong_types_are_refused_in_words(messages, case):
    assert CASES[case] in messages[case]
