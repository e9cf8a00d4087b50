"""Convolutions as matrix products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents.convolution import convolve


def _by_xla(pictures, kernel, stride):
    return jax.lax.conv_general_dilated(
        pictures, kernel, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def test_a_convolution_of_stride_2_by_hand():
    # Windows [0 1; 4 5] and [2 3; 6 7] of the first two rows, with weights 1, 10, 100, 1000.
    picture = jnp.arange(8.0).reshape(2, 4, 1)
    kernel = jnp.array([[1.0, 10.0], [100.0, 1000.0]]).reshape(2, 2, 1, 1)
    np.testing.assert_array_equal(convolve(picture, kernel, 2)[..., 0], [[5410.0, 7632.0]])


@pytest.mark.parametrize(
    ("shape", "width", "stride"),
    [
        ((20, 20, 4), 8, 4),
        ((9, 9, 5), 3, 1),
        ((37, 50, 3), 8, 4),  # pixels are left over at the edges
        ((11, 8, 2), 4, 3),  # the kernel is no multiple of the stride
        ((7, 9, 2), 2, 3),  # a stride that skips pixels
    ],
)
def test_it_and_its_gradients_equal_those_of_xla(shape, width, stride):
    keys = jax.random.split(jax.random.key(0), 3)
    pictures = jax.random.normal(keys[0], (3, *shape))
    kernel = jax.random.normal(keys[1], (width, width, shape[-1], 7)) / width
    sizes = [(size - width) // stride + 1 for size in shape[:2]]
    weights = jax.random.normal(keys[2], (3, *sizes, 7))

    @jax.jit
    def ours(pictures, kernel):
        return jax.vmap(lambda picture: convolve(picture, kernel, stride))(pictures)

    @jax.jit
    def expected(pictures, kernel):
        return _by_xla(pictures, kernel, stride)

    _assert_close(ours(pictures, kernel), expected(pictures, kernel))
    mine, others = (
        _gradients(function, weights)(pictures, kernel) for function in (ours, expected)
    )
    _assert_close(mine[0], others[0])
    _assert_close(mine[1], others[1])


def _gradients(function, weights):
    return jax.jit(jax.grad(lambda *inputs: (weights * function(*inputs)).sum(), (0, 1)))


def _assert_close(mine, other):
    np.testing.assert_allclose(mine, other, atol=1e-5 * float(np.abs(other).max()))
