import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from downside.agents.actor_critic import ActorCritic, normalised, rescaled
from downside.agents.networks import MLP, Network


def test_another_scale_of_the_outputs_leaves_what_a_network_computes():
    network = Network(MLP(jax.random.key(0), 2, (4,), "tanh"), 2, (1,))
    network = eqx.tree_at(lambda n: n.head.weight, network, jnp.arange(4.0)[:, None])
    other = rescaled(network, jnp.asarray(3.0), jnp.asarray(5.0), jnp.asarray(0.5))
    np.testing.assert_allclose(other.scale.output_mean, 1.5)
    np.testing.assert_allclose(other.scale.output_spread, 3.0)
    x = jnp.array([0.3, -2.0])
    np.testing.assert_allclose(network(x), other(x), rtol=1e-5)


def test_inputs_are_normalised_by_all_so_far():
    network = Network(MLP(jax.random.key(0), 3, (4,), "tanh"), 3, (1,))
    networks = ActorCritic(network, network, network)
    parts = np.random.default_rng(0).normal(3.0, 2.0, (2, 50, 3)).astype(np.float32)
    parts[..., 2] = 7.0  # never changes
    count = jnp.zeros(())
    for part in parts:
        networks, count = normalised(networks, jnp.asarray(part), jnp.ones(50), count)
    scale, rows = networks.critic.scale, parts.reshape(100, 3)
    np.testing.assert_allclose(scale.input_mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scale.input_spread[:2], rows[:, :2].std(axis=0), rtol=1e-4)
    assert scale.input_spread[2] > 0.5
