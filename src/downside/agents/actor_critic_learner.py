"""How AC-SRM learns: proximal policy optimisation on batches of lived steps."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.actor_critic import (
    ActorCritic,
    learned_weights,
    normalised,
    orthogonal,
    rescaled,
    with_learned,
)
from downside.agents.algorithm import OuterVariable
from downside.agents.learner import AbstractLearner, Normalisation
from downside.agents.lived import AbstractLivedAlgorithm
from downside.agents.networks import MLP, MakeTrunk, Network, Scale, input_spread, scaled
from downside.agents.optimisers import make_optimiser
from downside.agents.policy_head import PolicyHead
from downside.agents.settings import OnPolicySettings
from downside.envs import Memory
from downside.ops import (
    generalised_advantages,
    less_common_noise,
    quantile_huber_loss,
    utility_score,
)

_FIT_RATE, _KAPPA = 1e-3, 0.02
"""Learning rate and κ (in standard deviations) for the return distribution."""


class ActorCriticState(eqx.Module):
    """Networks in training."""

    networks: ActorCritic
    average: ActorCritic
    """The average of the last networks; the present ones before that begins."""
    optimiser: Any
    iterations: Int[Array, ""]
    input_count: Float[Array, ""]
    """Transitions that the normalisation of the inputs comes from."""


class LivedBatch(NamedTuple):
    """T steps of n environments."""

    observations: Float[Array, "T n d"]
    memory: Memory
    masks: Bool[Array, "T n m"]
    raw: Float[Array, "T n r"]
    """Raw actions (`PolicyHead`)."""
    increments: Float[Array, "T n"]
    """(h(s') - h(s)) / c."""
    next_observations: Float[Array, "T n d"]
    """Of an episode that ended, its last observation."""
    next_memory: Memory
    terminated: Bool[Array, "T n"]
    over: Bool[Array, "T n"]
    is_step: Bool[Array, "T n"]
    """False where an environment did nothing but reset."""
    order: Int[Array, "u b"]
    """Which of the T n transitions each gradient step takes."""
    positions: Any = None
    """Of the episodes that the steps belong to, if they have positions."""


class UpdateMetrics(NamedTuple):
    """What is logged of an update."""

    actor_loss: Float[Array, ""]
    critic_loss: Float[Array, ""]
    divergence: Float[Array, ""]
    """Mean KL divergence of the policy from the one that acted."""
    explained: Float[Array, ""]
    """Share of the variance of returns that the critic explained."""
    common_noise: Float[Array, ""]
    """How much of an advantage the other episodes of the same seed foretold (β); 0 if there are
    none, or if the environment makes nothing of its seed."""


class ActorCriticLearner(AbstractLearner):
    """Proximal policy optimisation (Schulman et al. 2017) on the increments of h."""

    algorithm: AbstractLivedAlgorithm
    settings: OnPolicySettings = eqx.field(static=True)
    make_trunk: MakeTrunk = eqx.field(static=True)
    head: PolicyHead
    iterations: int = eqx.field(static=True)
    """Of the run, for its schedules."""
    updates_per_iteration: int = eqx.field(static=True)

    # --- networks -----------------------------------------------------------------------------

    def init(
        self, key: Key[Array, ""], size: int, normalisation: Normalisation | None = None
    ) -> ActorCriticState:
        """Fresh networks, for inputs of this size."""
        del normalisation  # by what the first iteration shows
        actor, critic = (
            Network(orthogonal(self.make_trunk(stream(key, name), size), key), size, (outputs,))
            for name, outputs in (("actor", self.head.outputs), ("critic", 1))
        )
        returns = self._new_returns(stream(key, "returns"), size)
        return self.restart(ActorCritic(actor, critic, returns))

    def _new_returns(self, key: Key[Array, ""], size: int) -> Network:
        """A network for the return distribution, which sees an action behind the inputs."""
        settings = self.settings
        wide = size + self.head.outputs
        trunk = MLP(key, wide, settings.hidden_sizes, settings.activation, settings.layer_norm)
        return Network(trunk, wide, (1, settings.quantiles))

    def restart(self, networks: ActorCritic) -> ActorCriticState:
        """Networks about to be trained, with a fresh optimiser."""
        twin = jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, networks)
        learned = learned_weights(networks)
        return ActorCriticState(
            networks,
            twin,
            tuple(self._optimiser.init(part) for part in learned),
            jnp.zeros((), jnp.int32),
            jnp.ones(()),
        )

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        updates = self.iterations * self.updates_per_iteration
        return make_optimiser(self.settings, updates)

    # --- decisions ----------------------------------------------------------------------------

    def act(
        self,
        networks: ActorCritic,
        observation: Float[Array, " d"],
        memory: Memory,
        mask: Bool[Array, " m"],
        outer: OuterVariable,
    ) -> Array:
        """The action of the deterministic policy."""
        inputs = self.algorithm.network_input(observation, memory, outer)
        return self.head.action(self.head.mode(networks.actor(inputs), mask))

    def explore(
        self,
        networks: ActorCritic,
        observation: Float[Array, " d"],
        memory: Memory,
        mask: Bool[Array, " m"],
        outer: OuterVariable,
        noise: Float[Array, " o"],
        log_anneal: Float[Array, ""],
    ) -> tuple[Float[Array, " r"], Array]:
        """A raw action at random, and the action that the environment takes."""
        inputs = self.algorithm.network_input(observation, memory, outer)
        outputs, log_std = self._policy(networks, inputs, log_anneal)
        raw = self.head.sample(outputs, log_std, mask, noise)
        return raw, self.head.action(raw)

    def _policy(
        self, networks: ActorCritic, inputs: Float[Array, " e"], log_anneal: Float[Array, ""]
    ) -> tuple[Float[Array, " o"], Float[Array, " k"]]:
        outputs = networks.actor(inputs)
        if self.head.choices:  # a temperature
            return outputs * jnp.exp(-log_anneal), jnp.zeros(0)
        return outputs, jnp.full(outputs.shape, math.log(self.settings.noise)) + log_anneal

    def log_anneal(self, progress: Any) -> Any:
        """The log of what the noise is multiplied by at this share of the run."""
        final = (
            self.settings.final_noise if not self.head.choices else self.settings.final_temperature
        )
        return progress * jnp.log(final)

    # --- return distributions -----------------------------------------------------------------

    def quantiles_of(
        self,
        networks: ActorCritic,
        observation: Float[Array, " d"],
        memory: Memory,
        outer: OuterVariable,
        raw: Float[Array, " r"],
    ) -> Float[Array, " N"]:
        """The quantiles of the return that follows a raw action."""
        inputs = self.algorithm.network_input(observation, memory, outer)
        return networks.returns(jnp.concatenate([inputs, self.head.encode(raw)]))[0]

    def return_quantiles(
        self,
        networks: ActorCritic,
        observation: Float[Array, " d"],
        memory: Memory,
        outer: OuterVariable,
    ) -> Float[Array, "A N"]:
        """The quantiles of the return after each action of a Discrete space; of any other, after
        the action of the policy."""
        if len(self.head.choices) == 1:
            raws = jnp.arange(self.head.outputs, dtype=float)[:, None]
        else:
            inputs = self.algorithm.network_input(observation, memory, outer)
            raws = self.head.mode(networks.actor(inputs), jnp.ones(self.head.mask_size, bool))[None]
        return jax.vmap(lambda raw: self.quantiles_of(networks, observation, memory, outer, raw))(
            raws
        )

    def scores(
        self,
        networks: ActorCritic,
        observation: Float[Array, " d"],
        memory: Memory,
        outer: OuterVariable,
    ) -> Float[Array, " A"]:
        """The mean utility of the return after each of these actions."""
        quantiles = self.return_quantiles(networks, observation, memory, outer)
        return utility_score(quantiles, self.algorithm.utility(outer), *memory)

    def fit_returns(
        self,
        returns: Network,
        inputs: Float[Array, "n e"],
        targets: Float[Array, " n"],
        orders: Int[Array, "u b"],
    ) -> tuple[Network, Float[Array, ""]]:
        """Quantile regression of returns on inputs with actions; a gradient step for each order."""
        mean, deviation = inputs.mean(axis=0), input_spread(inputs)
        deviation = jnp.where(deviation > 1e-6 * (1.0 + jnp.abs(mean)), deviation, 1.0)
        unit = jnp.maximum(targets.std(), 1e-6)
        returns = scaled(returns, Scale(mean, deviation, targets.mean(), unit))
        weights, rest = eqx.partition((returns.trunk, returns.head), eqx.is_inexact_array)
        rate = optax.cosine_decay_schedule(_FIT_RATE, orders.shape[0])
        optimiser = optax.adam(rate)

        def network(weights: Any) -> Network:
            return eqx.tree_at(lambda n: (n.trunk, n.head), returns, eqx.combine(weights, rest))

        def loss(weights: Any, index: Array) -> Array:
            quantiles = jax.vmap(network(weights))(inputs[index])[:, 0] / unit
            losses = jax.vmap(lambda q, y: quantile_huber_loss(q, y[None], kappa=_KAPPA))
            return losses(quantiles, targets[index] / unit).mean()

        def step(carry: tuple, index: Array) -> tuple[tuple, Array]:
            weights, moments = carry
            value, gradient = jax.value_and_grad(loss)(weights, index)
            change, moments = optimiser.update(gradient, moments)
            return (eqx.apply_updates(weights, change), moments), value

        first = (weights, optimiser.init(weights))
        (weights, _), losses = jax.lax.scan(step, first, orders)
        return network(weights), losses[-losses.shape[0] // 10 :].mean()

    # --- updates ------------------------------------------------------------------------------

    def update(
        self,
        state: ActorCriticState,
        batch: LivedBatch,
        outer: OuterVariable,
        unit: Float[Array, ""] | float = 1.0,
    ) -> tuple[ActorCriticState, UpdateMetrics]:
        """Some epochs of gradient steps on a batch. Advantages and values are normalised, so that
        the `unit` of returns changes nothing."""
        del unit
        settings, networks = self.settings, state.networks
        log_anneal = self.log_anneal(state.iterations / self.iterations)
        count = batch.over.size
        rows: LivedBatch = jax.tree.map(
            lambda array: array.reshape(count, *array.shape[2:]), batch._replace(order=batch.over)
        )
        algorithm = self.algorithm
        see = jax.vmap(lambda x, m, p: algorithm.network_input(x, m, algorithm.placed(outer, p)))
        inputs, next_inputs = (
            see(rows.observations, rows.memory, rows.positions),
            see(rows.next_observations, rows.next_memory, rows.positions),
        )
        shape, weights = batch.over.shape, rows.is_step.astype(float)
        total = jnp.maximum(weights.sum(), 1.0)

        def average(values: Array) -> Array:
            return (values * weights).sum() / total

        emphasis = jnp.broadcast_to(algorithm.emphasis(rows.positions), weights.shape)
        emphasis = emphasis / jnp.sqrt(average(emphasis**2))

        # The first policy is the same for all inputs, so that their scale can still be chosen.
        first_time = state.iterations == 0
        networks, input_count = normalised(
            networks, inputs, weights * first_time, state.input_count
        )
        # --- the critic's scale, advantages and targets
        values = jax.vmap(networks.critic)(inputs)[:, 0]
        next_values = jax.vmap(networks.critic)(next_inputs)[:, 0]
        advantages = generalised_advantages(
            batch.increments,
            values.reshape(shape),
            next_values.reshape(shape),
            batch.terminated,
            batch.over | ~batch.is_step,
            gamma=settings.gamma,
            decay=settings.gae_lambda,
        )
        errors = advantages.reshape(-1)
        targets = values + errors
        mean = average(emphasis**2 * targets)
        spread = jnp.sqrt(average((emphasis * (targets - mean)) ** 2)) + 1e-6
        explained = 1.0 - average((emphasis * errors) ** 2) / spread**2
        critic = rescaled(networks.critic, mean, spread, jnp.where(first_time, 1.0, 0.1))
        networks = eqx.tree_at(lambda n: n.critic, networks, critic)
        targets = (targets - critic.scale.output_mean) / critic.scale.output_spread
        common_noise = jnp.zeros(())
        advantages = advantages * emphasis.reshape(shape)
        if settings.episodes_per_seed > 1:
            advantages, common_noise = less_common_noise(
                advantages, weights.reshape(shape), settings.episodes_per_seed
            )
        advantages = advantages.reshape(-1)
        centre = average(advantages)
        advantages = (advantages - centre) / (jnp.sqrt(average((advantages - centre) ** 2)) + 1e-8)

        first_outputs, log_std = jax.vmap(
            lambda x: self._policy(networks, x, log_anneal), out_axes=(0, None)
        )(inputs)
        probability = jax.vmap(self.head.log_probability, (0, None, 0, 0))
        before = probability(first_outputs, log_std, rows.masks, rows.raw)

        # --- gradient steps
        def loss(parts: tuple, index: Array) -> tuple[Array, Any]:
            learned = with_learned(networks, parts)
            outputs = jax.vmap(lambda x: self._policy(learned, x, log_anneal)[0])(inputs[index])
            masks, weight = rows.masks[index], weights[index] / total * count
            now = probability(outputs, log_std, masks, rows.raw[index])
            divergence = jax.vmap(self.head.divergence, (0, 0, None, 0))(
                first_outputs[index], outputs, log_std, masks
            )
            entropy = jax.vmap(self.head.entropy, (0, None, 0))(outputs, log_std, masks)
            ratio, advantage = jnp.exp(now - before[index]), advantages[index]
            reach = settings.clip_range * jnp.abs(advantage)
            near = jnp.clip(ratio, 1.0 - reach, 1.0 + reach)
            gain = jnp.minimum(ratio * advantage, near * advantage)
            gain = gain + settings.ent_coef * entropy
            scale = learned.critic.scale
            predicted = jax.vmap(learned.critic)(inputs[index])[:, 0]
            predicted = (predicted - scale.output_mean) / scale.output_spread
            error = 0.5 * (emphasis[index] * (predicted - targets[index])) ** 2
            actor_loss, critic_loss, divergence = (
                (part * weight).mean() for part in (-gain, error, divergence)
            )
            return actor_loss + critic_loss, (actor_loss, critic_loss, divergence)

        def step(carry: tuple, index: Array) -> tuple[tuple, Any]:
            parts, moments = carry
            gradient, metrics = jax.grad(loss, has_aux=True)(parts, index)
            changes, moments = zip(
                *(
                    self._optimiser.update(g, m, p)
                    for g, m, p in zip(gradient, moments, parts, strict=True)
                ),
                strict=True,
            )
            parts = tuple(eqx.apply_updates(p, c) for p, c in zip(parts, changes, strict=True))
            return (parts, moments), metrics

        first = (learned_weights(networks), state.optimiser)
        (parts, moments), metrics = jax.lax.scan(step, first, batch.order)
        networks = with_learned(networks, parts)
        # --- normalisation of the inputs, by all so far
        networks, input_count = normalised(networks, inputs, weights * ~first_time, input_count)
        iterations = state.iterations + 1
        since = iterations - (1.0 - settings.averaging) * self.iterations
        rate = 1.0 / jnp.maximum(since, 1.0) if settings.averaging else jnp.ones(())
        twin = jax.tree.map(
            lambda old, new: old + rate * (new - old) if eqx.is_inexact_array(old) else old,
            state.average,
            networks,
        )
        actor_loss, critic_loss, divergence = metrics
        metrics = UpdateMetrics(
            actor_loss.mean(), critic_loss.mean(), divergence[-1], explained, common_noise
        )
        return ActorCriticState(networks, twin, moments, iterations, input_count), metrics
