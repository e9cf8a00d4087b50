"""The networks of AC-SRM: their first weights, what gradient steps change, normalisation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from downside.agents.networks import MLP, Linear, Network

_LARGEST_INPUT = 10.0
"""Inputs are normalised so that they are hardly ever larger than this."""


class ActorCritic(eqx.Module):
    """The networks of AC-SRM. They share nothing."""

    actor: Network
    critic: Network
    """The value of the increments that follow, in units of c."""
    returns: Network
    """From inputs and an action to the quantiles of the return that follows."""


def orthogonal(trunk: Any, key: Key[Array, ""]) -> Any:
    """An MLP with orthogonal weights and no biases; any other trunk as it is."""
    if not isinstance(trunk, MLP):
        return trunk
    make = jax.nn.initializers.orthogonal(2.0**0.5)
    keys = jax.random.split(key, max(1, len(trunk.layers)))
    layers = tuple(
        Linear(make(key, layer.weight.shape), jnp.zeros_like(layer.bias))
        for key, layer in zip(keys, trunk.layers, strict=False)
    )
    return eqx.tree_at(lambda mlp: mlp.layers, trunk, layers)


def learned_weights(networks: ActorCritic) -> tuple[Any, Any]:
    """What gradient steps change: of the actor, and of the critic."""

    def weights(network: Network) -> Any:
        return eqx.filter((network.trunk, network.head), eqx.is_inexact_array)

    return weights(networks.actor), weights(networks.critic)


def with_learned(networks: ActorCritic, parts: tuple[Any, Any]) -> ActorCritic:
    """The networks with other weights."""
    actor, critic = parts

    def fill(network: Network, weights: Any) -> Network:
        trunk, head = eqx.combine(weights, (network.trunk, network.head))
        return eqx.tree_at(lambda n: (n.trunk, n.head), network, (trunk, head))

    return ActorCritic(fill(networks.actor, actor), fill(networks.critic, critic), networks.returns)


def rescaled(network: Network, mean: Array, spread: Array, rate: Array) -> Network:
    """The network with its outputs normalised by other numbers, a share `rate` of the way; what it
    computes stays the same (van Hasselt et al. 2016)."""
    scale, head = network.scale, network.head
    centre = scale.output_mean + rate * (mean - scale.output_mean)
    width = scale.output_spread + rate * (spread - scale.output_spread)
    share = scale.output_spread / width
    weight, bias = head.weight * share, head.bias * share + (scale.output_mean - centre) / width
    return eqx.tree_at(
        lambda n: (n.head.weight, n.head.bias, n.scale.output_mean, n.scale.output_spread),
        network,
        (weight, bias, centre, width),
    )


def normalised(
    networks: ActorCritic, inputs: Array, weights: Array, earlier: Array
) -> tuple[ActorCritic, Array]:
    """Inputs normalised by the mean and the spread of these and the `earlier` ones (a number), and
    how many these are together."""
    scale, count = networks.actor.scale, weights.sum()
    mean = (inputs * weights[:, None]).sum(axis=0) / jnp.maximum(count, 1.0)
    variance = ((inputs - mean) ** 2 * weights[:, None]).sum(axis=0) / jnp.maximum(count, 1.0)
    share = count / (earlier + count)
    both = scale.input_mean + share * (mean - scale.input_mean)
    apart = share * (1.0 - share) * (mean - scale.input_mean) ** 2
    spread = jnp.sqrt((1.0 - share) * scale.input_spread**2 + share * variance + apart)
    # More where an input hardly ever differs from its mean, and 1 where it never does.
    largest = (jnp.abs(inputs - both) * weights[:, None]).max(axis=0)
    spread = jnp.maximum(spread, largest / _LARGEST_INPUT)
    spread = jnp.where(spread > 1e-6 * (1.0 + jnp.abs(both)), spread, 1.0)
    both, spread = (
        jnp.where(count > 0, new, old)
        for new, old in ((both, scale.input_mean), (spread, scale.input_spread))
    )
    return eqx.tree_at(
        lambda n: (
            n.actor.scale.input_mean,
            n.actor.scale.input_spread,
            n.critic.scale.input_mean,
            n.critic.scale.input_spread,
        ),
        networks,
        (both, spread) * 2,
    ), earlier + count
