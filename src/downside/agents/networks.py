"""The networks: any module from an observation to features, and a linear head on top of it."""

import functools
import math
from collections.abc import Callable
from typing import Any, overload

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from downside.agents.convolution import convolve

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": jax.nn.silu,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
}

_LARGEST_INPUT = 10.0
"""In standard deviations; normal variables do not get there."""

Trunk = Callable[[Float[Array, " d"]], Float[Array, " f"]]
"""Observation to features: an `eqx.Module`, such as `MLP` or one of your own."""

MakeTrunk = Callable[[Key[Array, ""], int], Trunk]
"""From a key and the size of the observation to a fresh trunk."""


class MLP(eqx.Module):
    """Fully connected layers, each followed by the activation."""

    layers: "tuple[Linear, ...]"
    activation: str = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)
    """Whether each layer's outputs are brought to mean 0 and variance 1 before the activation."""

    def __init__(
        self,
        key: Key[Array, ""],
        size: int,
        hidden_sizes: tuple[int, ...],
        activation: str,
        layer_norm: bool = False,
    ):
        sizes = (size, *hidden_sizes)
        keys = jax.random.split(key, len(hidden_sizes)) if hidden_sizes else ()
        self.layers = tuple(
            _layer(inputs, outputs, layer_key)
            for layer_key, inputs, outputs in zip(keys, sizes[:-1], hidden_sizes, strict=True)
        )
        self.activation, self.layer_norm = activation, layer_norm

    def __call__(self, observation: Float[Array, " d"]) -> Float[Array, " f"]:
        """The features of one observation."""
        for layer in self.layers:
            outputs = layer(observation)
            if self.layer_norm:
                outputs = jax.nn.standardize(outputs)
            observation = _ACTIVATIONS[self.activation](outputs)
        return observation


class CNN(eqx.Module):
    """Convolutions over a picture, each followed by ReLU, and fully connected layers behind them.

    The first numbers of an observation are the pixels of a picture of this `shape`, flat; what
    follows them (the memory of rewards) joins at the fully connected layers. Pictures of 36 pixels
    and more have the layers of Mnih et al. (2015), smaller ones three of 2 x 2.
    """

    kernels: "tuple[Float[Array, 'k k i o'], ...]"
    biases: "tuple[Float[Array, ' o'], ...]"
    mlp: MLP
    shape: tuple[int, ...] = eqx.field(static=True)
    strides: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        size: int,
        shape: tuple[int, ...],
        hidden_sizes: tuple[int, ...] = (512,),
        activation: str = "relu",
        layer_norm: bool = False,
    ):
        check_picture(shape)
        rows, columns, channels = channels_last(jnp.zeros(shape)).shape
        beside = size - rows * columns * channels
        if beside < 0:
            raise ValueError(
                f"`shape` must have as many pixels as the observation has numbers, {size}, or "
                f"fewer; got {shape}. Pass the shape of the environment's observation space."
            )
        layers = _LARGE_PICTURE if min(rows, columns) >= 36 else _SMALL_PICTURE
        layer_key, rest = jax.random.split(key)
        kernels, biases = [], []
        for number, (outputs, width, stride) in enumerate(layers):
            inputs = width * width * channels
            layer = _layer(inputs, outputs, jax.random.fold_in(layer_key, number))
            kernels.append(layer.weight.reshape(width, width, channels, outputs))
            biases.append(layer.bias)
            rows, columns = (rows - width) // stride + 1, (columns - width) // stride + 1
            channels = outputs
        self.kernels, self.biases = tuple(kernels), tuple(biases)
        self.shape, self.strides = tuple(shape), tuple(stride for _, _, stride in layers)
        features = rows * columns * channels + beside
        self.mlp = MLP(rest, features, hidden_sizes, activation, layer_norm)

    def __call__(self, observation: Float[Array, " d"]) -> Float[Array, " f"]:
        """The features of one observation."""
        count = math.prod(self.shape)
        picture = channels_last(observation[:count].reshape(self.shape))
        for kernel, bias, stride in zip(self.kernels, self.biases, self.strides, strict=True):
            picture = jax.nn.relu(convolve(picture, kernel, stride) + bias)
        return self.mlp(jnp.concatenate([picture.ravel(), observation[count:]]))


_LARGE_PICTURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Outputs, width and stride of each convolution."""
_SMALL_PICTURE = ((16, 2, 1), (32, 2, 1), (64, 2, 1))


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Which axis of a picture has its channels: the shorter one of the first and the last, or a
    new one behind them. None for what is no picture of at least 4 x 4 pixels."""
    axis = 0 if len(shape) == 3 and shape[0] < shape[2] else 2
    sides = [size for i, size in enumerate(shape) if i != axis]
    return axis if len(sides) == 2 and min(sides) >= 4 else None


def check_picture(shape: tuple[int, ...]) -> None:
    """Raises unless observations of this shape are pictures."""
    if channel_axis(shape) is None:
        raise ValueError(
            "`env` must show pictures for convolutions: (rows, columns), with channels before or "
            f"behind them, of at least 4 x 4 pixels, got the shape {shape}. Choose, shrink or "
            "stack them with `gymnasium.wrappers`, or pass network=."
        )


def channels_last(picture: Float[Array, "..."]) -> Float[Array, "h w c"]:
    """A picture with its channels behind rows and columns."""
    if picture.ndim == 2:
        return picture[..., None]
    return jnp.moveaxis(picture, 0, -1) if channel_axis(picture.shape) == 0 else picture


class Linear(eqx.Module):
    """x W + b. The inputs come first: a batch of them is then one product without transposing."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __call__(self, inputs: Float[Array, " i"]) -> Float[Array, " o"]:
        """The outputs for one vector."""
        return inputs @ self.weight + self.bias


def _layer(inputs: int, outputs: int, key: Key[Array, ""]) -> Linear:
    """A layer that keeps the size of its inputs, with bends spread over the range of the data."""
    weight_key, bias_key = jax.random.split(key)
    weight = jax.random.normal(weight_key, (inputs, outputs)) * jnp.sqrt(2.0 / inputs)
    return Linear(weight, 0.3 * jax.random.normal(bias_key, (outputs,)))


class Scale(eqx.Module):
    """Normalisation of inputs and outputs: measured, not learned."""

    input_mean: Float[Array, " d"]
    """Subtracted from the observation."""
    input_spread: Float[Array, " d"]
    """The observation is divided by it."""
    output_mean: Float[Array, ""]
    """Added to the outputs."""
    output_spread: Float[Array, ""]
    """The outputs are multiplied by it."""

    @classmethod
    def none(cls, size: int) -> "Scale":
        """Numbers are taken as they are."""
        return cls(jnp.zeros(size), jnp.ones(size), jnp.zeros(()), jnp.ones(()))


def input_spread(inputs: Any) -> Any:
    """The standard deviation of each input, or more where it hardly ever differs from its mean: the
    mark of a cell that was visited once must not become a huge number. For NumPy and JAX."""
    least = abs(inputs - inputs.mean(axis=0)).max(axis=0) / _LARGEST_INPUT
    return inputs.std(axis=0).clip(least)


class Network(eqx.Module):
    """Observation -> trunk -> linear head -> outputs of the given shape."""

    trunk: Any
    head: Linear
    scale: Scale
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, trunk: Trunk, size: int, shape: tuple[int, ...]):
        try:
            features = jax.eval_shape(trunk, jax.ShapeDtypeStruct((size,), jnp.float32))
        except TypeError as error:  # what shapes that do not fit raise
            raise ValueError(
                f"`network` must take a vector of {size} numbers: what the environment shows, the "
                "last steps (none with history_length=0), and what the agent remembers of its "
                f"rewards. A function (key, size) is told how many. It raised: {error}"
            ) from error
        if not isinstance(features, jax.ShapeDtypeStruct) or features.ndim != 1:
            raise ValueError(
                f"`network` must turn an observation of shape ({size},) into a vector of features, "
                f"got {features}. Flatten what it returns."
            )
        outputs = 1
        for length in shape:
            outputs *= length
        bias = jnp.zeros(outputs)
        if len(shape) == 2:  # quantiles that do not start on top of one another
            ranks = (jnp.arange(shape[1]) + 0.5) / shape[1]
            bias = jnp.tile(jax.scipy.special.ndtri(ranks), shape[0])
        # Zeros: before it has learned anything, all actions have the same output.
        self.head = Linear(jnp.zeros((features.shape[0], outputs)), bias)
        self.trunk, self.shape, self.scale = trunk, shape, Scale.none(size)

    def __call__(
        self, observation: Float[Array, " d"], actions: Int[Array, " b"] | None = None
    ) -> Float[Array, "..."]:
        """The outputs for one observation: of all actions, or of some."""
        scale = jax.lax.stop_gradient(self.scale)
        features = self.trunk((observation - scale.input_mean) / scale.input_spread)
        outputs = self.head(features).reshape(self.shape)
        if actions is not None:
            outputs = _pick(outputs, actions)
        return scale.output_mean + scale.output_spread * outputs


class Ensemble(eqx.Module):
    """Several networks with different initial weights; their output is the mean."""

    members: tuple[Network, ...]

    def __call__(
        self, observation: Float[Array, " d"], actions: Int[Array, " b"] | None = None
    ) -> Float[Array, "..."]:
        """The mean of their outputs; of quantiles, level by level."""
        return self.each(observation, actions).mean(axis=0)

    def each(
        self, observation: Float[Array, " d"], actions: Int[Array, " b"] | None = None
    ) -> Float[Array, "k ..."]:
        """The output of each network."""
        return jnp.stack([member(observation, actions) for member in self.members])


def with_blank_inputs(make_trunk: MakeTrunk, count: int) -> MakeTrunk:
    """MLPs that start like those with `count` fewer inputs: the weights of the last ones are 0."""

    def make(key: Key[Array, ""], size: int) -> Trunk:
        trunk = make_trunk(key, size)
        if not isinstance(trunk, MLP) or not trunk.layers:
            return trunk
        fewer = make_trunk(key, size - count)
        if isinstance(fewer, MLP) and len(fewer.layers[0].weight) == size - count:
            weight = jnp.pad(fewer.layers[0].weight, ((0, count), (0, 0)))
            return eqx.tree_at(lambda mlp: mlp.layers[0].weight, fewer, weight)
        # A module that was given, which has one size.
        weight = trunk.layers[0].weight.at[-count:].set(0.0)
        return eqx.tree_at(lambda mlp: mlp.layers[0].weight, trunk, weight)

    return make if count else make_trunk


def members(network: Network | Ensemble) -> tuple[Network, ...]:
    """The networks that it consists of."""
    return network.members if isinstance(network, Ensemble) else (network,)


# By an index on the way there, by a product on the way back: that of an index is a slow scatter.
@jax.custom_vjp
def _pick(outputs: Float[Array, "A ..."], actions: Int[Array, " b"]) -> Float[Array, "b ..."]:
    """The outputs of some actions."""
    return outputs[actions]


def _pick_forward(outputs: Array, actions: Array) -> tuple[Array, tuple[Array, Array]]:
    return outputs[actions], (outputs, actions)


def _pick_backward(kept: tuple[Array, Array], upstream: Array) -> tuple[Array, None]:
    outputs, actions = kept
    chosen = jax.nn.one_hot(actions, outputs.shape[0], dtype=upstream.dtype)
    if actions.shape[0] == 1 and upstream.ndim == 2:  # quicker than a product of one row
        return chosen[0][:, None] * upstream, None
    return chosen.T @ upstream, None


_pick.defvjp(_pick_forward, _pick_backward)


@overload
def scaled(network: Network, scale: Scale) -> Network: ...
@overload
def scaled(network: Ensemble, scale: Scale) -> Ensemble: ...
def scaled(network: Network | Ensemble, scale: Scale) -> Network | Ensemble:
    """The network with another normalisation."""
    if isinstance(network, Ensemble):
        return Ensemble(tuple(scaled(member, scale) for member in network.members))
    return eqx.tree_at(lambda net: net.scale, network, scale)


@functools.cache  # one function for equal settings: agents that share them share what is compiled
def _make_mlp(hidden_sizes: tuple[int, ...], activation: str, layer_norm: bool) -> MakeTrunk:
    return lambda key, size: MLP(key, size, hidden_sizes, activation, layer_norm)


@functools.cache
def cnn(
    shape: tuple[int, ...],
    hidden_sizes: tuple[int, ...] = (512,),
    activation: str = "relu",
    layer_norm: bool = False,
) -> MakeTrunk:
    """How to make a `CNN` for pictures of this shape: pass it as `network=`.

    Arguments:
        shape: of the environment's observations, (rows, columns, channels) or (channels, rows,
            columns).
        hidden_sizes: widths of the fully connected layers behind the convolutions.
        activation: what follows each of them.
        layer_norm: whether they are normalised before it.
    """
    check_picture(shape)
    return lambda key, size: CNN(key, size, shape, hidden_sizes, activation, layer_norm)


class _Given:
    """Always returns the given module. Two of the same module are equal, so that agents that share
    it share what is compiled."""

    def __init__(self, module: Any):
        self._module = module

    def __call__(self, key: Key[Array, ""], size: int) -> Trunk:
        del key, size
        return self._module

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Given) and self._module is other._module

    def __hash__(self) -> int:
        return id(self._module)


def make_trunk(
    network: Any,
    hidden_sizes: tuple[int, ...],
    activation: str,
    layer_norm: bool = False,
    pictures: gym.Space | None = None,
) -> MakeTrunk:
    """How to make a trunk: from the settings, from a function of (key, size), or a given module.
    With convolutions if observations are `pictures`."""
    if network is None and pictures is not None:
        shape = pictures.shape if isinstance(pictures, gym.spaces.Box) else ()
        return cnn(shape, hidden_sizes, activation, layer_norm)
    if network is None:
        return _make_mlp(hidden_sizes, activation, layer_norm)
    if isinstance(network, eqx.Module) and callable(network):
        return _Given(network)
    if callable(network):
        return network  # pyright: ignore[reportReturnType]
    raise TypeError(
        "`network` must be an eqx.Module from observation to features, or a function "
        f"(key, observation size) -> such a module, got {network!r}."
    )
