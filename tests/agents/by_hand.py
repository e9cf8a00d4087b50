"""Networks whose outputs can be worked out on paper."""

import equinox as eqx
import jax.numpy as jnp

from downside.agents import Network
from downside.agents.networks import Linear


class Identity(eqx.Module):
    """The observation itself."""

    def __call__(self, observation):
        return observation


def linear_network(weight, bias, shape):
    """Outputs x W + b, in the given shape; `weight` has a row for each entry of the observation."""
    weight, bias = jnp.asarray(weight, float), jnp.asarray(bias, float)
    network = Network(Identity(), weight.shape[0], shape)
    return eqx.tree_at(lambda net: net.head, network, Linear(weight, bias))
