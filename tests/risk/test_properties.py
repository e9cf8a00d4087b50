"""What holds for every spectral risk measure and every discrete distribution."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downside.risk import CVaR, Distribution, Mean

from . import strategies

both = st.tuples(strategies.risks, strategies.discrete())


def close(got, expected, values):
    np.testing.assert_allclose(got, expected, atol=1e-9 * (1 + np.abs(values).max()), rtol=1e-9)


@given(both)
def test_the_spectral_the_mixture_and_the_utility_form_agree(drawn):
    risk, (values, weights) = drawn
    distribution = Distribution(values, weights)
    direct = risk(values, weights)
    mixture = risk.mixture(np.append(0.0, distribution.cumulative))
    close(mixture.weights.sum(), 1.0, np.ones(1))
    close((mixture.weights * distribution.tail_mean(mixture.levels)).sum(), direct, values)
    close(risk.utility(distribution).expectation(values, weights), direct, values)


@pytest.mark.slow
@given(both)
def test_the_conjugate_term_of_the_utility_vanishes(drawn):
    risk, (values, weights) = drawn
    utility = risk.utility(Distribution(values, weights))
    np.testing.assert_allclose(
        utility.conjugate_integral(risk), 0.0, atol=1e-6 * (1 + np.abs(values).max())
    )


@pytest.mark.slow
@given(strategies.risks, strategies.discrete(), strategies.discrete())
def test_no_other_utility_of_the_family_gives_more(risk, first, other):
    # J(Z, h) = E[h(Z)] + conjugate term, for h made from another distribution (appendix A).
    values, weights = first
    utility = risk.utility(Distribution(*other))
    bound = utility.expectation(values, weights) + utility.conjugate_integral(risk)
    scale = 1 + np.abs(values).max() + np.abs(other[0]).max()
    assert bound <= risk(values, weights) + 1e-6 * scale


@given(strategies.weighted_cvars(), strategies.discrete(), st.data())
def test_no_other_knots_give_more(risk, drawn, data):
    values, weights = drawn
    count = sum(level < 1 for level, _ in risk.atoms)
    knots = np.array(data.draw(st.lists(st.floats(-25, 25), min_size=count, max_size=count)))
    got = risk.utility_at(knots).expectation(values, weights)
    assert got <= risk(values, weights) + 1e-9 * (1 + np.abs(values).max() + 25)


@given(both, st.lists(st.floats(0, 5), min_size=8, max_size=8))
def test_better_outcomes_are_never_worth_less(drawn, gains):
    risk, (values, weights) = drawn
    better = risk(values + np.array(gains[: len(values)]), weights)
    assert better >= risk(values, weights) - 1e-9


@given(both, st.floats(-10, 10), st.floats(0.01, 10))
def test_it_follows_shifts_and_scales(drawn, shift, scale):
    risk, (values, weights) = drawn
    moved = risk(shift + scale * values, weights)
    close(moved, shift + scale * risk(values, weights), np.append(scale * values, shift))


@given(strategies.risks, st.data())
def test_diversification_never_hurts(risk, data):
    # ρ(X + Y) >= ρ(X) + ρ(Y) for two returns on the same states of the world.
    size = data.draw(st.integers(1, 6))
    numbers = st.lists(st.floats(-10, 10), min_size=size, max_size=size)
    x, y = np.array(data.draw(numbers)), np.array(data.draw(numbers))
    weights = data.draw(strategies.shares(size))
    assert risk(x + y, weights) >= risk(x, weights) + risk(y, weights) - 1e-8


@given(both)
def test_it_lies_between_the_worst_outcome_and_the_mean(drawn):
    risk, (values, weights) = drawn
    slack = 1e-9 * (1 + np.abs(values).max())
    assert values.min() - slack <= risk(values, weights) <= (values * weights).sum() + slack


@given(both)
def test_uniform_weights_are_no_weights(drawn):
    risk, (values, _) = drawn
    close(risk(values, np.full(len(values), 1 / len(values))), risk(values), values)


@given(both)
def test_splitting_an_atom_changes_nothing(drawn):
    risk, (values, weights) = drawn
    split = risk(np.append(values, values[0]), np.append(weights, 0.0) + _moved(weights))
    close(split, risk(values, weights), values)


def _moved(weights):
    """Takes a third of the first atom to a new one at the end."""
    change = np.zeros(len(weights) + 1)
    change[0], change[-1] = -weights[0] / 3, weights[0] / 3
    return change


@given(strategies.discrete())
def test_cvar_at_one_is_the_mean(drawn):
    values, weights = drawn
    assert CVaR(1.0) == Mean()
    close(CVaR(1.0)(values, weights), Mean()(values, weights), values)
    close(Mean()(values, weights), (values * weights).sum(), values)


@given(strategies.discrete(), st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_a_worse_share_is_worth_less(drawn, first, other):
    values, weights = drawn
    low, high = min(first, other), max(first, other)
    assert CVaR(low)(values, weights) <= CVaR(high)(values, weights) + 1e-9
