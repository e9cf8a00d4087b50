"""Quantile Q-learning (Algorithm 2), with the score of any algorithm of the family."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import (
    AbstractQuantileAlgorithm,
    BranchedTransition,
    OuterVariable,
)
from downside.agents.learner import AbstractLearner, Normalisation
from downside.agents.networks import (
    Ensemble,
    MakeTrunk,
    Network,
    Scale,
    members,
    scaled,
    with_blank_inputs,
)
from downside.agents.optimisers import make_optimiser
from downside.agents.settings import QuantileSettings, SimulatorSettings
from downside.envs import Memory
from downside.ops import greedy, masked, quantile_huber_loss, return_targets

_LEAST_KAPPA = 1e-6


class Networks(eqx.Module):
    """What is learned."""

    critic: Network | None
    """The score of every action; None where the score is computed from the quantiles."""
    quantiles: Network | Ensemble
    """The quantiles of every action's return."""


class LearnerState(eqx.Module):
    """Networks in training."""

    networks: Networks
    targets: Networks
    """The target networks."""
    critic_optimiser: Any
    quantile_optimiser: Any
    critic_updates: Int[Array, ""]
    quantile_updates: Int[Array, ""]


class QuantileLearner(AbstractLearner):
    """Quantile Q-learning with the score of an algorithm (Algorithm 2), and optionally a critic
    that learns the score itself."""

    algorithm: AbstractQuantileAlgorithm
    settings: QuantileSettings = eqx.field(static=True)
    make_trunk: MakeTrunk = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    updates: int = eqx.field(static=True)
    """Length of the schedule of the networks that score actions."""
    quantile_updates: int = eqx.field(static=True)
    """Length of the schedule of the quantiles."""
    anchored: bool = eqx.field(static=True, default=False)
    """Whether the critic learns what an action adds to the score of an episode that is over here.
    Where episodes need not end, nothing else would hold the scores in place."""

    @property
    def has_critic(self) -> bool:
        """Whether a network learns the score itself."""
        return self.settings.critic == "utility"

    # --- networks -----------------------------------------------------------------------------

    def init(
        self, key: Key[Array, ""], size: int, normalisation: Normalisation | None
    ) -> LearnerState:
        """Fresh networks."""
        critic = None
        if self.has_critic:
            critic = Network(
                self.make_trunk(stream(key, "critic trunk"), size), size, (self.num_actions,)
            )
        shape = (self.num_actions, self.settings.quantiles)
        first = stream(key, "quantile trunk")
        count = self.settings.num_critics
        keys = [first] + [jax.random.fold_in(first, i) for i in range(1, count)]
        make = with_blank_inputs(self.make_trunk, self.algorithm.inputs_hidden_at_first)
        members = tuple(Network(make(member, size), size, shape) for member in keys)
        quantiles = members[0] if len(members) == 1 else Ensemble(members)
        networks = Networks(critic, quantiles)
        if normalisation is not None:
            networks = _normalised(networks, normalisation)
        return self.restart(networks)

    def restart(self, networks: Networks) -> LearnerState:
        """Networks about to be trained, with fresh optimisers."""
        # Two copies of one array would be one buffer, which cannot be given away twice.
        twin = jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, networks)
        return LearnerState(
            networks,
            twin,
            None if networks.critic is None else self._optimiser.init(_trainable(networks.critic)),
            self._quantile_optimiser.init(_trainable(networks.quantiles)),
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
        )

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return make_optimiser(self.settings, self.updates)

    @property
    def _quantile_optimiser(self) -> optax.GradientTransformation:
        return make_optimiser(self.settings, self.quantile_updates)

    # --- decisions ----------------------------------------------------------------------------

    def scores(
        self,
        networks: Networks,
        observation: Float[Array, " d"],
        memory: Memory,
        outer: OuterVariable,
        actions: Int[Array, " b"] | None = None,
    ) -> Float[Array, " b"]:
        """The score of every action, or of some `actions`."""
        algorithm = self.algorithm
        inputs = algorithm.network_input(observation, memory, outer)
        if networks.critic is not None:
            outputs = networks.critic(inputs, actions)
            return algorithm.anchored(outputs, memory, outer) if self.anchored else outputs
        return algorithm.quantile_scores(networks.quantiles(inputs, actions), memory, outer)

    def act(
        self,
        networks: Networks,
        observation: Float[Array, " d"],
        memory: Memory,
        mask: Bool[Array, " A"],
        outer: OuterVariable,
    ) -> Int[Array, ""]:
        """The legal action with the highest score."""
        return greedy(self.scores(networks, observation, memory, outer), mask)

    def return_quantiles(
        self,
        networks: Networks,
        observation: Float[Array, " d"],
        memory: Memory,
        outer: OuterVariable,
    ) -> Float[Array, "A N"]:
        """The learned quantiles of every action's return, in no order."""
        return networks.quantiles(self.algorithm.network_input(observation, memory, outer))

    # --- updates ------------------------------------------------------------------------------

    def update(
        self,
        state: LearnerState,
        batch: BranchedTransition,
        outer: OuterVariable,
        unit: Float[Array, ""],
    ) -> tuple[LearnerState, Float[Array, ""]]:
        """One gradient step of the networks that score actions."""
        if self.has_critic:
            return self.update_critic(state, batch, outer)
        return self.update_quantiles(state, batch, outer, unit)

    def update_critic(
        self, state: LearnerState, batch: BranchedTransition, outer: OuterVariable
    ) -> tuple[LearnerState, Float[Array, ""]]:
        """One gradient step of the critic."""
        settings = self.settings
        # Of a transition that was lived through there is one action, which has no advantage.
        branched = isinstance(settings, SimulatorSettings)
        advantage_weight = settings.advantage_weight if branched else 1.0
        targets = jax.vmap(
            lambda transition: self.critic_targets(state.targets, transition, outer)
        )(batch)

        def loss(critic: Network) -> Array:
            networks = Networks(critic, state.networks.quantiles)

            def of_one(transition: BranchedTransition, target: Array) -> Array:
                scores = self.scores(
                    networks, transition.observation, transition.memory, outer, transition.actions
                )
                unit = jax.lax.stop_gradient(critic.scale.output_spread)
                return advantage_loss(
                    scores / unit, target / unit, transition.weights, advantage_weight
                )

            return jax.vmap(of_one)(batch, targets).mean()

        critic, moments, value = _gradient_step(
            self._optimiser, state.critic_optimiser, state.networks.critic, loss
        )
        count = state.critic_updates + 1
        slow = self._follow(count, state.targets.critic, critic)
        state = eqx.tree_at(
            lambda s: (s.networks.critic, s.targets.critic, s.critic_optimiser, s.critic_updates),
            state,
            (critic, slow, moments, count),
        )
        return state, value

    def critic_targets(
        self, targets: Networks, transition: BranchedTransition, outer: OuterVariable
    ) -> Float[Array, " b"]:
        """The value of each action: the mean over its outcomes of the best score that follows."""

        def of_outcome(
            observation: Array, memory: Memory, mask: Array, terminated: Array, discount: Array
        ) -> Array:
            best = masked(self.scores(targets, observation, memory, outer), mask).max()
            return self.algorithm.critic_target(memory, best, terminated, discount, outer)

        return jax.vmap(jax.vmap(of_outcome))(
            transition.next_observations,
            transition.next_memory,
            transition.next_masks,
            transition.terminated,
            transition.discounts,
        ).mean(axis=-1)

    def update_quantiles(
        self,
        state: LearnerState,
        batch: BranchedTransition,
        outer: OuterVariable,
        unit: Float[Array, ""],
    ) -> tuple[LearnerState, Float[Array, ""]]:
        """One gradient step of the quantiles; κ is in `unit`s.

        Where returns have no spread the loss is quadratic up to their size: quantiles then meet,
        where those of the absolute loss would keep on crossing the target.
        """
        size = members(state.networks.quantiles)[0].scale.output_spread
        unit = jnp.where(unit > 0.0, unit, size / jnp.maximum(self.settings.kappa, _LEAST_KAPPA))
        targets = jax.vmap(
            lambda transition: self.quantile_targets(state.targets, transition, outer)
        )(batch)

        def loss(network: Network | Ensemble) -> Array:
            if isinstance(network, Ensemble):  # each by itself, or they would not differ
                return jnp.stack([loss(member) for member in network.members]).sum()

            def of_one(transition: BranchedTransition, target: Array) -> Array:
                inputs = self.algorithm.network_input(
                    transition.observation, transition.memory, outer
                )
                losses = jax.vmap(
                    lambda theta, y: quantile_huber_loss(
                        theta / unit, y / unit, kappa=self.settings.kappa
                    )
                )(network(inputs, transition.actions), target)
                return (losses * transition.weights).sum() / transition.weights.sum()

            return jax.vmap(of_one)(batch, targets).mean()

        network, moments, value = _gradient_step(
            self._quantile_optimiser, state.quantile_optimiser, state.networks.quantiles, loss
        )
        count = state.quantile_updates + 1
        slow = self._follow(count, state.targets.quantiles, network)
        state = eqx.tree_at(
            lambda s: (
                s.networks.quantiles,
                s.targets.quantiles,
                s.quantile_optimiser,
                s.quantile_updates,
            ),
            state,
            (network, slow, moments, count),
        )
        return state, value

    def quantile_targets(
        self, targets: Networks, transition: BranchedTransition, outer: OuterVariable
    ) -> Float[Array, "b KN"]:
        """Samples of the return of each action: r + γ θ' of the best action that follows."""

        def of_outcome(
            reward: Array,
            observation: Array,
            memory: Memory,
            mask: Array,
            terminated: Array,
            discount: Array,
        ) -> Array:
            inputs = self.algorithm.network_input(observation, memory, outer)
            quantiles = _each(targets.quantiles, inputs)
            if targets.critic is not None:
                best = self.act(targets, observation, memory, mask, outer)
            else:  # the quantiles are computed once, for the choice and for what follows it
                mean = quantiles.mean(axis=0)
                best = greedy(self.algorithm.quantile_scores(mean, memory, outer), mask)
            after = self._lowest(quantiles[:, best], memory, outer)
            return return_targets(reward, after, gamma=discount, terminated=terminated)

        samples = jax.vmap(jax.vmap(of_outcome))(
            transition.rewards,
            transition.next_observations,
            transition.next_memory,
            transition.next_masks,
            transition.terminated,
            transition.discounts,
        )
        return samples.reshape(samples.shape[0], -1)

    def _lowest(
        self, quantiles: Float[Array, "k N"], memory: Memory, outer: OuterVariable
    ) -> Float[Array, " N"]:
        """The quantiles of an action, from the network that scores it lowest: the maximum over
        actions overestimates, and seldom in all networks."""
        if quantiles.shape[0] == 1:
            return quantiles[0]
        return quantiles[jnp.argmin(self.algorithm.quantile_scores(quantiles, memory, outer))]

    def _follow(self, count: Int[Array, ""], slow: Any, fast: Any) -> Any:
        due = count % self.settings.target_interval == 0
        rate = jnp.where(due, self.settings.target_rate, 0.0)

        def follow(old: Any, new: Any) -> Any:
            return old + rate * (new - old) if eqx.is_inexact_array(old) else old

        return jax.tree.map(follow, slow, fast)


def advantage_loss(
    predicted: Float[Array, " b"],
    target: Float[Array, " b"],
    weights: Float[Array, " b"],
    advantage_weight: float,
) -> Float[Array, ""]:
    r"""Squared errors, split into what all actions share and what tells them apart.

    $\bar e^2 + w \sum_a m_a (e_a - \bar e)^2$ with $e$ the error of each action, $\bar e$ its mean
    under the normalised `weights` $m$, and $w$ = `advantage_weight`. The outcomes of all actions
    share their noise, which cancels in the second term: it decides, and it is precise.
    """
    share = weights / weights.sum()
    error = predicted - target
    common = (share * error).sum()
    return common**2 + advantage_weight * (share * (error - common) ** 2).sum()


def _normalised(networks: Networks, normalisation: Normalisation) -> Networks:
    n = normalisation
    critic = networks.critic
    if critic is not None:
        scale = Scale(n.input_mean, n.input_spread, jnp.zeros(()), n.return_size)
        critic = scaled(critic, scale)
    scale = Scale(n.input_mean, n.input_spread, n.return_mean, n.return_size)
    quantiles = scaled(networks.quantiles, scale)
    biases = lambda net: [member.head.bias for member in members(net)]  # noqa: E731
    # Where there is no spread, none has to be unlearned.
    first = [n.return_spread / n.return_size * bias for bias in biases(quantiles)]
    return Networks(critic, eqx.tree_at(biases, quantiles, first))


def _each(network: Network | Ensemble, inputs: Float[Array, " e"]) -> Float[Array, "k A N"]:
    """The quantiles of every action, by each of the networks."""
    return network.each(inputs) if isinstance(network, Ensemble) else network(inputs)[None]


def _trainable(network: Network | Ensemble | None) -> Any:
    return eqx.filter(network, eqx.is_inexact_array)


def _gradient_step(
    optimiser: optax.GradientTransformation, moments: Any, network: Any, loss: Any
) -> tuple[Any, Any, Float[Array, ""]]:
    value, gradient = eqx.filter_value_and_grad(loss)(network)
    change, moments = optimiser.update(gradient, moments, _trainable(network))
    return eqx.apply_updates(network, change), moments, value
