import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from downside.risk import (
    CustomSpectrum,
    CVaR,
    Distribution,
    DualPower,
    Exponential,
    Mean,
    WeightedCVaR,
    entries,
    parse,
)


def falling_line(u):
    return 2 * (1 - u)


EXAMPLES = [
    *(parse(entry.example) for entry in entries()),
    WeightedCVaR([0.2, 1.0], [0.5, 0.5]),
    CustomSpectrum({0.2: 3.0, 1.0: 0.5}),
    CustomSpectrum(falling_line),
    0.3 * Exponential(4.0) + 0.5 * CVaR(0.3) + 0.2 * Mean(),
    parse("0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0)"),
]


@pytest.fixture(params=EXAMPLES, ids=str)
def risk(request):
    return request.param


class TestContract:
    """What every measure must do; a new one joins by being registered."""

    def test_spectrum_is_non_negative_and_never_increases(self, risk):
        phi = risk.spectrum(np.linspace(0, 1, 1001))
        assert np.all(phi >= 0)
        assert np.all(np.diff(phi) <= 1e-12)

    def test_cumulative_is_the_integral_of_the_spectrum(self, risk):
        jumps = [level for level, _ in risk.atoms if level < 1]
        for u in (0.05, 0.2, 0.37, 0.8, 1.0):
            area, _ = integrate.quad(
                risk.spectrum, 0, u, points=[j for j in jumps if j < u] or None
            )
            np.testing.assert_allclose(risk.cumulative(u), area, atol=1e-9)
        assert risk.cumulative(0.0) == 0.0
        np.testing.assert_allclose(risk.cumulative(1.0), 1.0, rtol=1e-12)

    def test_ends_of_the_spectrum_are_what_they_say(self, risk):
        assert risk.spectrum_at_zero == risk.spectrum(0.0)
        assert risk.spectrum_at_one == risk.spectrum(1.0)
        at_one = sum(weight for level, weight in risk.atoms if level == 1.0)
        np.testing.assert_allclose(risk.spectrum_at_one, at_one, atol=1e-12)

    def test_support_is_where_the_spectrum_ends(self, risk):
        assert risk.spectrum(max(risk.support - 1e-6, 0.0)) > 0
        if risk.support < 1:
            assert risk.spectrum(risk.support + 1e-6) == 0

    def test_strictly_monotone_measures_see_the_best_outcome_improve(self, risk):
        worse, better = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.5])
        assert (risk(better) > risk(worse)) == (risk.support > 2 / 3)
        assert risk.strictly_monotone == (risk.support == 1.0)

    def test_text_and_repr_read_back_as_the_same_measure(self, risk):
        scope = {
            kind.__name__: kind
            for kind in (CVaR, CustomSpectrum, DualPower, Exponential, Mean, WeightedCVaR)
        }
        again = eval(repr(risk), {**scope, "falling_line": falling_line})  # noqa: S307
        assert again == risk
        assert hash(again) == hash(risk)
        if "custom(" not in str(risk):
            assert parse(str(risk)) == risk

    def test_quantile_weights_are_the_value_of_sorted_quantiles(self, risk):
        theta = np.random.default_rng(0).normal(size=7)
        weights = risk.quantile_weights(7)
        np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-12)
        np.testing.assert_allclose(np.sort(theta) @ weights, risk(theta), rtol=1e-12)

    @pytest.mark.slow
    def test_numpy_and_jax_agree_under_jit_vmap_and_grad(self, risk):
        rng = np.random.default_rng(1)
        values, weights = rng.normal(size=(3, 4, 11)), rng.dirichlet(np.ones(11), size=(3, 4))
        plain, weighted = risk(values), risk(values, weights)
        assert plain.shape == weighted.shape == (3, 4)
        z, p = jnp.asarray(values), jnp.asarray(weights)
        close = functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)
        close(jax.jit(risk)(z), plain)
        close(jax.jit(risk)(z, p), weighted)
        close(jax.vmap(jax.vmap(risk))(z, p), weighted)
        # The gradient in the values is the share of each outcome: non-negative, 1 in total.
        gradient = jax.grad(risk)(z[0, 0], p[0, 0])
        assert np.all(gradient >= 0)
        np.testing.assert_allclose(gradient.sum(), 1.0, rtol=1e-5)

    def test_it_is_a_pytree_without_arrays_and_can_be_closed_over(self, risk):
        assert jax.tree.leaves(risk) == []
        assert eqx.filter_jit(lambda r, z: r(z))(risk, jnp.ones(3)) == pytest.approx(1.0, rel=1e-5)


class TestByHand:
    def test_cvar_splits_the_atom_that_straddles_alpha(self):
        # Worst 37.5% of four equally likely values: all of -10, half of 0 -> -2.5 / 0.375.
        got = CVaR(0.375)(jnp.array([20.0, -10.0, 0.0, 5.0]))
        np.testing.assert_allclose(got, -20 / 3, rtol=1e-6)

    def test_weights_decide_how_much_of_an_atom_is_in_the_tail(self):
        # Sorted: -4 (0.1), 1 (0.6), 3 (0.3). Worst 40%: 0.1 * -4 + 0.3 * 1 = -0.1, over 0.4.
        got = CVaR(0.4)([1.0, 3.0, -4.0], weights=[0.6, 0.3, 0.1])
        np.testing.assert_allclose(got, -0.25, rtol=1e-12)

    def test_dual_power_two_is_the_mean_of_the_worse_of_two_draws(self):
        # 0 or 10 with 0.3 and 0.7: the worse is 10 with 0.7 * 0.7.
        np.testing.assert_allclose(DualPower(2.0)([0.0, 10.0], [0.3, 0.7]), 4.9, rtol=1e-12)

    def test_exponential_of_two_points(self):
        # Φ(1/2) = (1 - e^-2) / (1 - e^-4) is the share of the lower value.
        lower = (1 - np.exp(-2)) / (1 - np.exp(-4))
        np.testing.assert_allclose(Exponential(4.0)([3.0, 1.0]), lower + 3 * (1 - lower))

    def test_a_weighted_sum_is_the_sum_of_the_weighted_values(self):
        z = [4.0, -2.0, 1.0, 7.0]  # mean 2.5; worst half -0.5
        np.testing.assert_allclose(WeightedCVaR([0.5, 1.0], [0.25, 0.75])(z), 1.75)

    def test_steps_are_normalised(self):
        # 6 up to 0.2 and 1 up to 1: area 1.2 + 0.8 = 2.
        steps = CustomSpectrum({0.2: 6.0, 1.0: 1.0})
        np.testing.assert_allclose(steps.spectrum([0.1, 0.2, 0.21, 1.0]), [3, 3, 0.5, 0.5])
        assert steps == 0.5 * Mean() + 0.5 * CVaR(0.2)

    def test_a_function_may_take_single_numbers_and_jump(self):
        steps = CustomSpectrum(lambda u: 6.0 if u <= 0.2 else 1.0)
        z = np.random.default_rng(3).normal(size=101)
        np.testing.assert_allclose(steps(z), CustomSpectrum({0.2: 6.0, 1.0: 1.0})(z), rtol=1e-9)
        assert steps.support == 1.0

    @pytest.mark.parametrize(
        ("phi", "steps"),
        [
            (lambda u: np.where(u <= 0.3, 3.0, 0.0), {0.3: 3.0, 1.0: 0.0}),
            (lambda u: np.where(u < 0.3, 3.0, 1.0), {0.3: 3.0, 1.0: 1.0}),
            (lambda u: 4 - np.floor(4 * u), {0.25: 4.0, 0.5: 3.0, 0.75: 2.0, 1.0: 1.0}),
        ],
    )
    def test_jumps_of_a_function_become_steps(self, phi, steps):
        drawn, written = CustomSpectrum(phi), CustomSpectrum(steps)
        np.testing.assert_allclose(drawn.atoms, written.atoms, atol=1e-9)
        assert drawn.support == written.support
        u = np.array([0.0, 0.25, 0.3, 0.30001, 0.5, 0.9])
        np.testing.assert_allclose(drawn.spectrum(u), written.spectrum(u), atol=1e-9)
        assert (
            drawn.utility(np.linspace(0, 1, 50)).knots.shape
            == written.utility(np.linspace(0, 1, 50)).knots.shape
        )

    def test_a_spectrum_that_rises_between_the_first_looks_is_refused(self):
        with pytest.raises(ValueError, match="must not increase"):
            CustomSpectrum(lambda u: 2 - u + 0.05 * np.sin(128 * np.pi * u) ** 2)

    def test_a_function_that_ends_early_knows_its_support(self):
        half = CustomSpectrum(lambda u: np.maximum(1 - 2 * u, 0))
        assert half.support == pytest.approx(0.5, abs=1e-6)
        assert not half.strictly_monotone

    def test_levels_in_cumulative_probabilities_with_rounding_still_hit_their_atom(self):
        # 0.1 + 0.2 is not 0.3 in floating point; the worst 30% must still be two of the values.
        z, p = np.array([1.0, 2.0, 100.0]), np.array([0.1, 0.2, 0.7])
        np.testing.assert_allclose(CVaR(0.3)(z, p), 5 / 3, rtol=1e-12)
        assert CVaR(0.3).utility(Distribution(z, p)).knots == [2.0]


class TestClosedForms:
    NORMAL = stats.norm(loc=0.3, scale=1.7)
    WAITING = stats.expon(scale=2.0)

    @staticmethod
    def of(distribution, risk):
        """The value of the distribution at 20,000 mid-quantiles."""
        return risk(distribution.ppf((np.arange(20_000) + 0.5) / 20_000))

    @pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 0.9])
    def test_cvar_of_a_normal(self, alpha):
        # mean - sigma * density(quantile) / alpha.
        closed = 0.3 - 1.7 * stats.norm.pdf(stats.norm.ppf(alpha)) / alpha
        assert self.of(self.NORMAL, CVaR(alpha)) == pytest.approx(closed, abs=2e-4)

    @pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 0.9])
    def test_cvar_of_an_exponential(self, alpha):
        # F^-1(u) = -2 log(1 - u); its integral over (0, α) is 2 (α + (1 - α) log(1 - α)).
        closed = 2 * (alpha + (1 - alpha) * np.log1p(-alpha)) / alpha
        assert self.of(self.WAITING, CVaR(alpha)) == pytest.approx(closed, abs=2e-4)

    @pytest.mark.parametrize("name", ["NORMAL", "WAITING"])
    @pytest.mark.parametrize("lam", [0.5, 4.0, 12.0])
    def test_exponential_measure_against_quadrature(self, name, lam):
        distribution, risk = getattr(self, name), Exponential(lam)
        exact, _ = integrate.quad(
            lambda u: distribution.ppf(u) * risk.spectrum(u), 0, 1, epsabs=1e-10, limit=500
        )
        assert self.of(distribution, risk) == pytest.approx(exact, abs=5e-4)

    def test_exponential_measure_of_a_uniform(self):
        # int_0^1 u λ e^{-λu} / (1 - e^{-λ}) du = 1/λ - 1/(e^λ - 1).
        closed = 1 / 4 - 1 / np.expm1(4)
        assert self.of(stats.uniform(), Exponential(4.0)) == pytest.approx(closed, abs=1e-7)

    @pytest.mark.parametrize("nu", [1.0, 2.0, 3.5])
    def test_dual_power_of_an_exponential(self, nu):
        # The minimum of ν waiting times of mean 2 has mean 2 / ν.
        assert self.of(self.WAITING, DualPower(nu)) == pytest.approx(2 / nu, abs=2e-4)


class TestBadInput:
    @pytest.mark.parametrize("alpha", [0.0, -0.1, 1.0001, float("nan")])
    def test_alpha_outside_its_range(self, alpha):
        with pytest.raises(ValueError, match=r"`alpha` must be in \(0, 1\], got .*alpha=0\.05"):
            CVaR(alpha)

    @pytest.mark.parametrize("lam", [0.0, -4.0, float("inf"), float("nan")])
    def test_lambda_outside_its_range(self, lam):
        with pytest.raises(ValueError, match="`lam` must be a finite number above 0"):
            Exponential(lam)

    @pytest.mark.parametrize("nu", [0.99, float("inf"), float("nan")])
    def test_nu_outside_its_range(self, nu):
        with pytest.raises(ValueError, match="`nu` must be a finite number of at least 1"):
            DualPower(nu)

    def test_weighted_cvar_wants_matching_levels_and_weights(self):
        with pytest.raises(ValueError, match="same length, at least 1, got 2 and 1"):
            WeightedCVaR([0.2, 1.0], [1.0])
        with pytest.raises(ValueError, match=r"`levels` must be in \(0, 1\], got 1\.2"):
            WeightedCVaR([0.2, 1.2], [0.5, 0.5])
        with pytest.raises(ValueError, match=r"`weights` must sum to 1, got a sum of 0\.9"):
            WeightedCVaR([0.2, 1.0], [0.5, 0.4])
        with pytest.raises(ValueError, match=r"`weights` must be non-negative, got -0\.5"):
            WeightedCVaR([0.2, 1.0], [-0.5, 1.5])

    @pytest.mark.parametrize(
        ("phi", "message"),
        [
            (lambda u: u, "must not increase"),
            (lambda u: 0.5 - u, "must be non-negative"),
            (lambda u: u**-0.5, "must be bounded, got inf at u = 0"),
            (lambda u: 1 / float(u), "must be bounded"),
            (lambda u: 0 * u, "positive somewhere"),
            ({0.5: 1.0, 1.0: 2.0}, "must not increase"),
            ({0.5: 1.0}, "end at 1"),
            ({0.0: 1.0, 1.0: 0.5}, r"in \(0, 1\]"),
            ({}, "end at 1"),
        ],
    )
    def test_spectra_that_are_none(self, phi, message):
        with pytest.raises(ValueError, match=message):
            CustomSpectrum(phi)

    @pytest.mark.parametrize("module", [np, jnp])
    def test_values_that_are_no_distribution(self, module):
        risk = CVaR(0.5)
        with pytest.raises(ValueError, match=r"`values` must be finite, got 1 value\(s\).* nan"):
            risk(module.array([1.0, np.nan]))
        with pytest.raises(ValueError, match="`values` must hold at least one value"):
            risk(module.array([]))
        with pytest.raises(ValueError, match="`values` must hold at least one value"):
            risk(module.array(1.0))
        with pytest.raises(ValueError, match=r"`weights` must be non-negative, got -0\.5"):
            risk(module.array([1.0, 2.0]), module.array([-0.5, 1.5]))
        with pytest.raises(ValueError, match=r"`weights` must sum to 1, got a sum of 0\.9"):
            risk(module.array([1.0, 2.0]), module.array([0.5, 0.4]))
        with pytest.raises(ValueError, match="`weights` must match `values`"):
            risk(module.array([1.0, 2.0]), module.array([1.0]))

    def test_values_that_are_no_numbers(self):
        with pytest.raises(TypeError, match="`values` must be an array of real numbers"):
            CVaR(0.5)(np.array(["a"]))

    def test_ranks_outside_the_unit_interval(self):
        with pytest.raises(ValueError, match=r"`u` must be in \[0, 1\]"):
            Mean().spectrum(1.5)

    @pytest.mark.parametrize("count", [0, -3, True])
    def test_a_number_of_quantiles_that_is_none(self, count):
        with pytest.raises(ValueError, match="`count` must be a whole number"):
            Mean().quantile_weights(count)


def test_traced_values_with_nan_give_nan_instead_of_an_error():
    assert np.isnan(jax.jit(CVaR(0.5))(jnp.array([jnp.nan, 1.0])))


def test_32_bit_numpy_is_computed_in_64_bits():
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=100_000), rng.dirichlet(np.ones(100_000))
    single = CVaR(0.05)(values.astype(np.float32), weights.astype(np.float32))
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, CVaR(0.05)(values, weights), rtol=1e-5)
    assert CVaR(np.float32(0.7)) == CVaR(0.7)  # pyright: ignore[reportArgumentType]


def test_a_distribution_is_valued_like_its_values_and_probabilities():
    z, p = [3.0, 1.0, 2.0], [0.2, 0.5, 0.3]
    assert CVaR(0.6)(Distribution(z, p)) == CVaR(0.6)(z, p)


@pytest.mark.slow
@pytest.mark.parametrize("risk", EXAMPLES, ids=str)
def test_everything_works_under_strict_promotion(risk):
    with jax.numpy_dtype_promotion("strict"):
        theta = jnp.linspace(0.0, 1.0, 30)
        risk(theta, jnp.full(30, 1 / 30, dtype=theta.dtype))
        risk.utility(theta).expectation(theta)


def test_mixtures_keep_the_kind_of_array_and_check_their_edges():
    assert isinstance(CVaR(0.5).mixture(jnp.linspace(0, 1, 5)).levels, jax.Array)
    for edges in ([0.5, 1.0, 0.0], [0.0, 0.5]):
        with pytest.raises(ValueError, match="`edges` must increase from 0 to 1"):
            Exponential(4.0).mixture(edges)
    with pytest.raises(ValueError, match="`edges` must be a vector"):
        Exponential(4.0).mixture(np.zeros((2, 2)))


def test_integers_and_lists_are_fine():
    assert CVaR(0.5)([1, 2, 3, 4]) == 1.5
    assert CVaR(0.5)(jnp.array([1, 2, 3, 4])) == 1.5
