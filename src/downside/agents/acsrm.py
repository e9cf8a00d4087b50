r"""AC-SRM: an actor and a critic that learn from lived episodes."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm
from downside.agents.learner import AbstractLearner, Normalisation
from downside.agents.networks import (
    MLP,
    Linear,
    MakeTrunk,
    Network,
    Scale,
    input_spread,
    scaled,
)
from downside.agents.optimisers import make_optimiser
from downside.agents.policy_head import PolicyHead
from downside.agents.settings import OnPolicySettings, Settings
from downside.envs import AbstractMemoryInput, Memory, ReturnInput
from downside.envs.memory import append
from downside.ops import quantile_huber_loss, utility_score
from downside.risk import AbstractSpectralRisk, Utility

_FARTHEST = 5.0
"""Inputs of the memory are clipped here, in standard deviations of the return."""
_LEAST_DISCOUNT = 1e-3
_FIT_RATE, _KAPPA = 1e-3, 0.02
"""Learning rate and κ (in standard deviations) for the return distribution."""
_LARGEST_INPUT = 10.0
"""Inputs are normalised so that they are hardly ever larger than this."""


class LivedUtility(eqx.Module):
    """The outer variable: h, and what its inputs are measured in."""

    utility: Utility
    """h, with the share of the mean that holds at this time of the run."""
    spread: Float[Array, ""]
    """Standard deviation of the returns of the last episodes."""
    short: Float[Array, ""]
    """1 if episodes are so short that the networks see marks of the steps, else 0."""

    @property
    def location(self) -> Float[Array, ""]:
        """The mean of the knots, weighted by the slope that h loses there."""
        drops = self.utility.drops
        return (drops * self.utility.knots).sum() / jnp.maximum(drops.sum(), 1e-12)


class LivedSRM(AbstractAlgorithm):
    r"""AC-SRM: Algorithm 1 with some epochs of a policy gradient as its inner optimisation.

    Memory: (s, c). Decides: an actor network. Outer variable: h, in closed form from the returns
    of the last episodes. A transition pays $\tilde r = (h(s + c r) - h(s))/c$, and the discount is
    γ: times c, these increments add up to $h(G) - h(0)$. Where h is a line of slope 1,
    $\tilde r = r$ and the agent is PPO.

    Differs: lived episodes and an actor instead of learned return distributions
    (docs/algorithms/acsrm.md).
    """

    name: ClassVar[str] = "AC-SRM"
    has_clock: bool = eqx.field(static=True, default=False)
    """Whether the last number of an observation is the number of the step."""
    step_inputs: int = eqx.field(static=True, default=0)
    """Inputs that mark the step."""

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "LivedSRM":
        """The algorithm for a measure."""
        assert isinstance(settings, OnPolicySettings)
        made = super().make(risk, settings, levels)
        return cls(made.objective, made.gamma, settings.has_clock, settings.step_inputs)

    def memory_input(self, outer: Any) -> AbstractMemoryInput:
        """(s, c)."""
        del outer
        return ReturnInput()

    def network_input(
        self, observation: Float[Array, " d"], memory: Memory, outer: LivedUtility
    ) -> Float[Array, " e"]:
        """With s relative to the bends of h, in units of the spread; the bent part of h there; c;
        and s relative to the bends in units of what can still be earned.

        The critic learns what is added to h(s). The bends of h(s) are not in the expected utility,
        so that the critic has to take them away: easily, since it sees them. If only the mean
        counts there is nothing but the observation and, where episodes are short, the step.
        """
        accumulated, discount = memory
        steps = jnp.arange(self.step_inputs)
        number = observation[-1] if self.has_clock else self._steps_done(discount)
        marks = outer.short * (steps == jnp.round(number)).astype(float)
        observation = jnp.concatenate([observation.astype(float), marks])
        if not self.objective.levels.shape[0]:
            return observation
        h, unit = outer.utility, outer.spread
        above = (accumulated - outer.location) / unit
        bent = h(accumulated) - h.offset - h.linear * accumulated
        bent = bent / (unit * jnp.maximum(h.drops.sum(), 1e-12))
        still = jnp.clip(above / jnp.maximum(discount, _LEAST_DISCOUNT), -_FARTHEST, _FARTHEST)
        return append(observation, (above, bent, still, discount))

    def _steps_done(self, discount: Float[Array, ""]) -> Float[Array, ""]:
        """From the discount so far; nothing without a discount."""
        if self.gamma == 1.0:
            return jnp.asarray(-1.0)
        return jnp.log(jnp.maximum(discount, 1e-30)) / jnp.log(self.gamma)

    def initial_outer(self, returns: Float[Array, " n"]) -> LivedUtility:
        """The mean, with knots at the quantiles of the `returns`."""
        return self.lived(returns, jnp.ones(()))

    def lived(self, returns: Float[Array, " n"], mean_share: Float[Array, ""]) -> LivedUtility:
        """The closed form of h for these returns (Theorem 1), mixed with a share of the mean."""
        ordered, table = jnp.sort(returns), self.objective
        knots, risk_share = table.quantiles(ordered), 1.0 - mean_share
        utility = Utility(
            knots,
            risk_share * table.drops,
            linear=mean_share + risk_share * table.linear,
            offset=risk_share * (table.masses * knots).sum(),
        )
        return LivedUtility(utility, jnp.maximum(ordered.std(), 1e-6), jnp.zeros(()))

    def moved(self, old: LivedUtility, new: LivedUtility, rate: Float[Array, ""]) -> LivedUtility:
        """A share `rate` of the way from the old knots to the new ones; slopes are the new ones."""
        knots = old.utility.knots + rate * (new.utility.knots - old.utility.knots)
        shift = ((new.utility.knots - knots) * self.objective.masses).sum()
        utility = Utility(
            knots,
            new.utility.drops,
            linear=new.utility.linear,
            offset=new.utility.offset - shift,
        )
        spread = old.spread + rate * (new.spread - old.spread)
        return LivedUtility(utility, spread, old.short)

    def utility(self, outer: LivedUtility) -> Utility:
        """H."""
        return outer.utility

    def logged(self, outer: LivedUtility) -> Mapping[str, Float[Array, ""]]:
        """The lowest and the highest bend of h, and the share of the mean."""
        knots = outer.utility.knots
        if not knots.shape[0]:
            return {}
        return {"knot_low": knots[0], "knot_high": knots[-1], "slope_above": outer.utility.linear}


class ActorCritic(eqx.Module):
    """The networks of AC-SRM. They share nothing."""

    actor: Network
    critic: Network
    """The value of the increments that follow, in units of c."""
    returns: Network
    """From inputs and an action to the quantiles of the return that follows."""


class ActorCriticState(eqx.Module):
    """Networks in training."""

    networks: ActorCritic
    average: ActorCritic
    """The average of the last networks; the present ones before that begins."""
    optimiser: Any
    iterations: Int[Array, ""]
    seen: Float[Array, ""]
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
    key: Key[Array, ""]
    """Of the order in which gradient steps take them."""


class UpdateMetrics(NamedTuple):
    """What is logged of an update."""

    actor_loss: Float[Array, ""]
    critic_loss: Float[Array, ""]
    divergence: Float[Array, ""]
    """Mean KL divergence of the policy from the one that acted."""
    explained: Float[Array, ""]
    """Share of the variance of returns that the critic explained."""


class ActorCriticLearner(AbstractLearner):
    """Proximal policy optimisation (Schulman et al. 2017) on the increments of h."""

    algorithm: LivedSRM
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
            Network(_orthogonal(self.make_trunk(stream(key, name), size), key), size, (outputs,))
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
        learned = _learned(networks)
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
        outer: LivedUtility,
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
        outer: LivedUtility,
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
        outer: LivedUtility,
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
        outer: LivedUtility,
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
        outer: LivedUtility,
    ) -> Float[Array, " A"]:
        """The mean utility of the return after each of these actions."""
        quantiles = self.return_quantiles(networks, observation, memory, outer)
        return utility_score(quantiles, outer.utility, *memory)

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
        outer: LivedUtility,
        unit: Float[Array, ""] | float = 1.0,
    ) -> tuple[ActorCriticState, UpdateMetrics]:
        """Some epochs of gradient steps on a batch. Advantages and values are normalised, so that
        the `unit` of returns changes nothing."""
        del unit
        settings, networks = self.settings, state.networks
        log_anneal = self.log_anneal(state.iterations / self.iterations)
        count = batch.over.size
        rows: LivedBatch = jax.tree.map(
            lambda array: array.reshape(count, *array.shape[2:]) if array.ndim else array, batch
        )
        see = jax.vmap(lambda x, m: self.algorithm.network_input(x, m, outer))
        inputs, next_inputs = (
            see(rows.observations, rows.memory),
            see(rows.next_observations, rows.next_memory),
        )
        shape, weights = batch.over.shape, rows.is_step.astype(float)
        total = jnp.maximum(weights.sum(), 1.0)

        def average(values: Array) -> Array:
            return (values * weights).sum() / total

        # The first policy is the same for all inputs, so that their scale can still be chosen.
        first_time = state.iterations == 0
        networks, seen = _normalised(networks, inputs, weights * first_time, state.seen)
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
        ).reshape(-1)
        targets = values + advantages
        mean = average(targets)
        spread = jnp.sqrt(average((targets - mean) ** 2)) + 1e-6
        explained = 1.0 - average(advantages**2) / spread**2
        critic = _rescaled(networks.critic, mean, spread, jnp.where(first_time, 1.0, 0.1))
        networks = eqx.tree_at(lambda n: n.critic, networks, critic)
        targets = (targets - critic.scale.output_mean) / critic.scale.output_spread
        centre = average(advantages)
        advantages = (advantages - centre) / (jnp.sqrt(average((advantages - centre) ** 2)) + 1e-8)

        first_outputs, log_std = jax.vmap(
            lambda x: self._policy(networks, x, log_anneal), out_axes=(0, None)
        )(inputs)
        probability = jax.vmap(self.head.log_probability, (0, None, 0, 0))
        before = probability(first_outputs, log_std, rows.masks, rows.raw)

        # --- gradient steps
        def loss(parts: tuple, index: Array) -> tuple[Array, Any]:
            learned = _with_learned(networks, parts)
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
            error = 0.5 * (predicted - targets[index]) ** 2
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

        order = self._order(batch.key, count)
        first = (_learned(networks), state.optimiser)
        (parts, moments), metrics = jax.lax.scan(step, first, order)
        networks = _with_learned(networks, parts)
        # --- normalisation of the inputs, by all that was seen
        networks, seen = _normalised(networks, inputs, weights * ~first_time, seen)
        iterations = state.iterations + 1
        since = iterations - (1.0 - settings.averaging) * self.iterations
        rate = 1.0 / jnp.maximum(since, 1.0) if settings.averaging else jnp.ones(())
        twin = jax.tree.map(
            lambda old, new: old + rate * (new - old) if eqx.is_inexact_array(old) else old,
            state.average,
            networks,
        )
        actor_loss, critic_loss, divergence = metrics
        metrics = UpdateMetrics(actor_loss.mean(), critic_loss.mean(), divergence[-1], explained)
        return ActorCriticState(networks, twin, moments, iterations, seen), metrics

    def _order(self, key: Key[Array, ""], count: int) -> Int[Array, "u b"]:
        """Which rows each gradient step takes: in each epoch all of them, in another order."""
        epochs = self.settings.epochs
        minibatches = self.updates_per_iteration // epochs
        size = count // minibatches
        keys = jax.random.split(key, epochs)
        orders = jax.vmap(lambda key: jax.random.permutation(key, count))(keys)
        return orders[:, : minibatches * size].reshape(epochs * minibatches, size)


def generalised_advantages(
    rewards: Float[Array, "T n"],
    values: Float[Array, "T n"],
    next_values: Float[Array, "T n"],
    terminated: Bool[Array, "T n"],
    over: Bool[Array, "T n"],
    *,
    gamma: float,
    decay: float,
) -> Float[Array, "T n"]:
    r"""$A_t = \sum_k (\gamma\lambda)^k \delta_{t+k}$ up to the end of the episode (Schulman 2016).

    $\delta_t = r_t + \gamma V(x_{t+1}) - V(x_t)$, where $V(x_{t+1}) = 0$ if the episode was
    `terminated`; one that is `over` without that was truncated. λ is `decay`.
    """
    errors = rewards + gamma * jnp.where(terminated, 0.0, next_values) - values

    def back(after: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        error, over = step
        advantage = error + gamma * decay * jnp.where(over, 0.0, after)
        return advantage, advantage

    _, advantages = jax.lax.scan(back, jnp.zeros_like(values[0]), (errors, over), reverse=True)
    return advantages


# --- networks -----------------------------------------------------------------------------------


def _orthogonal(trunk: Any, key: Key[Array, ""]) -> Any:
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


def _learned(networks: ActorCritic) -> tuple[Any, Any]:
    """What gradient steps change: of the actor, and of the critic."""

    def weights(network: Network) -> Any:
        return eqx.filter((network.trunk, network.head), eqx.is_inexact_array)

    return weights(networks.actor), weights(networks.critic)


def _with_learned(networks: ActorCritic, parts: tuple[Any, Any]) -> ActorCritic:
    """The networks with other weights."""
    actor, critic = parts

    def fill(network: Network, weights: Any) -> Network:
        trunk, head = eqx.combine(weights, (network.trunk, network.head))
        return eqx.tree_at(lambda n: (n.trunk, n.head), network, (trunk, head))

    return ActorCritic(fill(networks.actor, actor), fill(networks.critic, critic), networks.returns)


def _rescaled(network: Network, mean: Array, spread: Array, rate: Array) -> Network:
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


def _normalised(
    networks: ActorCritic, inputs: Array, weights: Array, seen: Array
) -> tuple[ActorCritic, Array]:
    """With the mean and the spread of all inputs so far, of which there were `seen`."""
    scale, count = networks.actor.scale, weights.sum()
    mean = (inputs * weights[:, None]).sum(axis=0) / jnp.maximum(count, 1.0)
    variance = ((inputs - mean) ** 2 * weights[:, None]).sum(axis=0) / jnp.maximum(count, 1.0)
    share = count / (seen + count)
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
    ), seen + count
