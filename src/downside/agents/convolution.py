"""Convolutions as matrix products."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def convolve(
    picture: Float[Array, "h w i"], kernel: Float[Array, "k k i o"], stride: int
) -> Float[Array, "y x o"]:
    r"""The convolution without padding: $z_{yxo} = \sum_{abi} p_{ys+a,\,xs+b,\,i}\, K_{abio}$.

    `picture` is p, `kernel` is K, `stride` is s. Equal to `jax.lax.conv_general_dilated`. Written
    as products because XLA on a CPU is an order of magnitude slower at convolutions within a loop
    (`lax.scan`), and no quicker at them elsewhere. Under `vmap` the examples of a batch are rows of
    the same products.
    """
    rows, columns = (
        (size - width) // stride + 1
        for size, width in zip(picture.shape, kernel.shape[:2], strict=False)
    )
    picture, kernel = _blocks(picture, kernel, stride)
    width, _, inputs, outputs = kernel.shape
    # What lies side by side under the kernel, in one row of numbers; one product gives what each of
    # the kernel's rows makes of it, and these are added where they belong.
    beside = jnp.concatenate([picture[:, b : b + columns] for b in range(width)], axis=-1)
    height = beside.shape[0]
    products = beside.reshape(height * columns, width * inputs) @ (
        kernel.transpose(1, 2, 0, 3).reshape(width * inputs, width * outputs)
    )
    products = products.reshape(height, columns, width, outputs)
    parts = [products[a : a + rows, :, a] for a in range(width)]
    return sum(parts[1:], parts[0])


def _blocks(
    picture: Float[Array, "h w i"], kernel: Float[Array, "k k i o"], stride: int
) -> tuple[Float[Array, "y x j"], Float[Array, "b b j o"]]:
    """The same convolution with stride 1: of blocks of `stride` x `stride` pixels, each of which
    becomes one pixel with more channels."""
    if stride == 1:
        return picture, kernel
    width, _, inputs, outputs = kernel.shape
    across = -(-width // stride)  # blocks that a kernel covers
    sizes = [((size - width) // stride + across) * stride for size in picture.shape[:2]]
    pads = [(0, max(0, size - had)) for size, had in zip(sizes, picture.shape, strict=False)]
    picture = jnp.pad(picture, (*pads, (0, 0)))[: sizes[0], : sizes[1]]
    rows, columns = (size // stride for size in sizes)
    picture = picture.reshape(rows, stride, columns, stride * inputs).transpose(0, 2, 1, 3)
    more = across * stride - width
    kernel = jnp.pad(kernel, ((0, more), (0, more), (0, 0), (0, 0)))
    kernel = kernel.reshape(across, stride, across, stride * inputs, outputs)
    return (
        picture.reshape(rows, columns, stride * stride * inputs),
        kernel.transpose(0, 2, 1, 3, 4).reshape(across, across, -1, outputs),
    )
