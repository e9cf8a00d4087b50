import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downside.ops.sorting import sort_rows


def test_each_row_is_sorted_by_itself():
    got = sort_rows(jnp.array([[3.0, 1.0, 2.0], [-1.0, 5.0, -7.0]]))
    np.testing.assert_array_equal(got, [[1.0, 2.0, 3.0], [-7.0, -1.0, 5.0]])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 50, 64, 200])
def test_rows_of_any_length_are_sorted(count):
    rows = np.random.default_rng(count).normal(size=(2, 3, count)).astype(np.float32)
    np.testing.assert_array_equal(sort_rows(jnp.asarray(rows)), np.sort(rows, axis=-1))


@pytest.mark.slow
@given(st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 1.0, 2.0, np.inf]), min_size=5, max_size=5))
def test_ties_and_infinities_are_sorted(row):
    np.testing.assert_array_equal(sort_rows(jnp.array(row)), np.sort(row))


def test_what_is_no_number_is_not_hidden():
    got = sort_rows(jnp.array([[1.0, np.nan, 0.0], [2.0, 1.0, 0.0]]))
    assert np.isnan(got[0]).all()
    np.testing.assert_array_equal(got[1], [0.0, 1.0, 2.0])


@pytest.mark.slow
def test_it_can_be_mapped_over_any_axis():
    rows = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
    expected = np.sort(rows, axis=-1)
    np.testing.assert_array_equal(jax.vmap(jax.vmap(sort_rows))(rows), expected)
    np.testing.assert_array_equal(jax.vmap(sort_rows, 1, 1)(rows), expected)


def test_the_gradient_goes_to_the_numbers_by_their_rank():
    # Sorted: 1, 2, 3 with the weights 10, 20, 30.
    weights = jnp.array([10.0, 20.0, 30.0])
    rows = jnp.array([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]])
    got = jax.vmap(jax.grad(lambda row: sort_rows(row) @ weights))(rows)
    np.testing.assert_array_equal(got, [[30.0, 10.0, 20.0], [20.0, 30.0, 10.0]])
