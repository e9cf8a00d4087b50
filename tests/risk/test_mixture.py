import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.risk import CVaR, CVaRMixture, Distribution, DualPower, Exponential, Mean, parse

MIXTURE = parse("0.3*cvar(0.25) + 0.5*cvar(0.6) + 0.2*mean")


def some_returns(count):
    values = 3.0 * np.random.default_rng(0).normal(size=count) + 1.0
    return jnp.asarray(np.sort(values))


def test_a_table_of_two_parts_by_hand():
    # Worst 40% of five: (-3 + 0) / 2 = -1.5; the mean is 2. Half of each: 0.25.
    table = CVaRMixture.of(parse("0.5*mean + 0.5*cvar(0.4)"))
    np.testing.assert_allclose(table.levels, [0.4])
    np.testing.assert_allclose(table.masses, [0.5])
    np.testing.assert_allclose(table.drops, [1.25])
    np.testing.assert_allclose(table.linear, 0.5)
    np.testing.assert_allclose(table.value(jnp.array([-3.0, 0.0, 1.0, 2.0, 10.0])), 0.25, rtol=1e-6)


def test_the_atom_that_straddles_a_level_is_split():
    # Worst 37.5% of four: all of -10, half of 0 -> -2.5 / 0.375.
    value = CVaRMixture.of(CVaR(0.375)).value(jnp.array([-10.0, 0.0, 5.0, 20.0]))
    np.testing.assert_allclose(value, -20 / 3, rtol=1e-6)


@pytest.mark.parametrize("risk", [Mean(), CVaR(0.13), CVaR(1.0), MIXTURE], ids=str)
@pytest.mark.parametrize("count", [1, 30])
def test_a_sum_of_cvars_is_exact(risk, count):
    returns = some_returns(count)
    expected = risk(np.asarray(returns, float))
    np.testing.assert_allclose(CVaRMixture.of(risk).value(returns), expected, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "risk",
    [DualPower(3.0), parse("0.4*exponential(4) + 0.3*cvar(0.2) + 0.3*mean")],
    ids=str,
)
def test_a_dense_spectrum_is_close(risk):
    # 64 cells of 1000 returns with a standard deviation of 3.
    returns = some_returns(1000)
    expected = risk(np.asarray(returns, float))
    np.testing.assert_allclose(CVaRMixture.of(risk).value(returns), expected, atol=5e-3)


def test_more_cells_are_closer():
    returns, risk = some_returns(1000), Exponential(8.0)
    exact = risk(np.asarray(returns, float))
    errors = [abs(CVaRMixture.of(risk, cells).value(returns) - exact) for cells in (4, 64)]
    assert errors[1] < 0.1 * errors[0]


@pytest.mark.slow
@pytest.mark.parametrize("risk", [Mean(), MIXTURE], ids=str)
def test_padding_changes_nothing(risk):
    table, returns = CVaRMixture.of(risk), some_returns(30)
    padded = table.padded(64)
    assert padded.levels.shape == padded.masses.shape == padded.drops.shape == (64,)
    np.testing.assert_allclose(padded.value(returns), table.value(returns), rtol=1e-6)
    z = jnp.linspace(-5.0, 7.0, 31)
    h, padded_h = (one.utility(one.quantiles(returns)) for one in (table, padded))
    np.testing.assert_allclose(padded_h(z), h(z), rtol=1e-5, atol=1e-5)


def test_padding_cannot_take_levels_away():
    with pytest.raises(ValueError, match="`count` must be at least 2, the levels there are; got 1"):
        CVaRMixture.of(MIXTURE).padded(1)


@pytest.mark.parametrize(("level", "index"), [(0.3, 3), (0.29, 2), (0.7, 7), (0.05, 0), (0.999, 9)])
def test_a_level_on_a_grid_point_is_the_next_return_up(level, index):
    # Appendix G: of ten returns the one with the index floor(10 alpha); 0.3 of ten is three.
    assert CVaRMixture.of(CVaR(level)).quantiles(jnp.arange(10.0)) == index


@pytest.mark.parametrize("risk", [Mean(), MIXTURE, Exponential(4.0)], ids=str)
def test_the_expectation_of_its_utility_is_the_value(risk):
    table, returns = CVaRMixture.of(risk), some_returns(30)
    utility = table.utility(table.quantiles(returns))
    np.testing.assert_allclose(utility.expectation(returns), table.value(returns), rtol=1e-5)


def test_its_utility_is_that_of_the_measure():
    returns = some_returns(30)
    table = CVaRMixture.of(MIXTURE)
    z = np.linspace(-6.0, 8.0, 31)
    derived, given = (
        table.utility(table.quantiles(returns)),
        MIXTURE.utility(np.asarray(returns, float)),
    )
    np.testing.assert_allclose(derived(jnp.asarray(z)), given(z), rtol=1e-5, atol=1e-5)


def test_no_other_knots_give_a_higher_expectation():
    # E[h] is a lower bound of the measure for any knots: what the outer step climbs.
    table, returns = CVaRMixture.of(MIXTURE), some_returns(30)
    best = float(MIXTURE(Distribution(np.asarray(returns, float))))
    for shift in (-1.0, 0.5, 3.0):
        utility = table.utility(table.quantiles(returns) + shift)
        assert float(utility.expectation(returns)) <= best + 1e-5


@pytest.mark.slow
def test_measures_of_one_length_are_mapped_over_in_one_compiled_program():
    returns = some_returns(30)
    risks = [MIXTURE, Exponential(4.0)]
    tables = [CVaRMixture.of(risk).padded(64) for risk in risks]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tables)
    values = jax.jit(jax.vmap(lambda table: table.value(returns)))(stacked)
    np.testing.assert_allclose(values, [table.value(returns) for table in tables], rtol=1e-5)
    traced = jax.jit(lambda table: table.utility(table.quantiles(returns)).expectation(returns))
    np.testing.assert_allclose(traced(tables[0]), values[0], rtol=1e-5)
