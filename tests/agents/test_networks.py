import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents import MLP, SRM, Network, QuantileLearner, SimulatorSettings
from downside.agents.networks import Linear, Scale, input_spread, make_trunk, scaled
from downside.risk import CVaR

from .by_hand import Identity, linear_network

KEY = jax.random.key(0)


def networks_of(trunk, **changes):
    """Of QR-SRM with four actions, for inputs of size 3."""
    settings = SimulatorSettings(quantiles=5, **changes)
    algorithm: Any = SRM.make(CVaR(0.5), settings)
    learner = QuantileLearner(algorithm, settings, trunk, 4, 100, 100, True)
    return learner.init(KEY, 3, None).networks


class Squares(eqx.Module):
    """A trunk with one parameter."""

    factor: jax.Array

    def __call__(self, observation):
        return jnp.concatenate([observation, self.factor * observation**2])


def test_a_layer_is_a_product_and_a_bias():
    # (1, 2) W = (1 + 6, 2 + 8, 0 + 10) with W = ((1, 2, 0), (3, 4, 5)).
    layer = Linear(jnp.array([[1.0, 2.0, 0.0], [3.0, 4.0, 5.0]]), jnp.array([0.0, 0.0, -1.0]))
    np.testing.assert_allclose(layer(jnp.array([1.0, 2.0])), [7, 10, 9])


@pytest.mark.slow
def test_every_hidden_layer_is_followed_by_the_activation():
    trunk = MLP(KEY, 3, (5, 4), "relu")
    observation = jnp.array([0.3, -2.0, 1.0])
    first = jnp.maximum(trunk.layers[0](observation), 0.0)
    np.testing.assert_allclose(trunk(observation), jnp.maximum(trunk.layers[1](first), 0.0))
    assert [layer.weight.shape for layer in trunk.layers] == [(3, 5), (5, 4)]
    np.testing.assert_array_equal(MLP(KEY, 3, (), "relu")(observation), observation)


@pytest.mark.slow
def test_a_fresh_network_says_the_same_of_all_actions_in_increasing_quantiles():
    network = Network(MLP(KEY, 3, (8,), "silu"), 3, (4, 5))
    quantiles = network(jnp.array([1.0, -2.0, 0.5]))
    assert quantiles.shape == (4, 5)
    np.testing.assert_array_equal(quantiles, np.broadcast_to(quantiles[0], (4, 5)))
    assert np.all(np.diff(quantiles[0]) > 0)
    np.testing.assert_allclose(quantiles[0, 2], 0.0, atol=1e-6)  # the median of a normal
    np.testing.assert_array_equal(Network(Identity(), 3, (4,))(jnp.ones(3)), np.zeros(4))


def test_inputs_and_outputs_are_scaled():
    # x = (5, 1) -> ((5 - 1) / 2, (1 - 1) / 4) = (2, 0) -> 3 * 2 + 0 = 6 -> 10 + 0.5 * 6 = 13.
    network = linear_network([[3.0], [7.0]], [0.0], (1,))
    scale = Scale(jnp.ones(2), jnp.array([2.0, 4.0]), jnp.array(10.0), jnp.array(0.5))
    np.testing.assert_allclose(scaled(network, scale)(jnp.array([5.0, 1.0])), [13.0])


def test_the_scale_is_not_learned():
    network = linear_network([[3.0], [7.0]], [0.0], (1,))
    scale = Scale(jnp.ones(2), jnp.array([2.0, 4.0]), jnp.array(10.0), jnp.array(0.5))
    gradient = eqx.filter_grad(lambda net: net(jnp.array([5.0, 1.5]))[0])(scaled(network, scale))
    assert all(np.all(np.asarray(leaf) == 0.0) for leaf in jax.tree.leaves(gradient.scale))
    # d/dW = output spread * scaled input = 0.5 * (2, 0.125).
    np.testing.assert_allclose(gradient.head.weight, [[1.0], [0.0625]])


def test_a_given_module_is_the_trunk_of_both_networks():
    networks = networks_of(make_trunk(Squares(jnp.array(2.0)), (8,), "silu"))
    assert networks.critic is not None
    for network in (networks.critic, networks.quantiles):
        assert isinstance(network, Network)
        assert isinstance(network.trunk, Squares)
        assert network.head.weight.shape[0] == 6
    assert networks.critic(jnp.ones(3)).shape == (4,)
    assert networks.quantiles(jnp.ones(3)).shape == (4, 5)


@pytest.mark.slow
def test_a_function_makes_a_fresh_trunk_for_each_network():
    def make(key, size):
        return eqx.nn.MLP(size, 6, 7, 1, key=key)

    networks = networks_of(make_trunk(make, (), "silu"))
    assert networks.critic is not None
    assert isinstance(networks.quantiles, Network)
    first, second = (net.trunk.layers[0].weight for net in (networks.critic, networks.quantiles))
    assert first.shape == (7, 3)
    assert not np.allclose(first, second)


def test_no_critic_is_made_where_the_quantiles_are_scored():
    trunk = make_trunk(None, (8,), "silu")
    assert networks_of(trunk, critic="quantiles").critic is None
    assert networks_of(trunk, critic="utility").critic is not None


def test_inputs_that_hardly_ever_differ_are_not_blown_up():
    # The first: standard deviation 1. The second is 0 but once in 1000 times: its standard
    # deviation is 0.032, its largest distance from the mean 0.999, of which a tenth counts.
    marks = np.zeros((1000, 2))
    marks[:, 0] = np.tile([1.0, -1.0], 500)
    marks[7, 1] = 1.0
    np.testing.assert_allclose(input_spread(marks), [1.0, 0.0999], rtol=1e-6)
    np.testing.assert_allclose(input_spread(jnp.asarray(marks)), [1.0, 0.0999], rtol=1e-5)


def test_equal_settings_make_trunks_by_the_same_function():
    # It is part of what a program is compiled for: agents with equal settings share the program.
    assert make_trunk(None, (8, 8), "silu") is make_trunk(None, (8, 8), "silu")
    assert make_trunk(None, (8, 8), "silu") is not make_trunk(None, (8, 4), "silu")


def test_one_module_makes_equal_trunks_and_another_one_does_not():
    # As for equal settings: what is compared is which module it is, not what it holds.
    module, other = Squares(jnp.array(2.0)), Squares(jnp.array(2.0))
    first, second = make_trunk(module, (), "silu"), make_trunk(module, (8,), "silu")
    assert first == second
    assert hash(first) == hash(second)
    assert first != make_trunk(other, (), "silu")


@pytest.mark.parametrize(
    "trunk", [lambda x: x[None], lambda x: x.sum(), lambda x: (x, x)], ids=["matrix", "number", "2"]
)
def test_a_trunk_that_returns_no_vector_is_refused(trunk):
    with pytest.raises(ValueError, match=r"observation of shape \(3,\) into a vector of features"):
        Network(trunk, 3, (4,))


def test_what_is_no_network_is_refused():
    with pytest.raises(
        TypeError, match=r"`network` must be an eqx\.Module from observation to feat"
    ):
        make_trunk("mlp", (8,), "silu")


def test_layer_norm_forgets_the_size_of_what_a_layer_says():
    key = jax.random.key(0)
    plain, normed = MLP(key, 3, (16,), "tanh"), MLP(key, 3, (16,), "tanh", layer_norm=True)
    larger = eqx.tree_at(
        lambda mlp: (mlp.layers[0].weight, mlp.layers[0].bias),
        normed,
        (100 * normed.layers[0].weight, 100 * normed.layers[0].bias),
    )
    observation = jnp.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(larger(observation), normed(observation), atol=1e-4)
    before = jnp.arctanh(normed(observation))
    np.testing.assert_allclose([before.mean(), before.var()], [0, 1], atol=1e-3)
    assert not np.allclose(plain(observation), normed(observation))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3,), (3, 2)])
@pytest.mark.parametrize("actions", [[1], [2, 0, 2]])
def test_the_gradient_of_some_actions_is_that_of_an_index(shape, actions):
    network = linear_network(np.ones((1, math.prod(shape))), np.arange(math.prod(shape)), shape)
    observation, actions = jnp.ones(1), jnp.array(actions)

    def gradient(outputs):
        return jax.grad(lambda head: (outputs(head) ** 2).sum())(network.head)

    def with_head(head):
        return eqx.tree_at(lambda net: net.head, network, head)

    picked = gradient(lambda head: with_head(head)(observation, actions))
    indexed = gradient(lambda head: with_head(head)(observation)[actions])
    np.testing.assert_allclose(picked.weight, indexed.weight)
    np.testing.assert_allclose(picked.bias, indexed.bias)
    np.testing.assert_array_equal(network(observation, actions), network(observation)[actions])
