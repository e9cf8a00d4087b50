import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from downside.risk import CVaR, Distribution, point_masses

from . import strategies

DIE = Distribution([3.0, 1.0, 2.0, 2.0], [0.2, 0.5, 0.1, 0.2])  # F: 1 -> 0.5, 2 -> 0.8, 3 -> 1


def test_values_are_sorted_together_with_their_probabilities():
    np.testing.assert_array_equal(DIE.values, [1, 2, 2, 3])
    np.testing.assert_allclose(sorted(DIE.probabilities), [0.1, 0.2, 0.2, 0.5])
    np.testing.assert_allclose(DIE.mean, 1.7)


def test_cdf_and_pmf_join_ties():
    np.testing.assert_allclose(DIE.cdf([0.9, 1.0, 1.5, 2.0, 3.0]), [0, 0.5, 0.5, 0.8, 1])
    np.testing.assert_allclose(DIE.pmf([1.0, 1.5, 2.0]), [0.5, 0, 0.3])
    assert DIE.cdf(2.0) == pytest.approx(0.8)


def test_equality_is_up_to_rounding():
    tenth = Distribution([0.1 + 0.2], [1.0])  # 0.30000000000000004
    assert tenth.pmf(0.3) == 1.0
    assert tenth.cdf(0.3) == 1.0
    assert tenth.pmf(0.3000001) == 0.0


def test_lower_quantile_is_the_smallest_value_that_reaches_the_level():
    np.testing.assert_array_equal(
        DIE.quantile([0.2, 0.5, 0.51, 0.8, 0.81, 1.0]), [1, 1, 2, 2, 3, 3]
    )


def test_quantile_representation_takes_the_upper_quantile_on_its_grid():
    theta = Distribution.from_quantiles([4.0, 1.0, 3.0, 2.0])  # crossing quantiles are sorted
    # tau_{i-1} <= u < tau_i: a level on the grid belongs to the quantile above it.
    np.testing.assert_array_equal(
        theta.quantile([0.1, 0.25, 0.5, 0.74, 0.75, 1]), [1, 2, 3, 3, 4, 4]
    )
    lower = Distribution.from_samples([4.0, 1.0, 3.0, 2.0])
    np.testing.assert_array_equal(lower.quantile([0.1, 0.25, 0.5, 0.74, 0.75]), [1, 1, 2, 3, 3])


@pytest.mark.parametrize("count", [7, 10, 29, 50, 100, 101])
def test_every_grid_point_falls_into_the_cell_above_whatever_the_rounding(count):
    theta = Distribution.from_quantiles(np.arange(count, dtype=float))
    levels = np.array([i / count for i in range(count)])
    np.testing.assert_array_equal(theta.quantile(levels), np.arange(count))
    single = Distribution.from_quantiles(jnp.arange(count, dtype=jnp.float32))
    np.testing.assert_array_equal(single.quantile(jnp.asarray(levels)), np.arange(count))


def test_tail_mean_is_cvar_and_the_worst_value_at_level_zero():
    levels = np.array([0.2, 0.5, 0.65, 1.0])
    expected = [CVaR(level)(DIE.values, DIE.probabilities) for level in levels]
    np.testing.assert_allclose(DIE.tail_mean(levels), expected, rtol=1e-12)
    assert DIE.tail_mean(0.0) == 1.0


@pytest.mark.parametrize("count", [3, 10, 25, 50, 100, 200])
@pytest.mark.parametrize("level", [0.0, 1e-20, 1e-12])
def test_tail_mean_at_a_tiny_level_is_the_worst_value_whatever_rounding_leaves(count, level):
    # 50 times 1/50 is not 1 in binary: the first rank begins at some 1e-17, not at 0.
    tail_mean = Distribution.from_quantiles(np.arange(count) + 1.0).tail_mean(level)
    np.testing.assert_allclose(tail_mean, 1.0, rtol=1e-6)
    single = Distribution.from_quantiles(jnp.arange(count, dtype=jnp.float32) + 1).tail_mean(level)
    np.testing.assert_allclose(single, 1.0, rtol=1e-6)


def test_tail_mean_at_level_zero_skips_values_that_never_come():
    assert Distribution([-5.0, 2.0, 3.0], [0.0, 0.5, 0.5]).tail_mean(0.0) == 2.0


def test_affine_map_shifts_and_scales_a_batch():
    moved = DIE.affine(np.array([1.0, 10.0]), np.array([2.0, 0.5]))
    np.testing.assert_allclose(moved.values, [[3, 5, 5, 7], [10.5, 11, 11, 11.5]])
    np.testing.assert_allclose(moved.mean, [1 + 2 * 1.7, 10 + 0.5 * 1.7])
    with pytest.raises(ValueError, match="`scale` must be positive, got -1"):
        DIE.affine(0.0, -1.0)


def test_mixture_weighs_its_parts():
    both = Distribution.mixture([Distribution([0.0]), Distribution([1.0, 2.0])], [0.4, 0.6])
    np.testing.assert_allclose(both.probabilities, [0.4, 0.3, 0.3])
    with pytest.raises(ValueError, match="one entry for each of the 1 `parts`"):
        Distribution.mixture([DIE], [0.5, 0.5])


def test_a_mixture_of_quantile_representations_is_one():
    parts = [Distribution.from_quantiles([1.0, 2.0]), Distribution.from_quantiles([3.0, 4.0])]
    both = Distribution.mixture(parts, [0.5, 0.5])
    assert both.quantile_side == "upper"
    assert both.quantile(0.5) == 3.0
    mixed = Distribution.mixture([parts[0], Distribution([3.0, 4.0])], [0.5, 0.5])
    assert mixed.quantile_side == "lower"


def test_probabilities_are_normalised_once_and_for_all():
    nearly = Distribution([1e6, 2e6], [0.5, 0.5 + 9e-7])
    assert nearly.probabilities.sum() == pytest.approx(1.0, abs=1e-15)
    np.testing.assert_allclose(nearly.mean, CVaR(1.0)(nearly), rtol=1e-12)
    assert nearly.cdf(2e6) == pytest.approx(1.0, abs=1e-15)


def test_one_outlier_does_not_make_the_others_equal():
    theta = jnp.array([-1e5, 0.0, 0.5, 1.0])
    np.testing.assert_allclose(Distribution(theta).pmf(jnp.array([0.5])), [0.25])
    assert Distribution(theta).merged().values.shape == (4,)


def test_the_lower_quantile_forgives_a_level_that_rounding_put_above_its_cumulative():
    # The sum of 0.1 ten times is below 1, that of 0.7 + 0.1 below 0.8.
    steps = Distribution([1.0, 2.0, 3.0], [0.7, 0.1, 0.2])
    assert steps.quantile(0.8) == 2.0


def test_merged_keeps_the_side():
    assert Distribution.from_quantiles([1.0, 1.0, 2.0]).merged().quantile_side == "upper"


def test_merged_joins_equal_values():
    merged = DIE.merged()
    np.testing.assert_allclose(merged.values, [1, 2, 3])
    np.testing.assert_allclose(merged.probabilities, [0.5, 0.3, 0.2])


def test_point_masses_are_a_batch_of_sure_things():
    batch = point_masses(np.array([3.0, -1.0]))
    np.testing.assert_array_equal(batch.mean, [3.0, -1.0])


@given(strategies.discrete())
def test_the_quantile_function_inverts_the_cdf(drawn):
    distribution = Distribution(*drawn).merged()
    reached = distribution.cumulative
    np.testing.assert_array_equal(distribution.quantile(reached), distribution.values)
    np.testing.assert_allclose(distribution.cdf(distribution.values), reached, atol=1e-12)


def test_it_is_traceable():
    @jax.jit
    def middle(values):
        return Distribution.from_quantiles(values).quantile(jnp.array([0.5]))

    np.testing.assert_array_equal(middle(jnp.array([5.0, 1.0, 3.0])), [3.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "`values` must hold at least one value"),
        (([np.nan],), "`values` must be finite"),
        (([1.0], [0.5]), "`probabilities` must sum to 1"),
        (([1.0, 2.0], [1.0]), "`probabilities` must match `values`"),
        (([1.0, 2.0], [1.5, -0.5]), "`probabilities` must be non-negative"),
    ],
)
def test_what_is_no_distribution_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Distribution(*arguments)


@pytest.mark.parametrize("level", [-0.1, 1.1, np.nan])
def test_levels_are_shares(level):
    with pytest.raises(ValueError, match=r"`u` must be in \[0, 1\]"):
        DIE.quantile([level])
    with pytest.raises(ValueError, match=r"`level` must be in \[0, 1\]"):
        DIE.tail_mean(level)


def test_the_convention_at_jumps_has_two_names():
    with pytest.raises(ValueError, match='`quantile_side` must be "lower" or "upper"'):
        Distribution([1.0], quantile_side="middle")
