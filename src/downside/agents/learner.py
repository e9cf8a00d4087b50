"""The compiled part that all algorithms share: networks, losses, updates.

`init` makes a `Learner`, `update_critic` and `update_quantiles` take a batch of decisions and give
the next one. Neither knows which loop the decisions come from.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm, Decision, Goal
from downside.agents.networks import (
    Ensemble,
    MakeTrunk,
    Network,
    Scale,
    scaled,
    with_blank_inputs,
)
from downside.agents.settings import Settings
from downside.ops import greedy, masked, quantile_huber_loss, return_targets


class Networks(eqx.Module):
    """What is learned."""

    critic: Network | None
    """The score of every action; None where the score is computed from the quantiles."""
    quantiles: Network | Ensemble
    """The quantiles of every action's return."""
    anchored: bool = eqx.field(static=True, default=False)
    """Whether the critic says what an action adds to the score of an episode that is over here:
    where episodes need not end, nothing else would hold the scores in place."""


class Learner(eqx.Module):
    """The networks in training."""

    networks: Networks
    targets: Networks
    """A slower copy, which the targets are computed with."""
    critic_optimiser: Any
    quantile_optimiser: Any
    critic_updates: Int[Array, ""]
    quantile_updates: Int[Array, ""]


def make_networks(
    key: Key[Array, ""],
    settings: Settings,
    make_trunk: MakeTrunk,
    size: int,
    num_actions: int,
    *,
    anchored: bool,
    hidden: int = 0,
) -> Networks:
    """Fresh networks for observations of this size; `hidden` inputs of the quantiles, the last
    ones, have no weight yet."""
    critic = None
    if settings.critic == "utility":
        trunk = make_trunk(stream(key, "critic trunk"), size)
        critic = Network(trunk, size, (num_actions,))
    shape = (num_actions, settings.quantiles)
    first = stream(key, "quantile trunk")
    keys = [first] + [jax.random.fold_in(first, i) for i in range(1, settings.ensemble)]
    make = with_blank_inputs(make_trunk, hidden)
    members = tuple(Network(make(own, size), size, shape) for own in keys)
    quantiles = members[0] if len(members) == 1 else Ensemble(members)
    return Networks(critic, quantiles, anchored and critic is not None)


def make_learner(networks: Networks, optimiser: optax.GradientTransformation) -> Learner:
    """Networks about to be trained."""
    critic, quantiles = _trainable(networks.critic), _trainable(networks.quantiles)
    # Two copies of one array would be one buffer, which cannot be given away twice.
    twin = jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, networks)
    return Learner(
        networks,
        twin,
        optimiser.init(critic) if networks.critic is not None else None,
        optimiser.init(quantiles),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
    )


def with_scale(networks: Networks, critic: Scale, quantiles: Scale) -> Networks:
    """The networks with what the warm-up saw."""
    own = None if networks.critic is None else scaled(networks.critic, critic)
    return Networks(own, scaled(networks.quantiles, quantiles), networks.anchored)


def action_scores(
    algorithm: AbstractAlgorithm, networks: Networks, observation: Float[Array, " d"], goal: Goal
) -> Float[Array, " A"]:
    """The score of every action for one observation."""
    if networks.critic is not None:
        return critic_scores(algorithm, networks.critic, observation, goal, networks.anchored)
    seen = algorithm.view(observation, goal)
    return algorithm.quantile_scores(networks.quantiles(seen), observation, goal)


def critic_scores(
    algorithm: AbstractAlgorithm,
    critic: Network,
    observation: Float[Array, " d"],
    goal: Goal,
    anchored: bool,
    actions: Int[Array, " b"] | None = None,
) -> Float[Array, " b"]:
    """What a critic says of every action, or of some `actions`."""
    outputs = critic(algorithm.view(observation, goal), actions)
    return algorithm.anchored(outputs, observation, goal) if anchored else outputs


def best_action(
    algorithm: AbstractAlgorithm,
    networks: Networks,
    observation: Float[Array, " d"],
    mask: Bool[Array, " A"],
    goal: Goal,
) -> Int[Array, ""]:
    """The legal action with the highest score."""
    return greedy(action_scores(algorithm, networks, observation, goal), mask)


# --- losses of one decision -------------------------------------------------------------------


def critic_targets(
    algorithm: AbstractAlgorithm,
    targets: Networks,
    decision: Decision,
    goal: Goal,
    chooser: Networks | None = None,
) -> Float[Array, " b"]:
    """The value of each action: the mean over its outcomes of the best score that follows.

    `chooser` says which action is best there; without one, the targets themselves do.
    """
    assert targets.critic is not None

    def of_outcome(observation: Array, mask: Array, terminated: Array, discount: Array) -> Array:
        scores = action_scores(algorithm, targets, observation, goal)
        if chooser is None:
            best = masked(scores, mask).max()
        else:
            best = scores[best_action(algorithm, chooser, observation, mask, goal)]
        return algorithm.critic_target(observation, best, terminated, discount, goal)

    parts = (decision.next_observations, decision.next_masks, decision.terminated)
    return jax.vmap(jax.vmap(of_outcome))(*parts, decision.discounts).mean(axis=-1)


def critic_loss(
    predicted: Float[Array, " b"],
    wanted: Float[Array, " b"],
    emphasis: Float[Array, " b"],
    difference_weight: float,
) -> Float[Array, ""]:
    r"""Squared errors, split into what all actions share and what tells them apart.

    $\bar e^2 + w \sum_a m_a (e_a - \bar e)^2$ with $e$ the error of each action, $\bar e$ its mean
    under the normalised `emphasis` $m$, and $w$ = `difference_weight`. The outcomes of all actions
    share their noise, which thus cancels in the second term: it is what decides, and it is precise.
    """
    share = emphasis / emphasis.sum()
    error = predicted - wanted
    common = (share * error).sum()
    return common**2 + difference_weight * (share * (error - common) ** 2).sum()


def quantile_targets(
    algorithm: AbstractAlgorithm,
    targets: Networks,
    decision: Decision,
    goal: Goal,
    chooser: Networks | None = None,
) -> Float[Array, "b KN"]:
    """Samples of the return of each action: r + γ θ' of the best action that follows.

    `chooser` says which action is best there; without one, the targets themselves do.
    """

    def of_outcome(
        reward: Array, observation: Array, mask: Array, terminated: Array, discount: Array
    ) -> Array:
        # What the networks say is computed once, for the choice and for what follows it.
        said = _each(targets.quantiles, algorithm.view(observation, goal))
        if chooser is not None:
            best = best_action(algorithm, chooser, observation, mask, goal)
        elif targets.critic is not None:
            best = best_action(algorithm, targets, observation, mask, goal)
        else:
            scores = algorithm.quantile_scores(said.mean(axis=0), observation, goal)
            best = greedy(scores, mask)
        after = _cautious(algorithm, said[:, best], observation, goal)
        return return_targets(reward, after, gamma=discount, terminated=terminated)

    parts = (decision.rewards, decision.next_observations, decision.next_masks)
    sampled = jax.vmap(jax.vmap(of_outcome))(*parts, decision.terminated, decision.discounts)
    return sampled.reshape(sampled.shape[0], -1)


def _each(network: Network | Ensemble, seen: Float[Array, " d"]) -> Float[Array, "k A N"]:
    """The quantiles of every action, by each of the networks."""
    return network.each(seen) if isinstance(network, Ensemble) else network(seen)[None]


def _cautious(
    algorithm: AbstractAlgorithm,
    said: Float[Array, "k N"],
    observation: Float[Array, " d"],
    goal: Goal,
) -> Float[Array, " N"]:
    """The quantiles of an action; of several networks, from the one that scores it lowest: what is
    chosen because it looks best looks too good, and seldom to all of them."""
    if said.shape[0] == 1:
        return said[0]
    return said[jnp.argmin(algorithm.quantile_scores(said, observation, goal))]


# --- updates ----------------------------------------------------------------------------------


def update_critic(
    algorithm: AbstractAlgorithm,
    settings: Settings,
    optimiser: optax.GradientTransformation,
    learner: Learner,
    decisions: Decision,
    goal: Goal,
) -> tuple[Learner, Float[Array, ""]]:
    """One gradient step of the scores; `decisions` is a batch."""
    chooser = learner.networks if settings.double else None
    wanted = jax.vmap(lambda one: critic_targets(algorithm, learner.targets, one, goal, chooser))(
        decisions
    )
    anchored = learner.networks.anchored

    def loss(critic: Network) -> Array:
        def of_one(decision: Decision, wanted: Array) -> Array:
            scores = critic_scores(
                algorithm, critic, decision.observation, goal, anchored, decision.actions
            )
            unit = jax.lax.stop_gradient(critic.scale.output_spread)
            return critic_loss(
                scores / unit, wanted / unit, decision.emphasis, settings.difference_weight
            )

        return jax.vmap(of_one)(decisions, wanted).mean()

    assert learner.networks.critic is not None
    critic, moments, value = _step(
        optimiser, learner.critic_optimiser, learner.networks.critic, loss
    )
    count = learner.critic_updates + 1
    slow = _follow(settings, count, learner.targets.critic, critic)
    learner = eqx.tree_at(
        lambda one: (
            one.networks.critic,
            one.targets.critic,
            one.critic_optimiser,
            one.critic_updates,
        ),
        learner,
        (critic, slow, moments, count),
    )
    return learner, value


def update_quantiles(
    algorithm: AbstractAlgorithm,
    settings: Settings,
    optimiser: optax.GradientTransformation,
    learner: Learner,
    decisions: Decision,
    goal: Goal,
    spread: Float[Array, ""],
) -> tuple[Learner, Float[Array, ""]]:
    """One gradient step of the quantiles; `decisions` is a batch, κ is in units of `spread`."""
    chooser = learner.networks if settings.double else None
    wanted = jax.vmap(lambda one: quantile_targets(algorithm, learner.targets, one, goal, chooser))(
        decisions
    )

    def loss(network: Network | Ensemble) -> Array:
        if isinstance(network, Ensemble):  # each by itself, or they would not differ
            return jnp.stack([loss(member) for member in network.members]).sum()

        def of_one(decision: Decision, wanted: Array) -> Array:
            quantiles = network(algorithm.view(decision.observation, goal), decision.actions)
            losses = jax.vmap(
                lambda theta, y: quantile_huber_loss(
                    theta / spread, y / spread, kappa=settings.kappa
                )
            )(quantiles, wanted)
            return (losses * decision.emphasis).sum() / decision.emphasis.sum()

        return jax.vmap(of_one)(decisions, wanted).mean()

    network, moments, value = _step(
        optimiser, learner.quantile_optimiser, learner.networks.quantiles, loss
    )
    count = learner.quantile_updates + 1
    slow = _follow(settings, count, learner.targets.quantiles, network)
    learner = eqx.tree_at(
        lambda one: (
            one.networks.quantiles,
            one.targets.quantiles,
            one.quantile_optimiser,
            one.quantile_updates,
        ),
        learner,
        (network, slow, moments, count),
    )
    return learner, value


def _trainable(network: Network | Ensemble | None) -> Any:
    return eqx.filter(network, eqx.is_inexact_array)


def _step(
    optimiser: optax.GradientTransformation, moments: Any, network: Any, loss: Any
) -> tuple[Any, Any, Float[Array, ""]]:
    value, gradient = eqx.filter_value_and_grad(loss)(network)
    change, moments = optimiser.update(gradient, moments, _trainable(network))
    return eqx.apply_updates(network, change), moments, value


def _follow(settings: Settings, count: Int[Array, ""], slow: Any, fast: Any) -> Any:
    rate = jnp.where(count % settings.target_interval == 0, settings.target_rate, 0.0)

    def follow(old: Any, new: Any) -> Any:
        return old + rate * (new - old) if eqx.is_inexact_array(old) else old

    return jax.tree.map(follow, slow, fast)
