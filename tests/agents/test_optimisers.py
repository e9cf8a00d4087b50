import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from downside.agents import MLP, Network, Settings
from downside.agents.optimisers import _matrices, make_optimiser


def steps(settings, updates, count):
    """The sizes of Adam's steps under a gradient of 1: Adam makes them the learning rate."""
    optimiser = make_optimiser(settings, updates)
    parameter = jnp.zeros(1)

    def step(state, _):
        change, state = optimiser.update(jnp.ones(1), state, parameter)
        return state, -jnp.asarray(change)[0]

    return np.asarray(jax.lax.scan(step, optimiser.init(parameter), None, count)[1])


@pytest.mark.slow
def test_muon_takes_the_matrices_between_hidden_layers_alone():
    # 3 -> 16 -> 20 -> 8 -> head: only 16 x 20 has no side below 16.
    network = Network(MLP(jax.random.key(0), 3, (16, 20, 8), "silu"), 3, (40,))
    chosen = _matrices(eqx.filter(network, eqx.is_inexact_array))
    assert [layer.weight is not None for layer in chosen.trunk.layers] == [False, True, False]
    assert chosen.trunk.layers[1].weight.reduction_axis == 0
    assert all(layer.bias is None for layer in chosen.trunk.layers)
    assert jax.tree.leaves(chosen.head) == []
    assert jax.tree.leaves(chosen.scale) == []


def test_a_large_head_is_left_to_adam():
    network = Network(MLP(jax.random.key(0), 3, (32,), "silu"), 3, (40,))
    assert network.head.weight.shape == (32, 40)
    assert jax.tree.leaves(_matrices(eqx.filter(network, eqx.is_inexact_array))) == []


def test_the_learning_rate_rises_and_falls_to_its_share():
    # 100 updates: two of them rise, from 0; the cosine ends at 0.1 * 0.5 and stays there.
    settings = Settings(optimiser="adam", learning_rate=0.5, final_learning_rate=0.1)
    sizes = steps(settings, 100, 103)
    np.testing.assert_allclose(sizes[:3], [0.0, 0.25, 0.5], rtol=1e-3)
    # Half-way between 2 and 100: the mean of both ends.
    np.testing.assert_allclose(sizes[51], (0.5 + 0.05) / 2, rtol=1e-3)
    np.testing.assert_allclose(sizes[100:], 0.05, rtol=1e-3)
    assert np.all(np.diff(sizes[2:]) <= 1e-6)


def test_a_final_share_of_one_keeps_the_learning_rate():
    settings = Settings(optimiser="adam", learning_rate=0.25, final_learning_rate=1.0)
    np.testing.assert_allclose(steps(settings, 5, 8), 0.25, rtol=1e-4)


@pytest.mark.parametrize("updates", [0, 1])
def test_the_shortest_runs_have_a_schedule(updates):
    sizes = steps(Settings(optimiser="adam", learning_rate=0.5), updates, 3)
    assert np.all(np.isfinite(sizes))
