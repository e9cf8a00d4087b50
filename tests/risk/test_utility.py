import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from downside.risk import CVaR, Distribution, Exponential, Mean, Utility, parse

from . import strategies


def double_sum(utility, z):
    """h as the paper writes it: a sum over all knots for every point."""
    falls = np.minimum(z[..., None] - np.asarray(utility.knots), 0.0) * np.asarray(utility.drops)
    return utility.offset + utility.linear * z + falls.sum(axis=-1)


def test_cvar_has_one_bend_at_its_quantile():
    # CVaR(0.5) of 1, 2, 3, 4 equally likely: F^-1(0.5) = 2; h(z) = 2 + 2 min(z - 2, 0).
    utility = CVaR(0.5).utility(Distribution([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(utility.knots, [2.0])
    np.testing.assert_allclose(utility([0.0, 1.0, 2.0, 7.0]), [-2, 0, 2, 2])
    np.testing.assert_allclose(utility.slope([1.0, 2.0, 2.1]), [2, 2, 0])


def test_quantile_representation_bends_at_the_next_quantile_up():
    # Appendix D: CVaR(0.5) with N = 4 puts its weight on j = floor(0.5 * 4) + 1 = 3.
    np.testing.assert_allclose(CVaR(0.5).utility(np.array([1.0, 2.0, 3.0, 4.0])).knots, [3.0])


def test_the_mean_is_a_line_without_bends():
    utility = Mean().utility(np.array([1.0, 2.0]))
    assert utility.knots.shape == (0,)
    np.testing.assert_allclose(utility([-5.0, 50.0]), [-5, 50])


def test_the_share_of_the_mean_stays_linear_above_every_return_seen():
    # 0.5 mean + 0.5 CVaR(0.5) of {0, 2}: knot 0; h(z) = 0.5 z + min(z, 0).
    utility = parse("0.5*mean + 0.5*cvar(0.5)").utility(Distribution([0.0, 2.0]))
    np.testing.assert_allclose(utility([-1.0, 2.0, 100.0]), [-1.5, 1, 50])


def test_a_dense_spectrum_bends_at_every_value_by_the_fall_of_the_spectrum():
    risk = Exponential(4.0)
    utility = risk.utility(Distribution([3.0, -1.0, 5.0], [0.5, 0.2, 0.3]))
    phi = risk.spectrum([0.0, 0.2, 0.7, 1.0])
    np.testing.assert_allclose(utility.knots, [-1, 3, 5])
    np.testing.assert_allclose(utility.drops, phi[:-1] - phi[1:])
    np.testing.assert_allclose(utility.linear, phi[-1])
    np.testing.assert_allclose(utility.slope([-2.0, 0.0, 4.0, 6.0]), phi)


def test_the_conjugate_is_finite_on_the_slopes_alone():
    # h(z) = 2 + 2 min(z - 2, 0): the conjugate is inf_z (y z - h(z)) = 2 y - 2 for y in [0, 2].
    utility = CVaR(0.5).utility(Distribution([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(utility.conjugate([0.0, 0.5, 2.0]), [-2, -1, 2])
    np.testing.assert_array_equal(utility.conjugate([-0.1, 2.1]), [-np.inf, -np.inf])
    # int_0^1 conjugate(phi(u)) du = 0.5 * conjugate(2) + 0.5 * conjugate(0) = 0.
    np.testing.assert_allclose(utility.conjugate_integral(CVaR(0.5)), 0.0, atol=1e-12)
    assert utility.conjugate_integral(CVaR(0.25)) == -np.inf  # its spectrum reaches 4 > 2


@pytest.mark.slow
@settings(max_examples=25)
@given(strategies.risks, st.sampled_from([1, 20, 60]), st.integers(0, 2**32 - 1))
def test_the_lookup_is_the_double_sum(risk, count, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=count) * rng.choice([1e-3, 1.0, 50.0])
    if count > 3:
        values[1:3] = values[0]  # ties
    utility = risk.utility(jnp.asarray(values))
    z = np.concatenate([values, 3 * rng.normal(size=50), [-1e4, 1e4]])
    expected = double_sum(jax.tree.map(lambda leaf: np.asarray(leaf, float), utility), z)
    got = np.asarray(utility(jnp.asarray(z)))
    # Single precision: the terms of h have the size of φ(0) times the argument.
    scale = risk.spectrum_at_zero * (np.abs(z) + np.abs(values).max() + 1e-30)
    np.testing.assert_array_less(np.abs(got - expected), 2e-5 * scale)
    np.testing.assert_allclose(
        risk.utility(values)(z), double_sum(risk.utility(values), z), rtol=1e-9, atol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 1e-30, 1.0])
def test_the_lookup_survives_knots_that_coincide_or_cluster(spread):
    knots = jnp.sort(jnp.concatenate([jnp.full(30, 2.0), 2.0 + spread * jnp.arange(30)]))
    utility = Utility(knots, jnp.full(60, 0.1), linear=0.5)
    z = np.array([-100.0, 1.9, 2.0, 2.5, 30.0, 1e6])
    np.testing.assert_allclose(utility(jnp.asarray(z)), double_sum(utility, z), rtol=1e-5)


@pytest.mark.slow
def test_the_lookup_halves_as_often_as_a_crowded_cell_needs():
    # One knot far away puts all the others into one of the cells.
    knots = np.append(np.linspace(0.0, 1.0, 40), 1e5)
    utility = Utility(jnp.asarray(knots), jnp.full(41, 0.1), linear=0.5)
    z = np.linspace(-0.1, 1.1, 97)
    np.testing.assert_allclose(
        jax.vmap(jax.grad(utility))(jnp.asarray(z)), utility.slope(z), rtol=1e-5
    )
    below = np.asarray(utility(jnp.asarray(z))) - float(utility(jnp.asarray(0.0)))
    exact = double_sum(utility, z) - double_sum(utility, np.zeros(1))
    np.testing.assert_allclose(below, exact, atol=2e-3)  # h is -1e4 here, in single precision


@pytest.mark.slow
def test_a_utility_made_with_numpy_takes_jax_arrays_without_unrolling_its_knots():
    utility = Exponential(4.0).utility(np.random.default_rng(0).normal(size=400))
    z = np.linspace(-3, 3, 50)
    traced = jax.make_jaxpr(utility)(jnp.asarray(z))
    assert len(traced.eqns) < 200
    np.testing.assert_allclose(utility(jnp.asarray(z)), utility(z), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 50])
def test_it_lives_in_compiled_loops_with_changing_knots(count):
    risk = Exponential(4.0)

    @jax.jit
    def run(theta):
        def step(utility, shift):
            return risk.utility(theta + shift), utility.expectation(theta)

        _, out = jax.lax.scan(step, risk.utility(theta), jnp.arange(3.0))
        return out

    theta = jax.random.normal(jax.random.key(0), (count,))
    plain = np.asarray(theta, float)
    expected = [risk.utility(plain + shift).expectation(plain) for shift in (0, 0, 1)]
    np.testing.assert_allclose(run(theta), expected, atol=1e-5)


@pytest.mark.slow
def test_a_batch_of_utilities_is_mapped_over():
    theta = jax.random.normal(jax.random.key(1), (5, 40))
    risk = Exponential(4.0)
    values = jax.vmap(lambda row: risk.utility(row).expectation(row))(theta)
    np.testing.assert_allclose(values, risk(theta), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("risk", [CVaR(0.3), Exponential(4.0)], ids=str)
def test_its_gradient_is_its_slope(risk):
    utility = risk.utility(jax.random.normal(jax.random.key(2), (50,)))
    z = jax.random.normal(jax.random.key(3), (20,))
    gradient = jax.vmap(jax.grad(utility))(z)
    np.testing.assert_allclose(gradient, utility.slope(z), atol=1e-5)


def test_expectation_with_weights_and_leading_axes():
    utility = CVaR(0.5).utility(np.array([1.0, 3.0]))
    z = np.array([[0.0, 5.0], [2.0, 4.0]])
    np.testing.assert_allclose(utility.expectation(z), utility(z).mean(axis=-1))
    weights = np.array([0.25, 0.75])
    np.testing.assert_allclose(utility.expectation(z, weights), utility(z) @ weights)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="`drops` must be non-negative"):
        Utility([0.0], [-1.0])
    with pytest.raises(ValueError, match="`knots` must be finite"):
        Utility([np.nan], [1.0])
    with pytest.raises(ValueError, match="`linear` must be one number of at least 0"):
        Utility([0.0], [1.0], linear=-1.0)
    with pytest.raises(ValueError, match="`weights` must sum to 1"):
        Utility([0.0], [1.0]).expectation([1.0, 2.0], [0.9, 0.9])
    with pytest.raises(ValueError, match=r"one length, got shapes \(2,\) and \(1,\)"):
        Utility([0.0, 1.0], [1.0])
    with pytest.raises(ValueError, match=r"one entry for each level of cvar\(0\.5\) below 1"):
        CVaR(0.5).utility_at([0.0, 1.0])
    with pytest.raises(ValueError, match="not a finite sum of CVaRs"):
        Exponential(4.0).utility_at([0.0])
    with pytest.raises(ValueError, match=r"`start` must be one distribution, got a batch"):
        CVaR(0.5).utility(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="`edges` is needed to write exponential"):
        Exponential(4.0).mixture()
