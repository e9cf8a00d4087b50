r"""PG-SRM: an actor, trained by differentiating the risk measure of whole simulated episodes."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.actor import ActionHead, Actor, Clock
from downside.agents.algorithm import AbstractActorAlgorithm, OuterVariable
from downside.agents.backward import backward_loss
from downside.agents.branching import Episodes, branched_loss, input_statistics, simulate_choices
from downside.agents.choice_dial import ChoiceDial
from downside.agents.learner import AbstractLearner, Normalisation
from downside.agents.networks import MakeTrunk
from downside.agents.optimisers import make_optimiser
from downside.agents.segments import SegmentState, init_segments, next_segment, segment_loss
from downside.agents.settings import PathwiseSettings, Settings
from downside.envs import (
    AbstractJaxEnv,
    AbstractMemoryInput,
    Memory,
    NoMemoryInput,
    ReturnInput,
)
from downside.envs.rollout import mirrored_noises, unroll
from downside.risk import AbstractSpectralRisk, Utility

_STATISTICS_RATE = 0.01
"""How fast the normalisation of the inputs follows the states that the policy visits."""
_STATISTICS_UNTIL = 0.5
"""Share of the run after which it stays."""


_SATURATION, _SATURATION_WEIGHT = 3.0, 0.01
"""Outputs beyond this, where tanh is flat, are pulled back: a policy that was bold while the mean
counted could not become cautious otherwise."""
_ADAM_B2 = 0.95
"""Gradients of a tail change their size as the policy becomes cautious: forget old ones soon."""


class ActorSRM(AbstractActorAlgorithm):
    r"""PG-SRM: Algorithm 1 with one gradient step as its inner optimisation.

    Memory: (s, c). Decides: an actor network. Outer variable: h, in closed form from the sorted
    returns of each batch. With h held, the gradient of $\mathrm{SRM}(G)$ is that of
    $\mathbb{E}[h(G)]$ (envelope theorem), so that both steps of Algorithm 1 are one: the gradient
    of the risk measure of the returns of a batch.

    Differs: continuous actions, and no learned return distribution (docs/algorithms/pgsrm.md).
    """

    name: ClassVar[str] = "PG-SRM"
    see_memory: bool = eqx.field(static=True, default=True)
    """Whether the actor sees (s, c)."""

    @classmethod
    def make(
        cls, risk: AbstractSpectralRisk, settings: Settings, levels: int | None = None
    ) -> "ActorSRM":
        """The algorithm for a measure."""
        made = super().make(risk, settings, levels)
        assert isinstance(settings, PathwiseSettings)
        return cls(made.objective, made.gamma, settings.see_memory)

    def memory_input(self, outer: OuterVariable) -> AbstractMemoryInput:
        """(s, c), or nothing."""
        del outer
        return ReturnInput() if self.see_memory else NoMemoryInput()

    def initial_outer(self, returns: Float[Array, " n"]) -> Utility:
        """The utility of the mean, with the knots at the quantiles of the `returns`."""
        return self.closed_form(returns)

    def closed_form(self, returns: Float[Array, " n"]) -> Utility:
        """The h under which the mean utility of these returns is their risk value (Theorem 1)."""
        return self.objective.utility(self.objective.quantiles(jnp.sort(returns)))

    def utility(self, outer: Utility) -> Utility:
        """H."""
        return outer

    @property
    def inputs_appended(self) -> int:
        """(s, c), or nothing."""
        return self.memory_input(None).size

    def positions(self, key: Key[Array, ""], count: int, outer: OuterVariable) -> None:
        """None: all episodes share the measure."""
        del key, count, outer

    def batch_value(self, returns: Float[Array, " n"], positions: None) -> Float[Array, ""]:
        """The risk measure of the returns."""
        del positions
        return self.objective.value(jnp.sort(returns))

    def utilities(
        self, returns: Float[Array, "n *A"], main: Float[Array, " m"], positions: None
    ) -> Float[Array, "n *A"]:
        """H in closed form from the `main` returns."""
        del positions
        return self.closed_form(main)(returns)

    def measuring_positions(self, outer: OuterVariable, count: int) -> None:
        """None: all episodes share the measure."""
        del outer, count

    def measured(
        self, outer: OuterVariable, returns: Float[Array, " n"]
    ) -> tuple[Float[Array, ""], Utility]:
        """The risk measure of the returns, and its h."""
        del outer
        ordered = jnp.sort(returns)
        return self.objective.value(ordered), self.closed_form(ordered)

    def logged(self, outer: Utility) -> Mapping[str, Float[Array, ""]]:
        """The lowest and the highest bend of h."""
        knots = outer.knots
        return {"knot_low": knots[0], "knot_high": knots[-1]} if knots.shape[0] else {}


class ActorState(eqx.Module):
    """An actor in training."""

    networks: Actor
    average: Actor
    """The average of the last actors; the present one before that begins."""
    optimiser: Any
    updates: Int[Array, ""]
    segments: SegmentState | None = None
    """Of long episodes, where they go on and the critic; None where whole ones are simulated."""


class PathwiseLearner(AbstractLearner):
    """Differentiates the risk measure of simulated episodes by the weights of the actor."""

    algorithm: AbstractActorAlgorithm
    settings: PathwiseSettings = eqx.field(static=True)
    make_trunk: MakeTrunk = eqx.field(static=True)
    env: AbstractJaxEnv
    """The environment as it is simulated: with continuous actions."""
    problem: AbstractJaxEnv
    """The environment as it was given: with the masks of its discrete actions."""
    head: ActionHead
    clock: Clock | None
    horizon: int = eqx.field(static=True)
    """Steps of an episode."""
    updates: int = eqx.field(static=True)
    """Updates of the run, for its schedules."""

    # --- networks -----------------------------------------------------------------------------

    def init(
        self,
        key: Key[Array, ""],
        size: int,
        normalisation: Normalisation | None = None,
        outer: OuterVariable = None,
    ) -> ActorState:
        """A fresh actor, whose inputs are normalised by what its first episodes show."""
        del normalisation
        actor = Actor.make(key, self.make_trunk, size, self.head.outputs, self.clock)
        first = stream(key, "first episodes")
        positions = self.algorithm.positions(first, self.settings.batch_size, outer)
        episodes = self.simulate(actor, first, jnp.zeros((), bool), positions)
        actor = _normalised(actor, episodes, 1.0)
        segments = None
        if self.in_segments:
            segments = init_segments(self, actor, stream(key, "segments"), episodes.returns)
        return self.restart(actor, segments)

    def restart(self, actor: Actor, segments: SegmentState | None = None) -> ActorState:
        """An actor about to be trained, with a fresh optimiser."""
        twin = jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, actor)
        moments = self._optimiser.init(_weights(actor))
        return ActorState(actor, twin, moments, jnp.zeros((), jnp.int32), segments)

    @property
    def in_segments(self) -> bool:
        """Whether episodes are too long to be differentiated as a whole."""
        return self.head.low is not None and self.settings.in_segments(self.horizon)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return make_optimiser(self.settings, self.updates, b2=_ADAM_B2)

    # --- decisions ----------------------------------------------------------------------------

    def act(
        self,
        networks: Actor,
        observation: Float[Array, " d"],
        memory: Memory,
        mask: Bool[Array, " A"],
        outer: Any,
    ) -> Array:
        """The action of the policy."""
        inputs = self.algorithm.network_input(observation, memory, outer)
        outputs = networks(inputs, networks.step(observation, memory))
        return self.head.action(outputs, mask)

    # --- updates ------------------------------------------------------------------------------

    def simulate(
        self,
        actor: Actor,
        key: Key[Array, ""],
        rounded: Bool[Array, ""],
        positions: Any,
        count: int | None = None,
        *,
        noisy: bool = False,
    ) -> Episodes:
        """A batch of whole episodes, differentiable in the weights of the actor; where `noisy`,
        with noise before actions are rounded.

        Of unordered actions, the best one is chosen, and there is nothing to differentiate.
        """
        count = self.settings.batch_size if count is None else count
        if self.head.low is None:
            return simulate_choices(self, actor, key, positions, count)
        starts = jax.vmap(self.env.initial_state)(jax.random.split(stream(key, "start"), count))
        memory, (inputs, beyond), running = unroll(
            self.env,
            self.relaxed_act(actor, rounded, positions, key if noisy else None),
            starts,
            lambda time: mirrored_noises(self.env, stream(key, "time", time), count),
            gamma=self.settings.gamma,
            horizon=self.horizon,
            remember=self.horizon <= self.settings.step_networks,
        )
        statistics = input_statistics(inputs, running)
        return Episodes(memory.accumulated, *statistics, saturation=beyond.mean())

    def relaxed_act(
        self,
        actor: Actor,
        rounded: Bool[Array, ""],
        positions: Any = None,
        key: Key[Array, ""] | None = None,
    ) -> Callable[[Any, Memory, Int[Array, ""]], tuple[Array, Any]]:
        """The policy on a batch of episodes at one time step, differentiable in the weights; it
        records the inputs of the actor and how far its outputs are in saturation.

        With a `key`, actions get noise before they are rounded. Derivatives that pass through
        rounding pull every action that is best between two of the grid to the border between them,
        where the choice is left to chance. Under noise they are right on average.
        """
        width = self.settings.rounding_noise

        def act(states: Any, memory: Memory, time: Int[Array, ""]) -> tuple[Array, Any]:
            observations = jax.vmap(self.env.observe)(states)
            inputs = jax.vmap(self.algorithm.network_input)(observations, memory, positions)
            outputs = jax.vmap(lambda row: actor.at_step(row, time))(inputs)
            shifts = jnp.zeros(outputs.shape)
            if key is not None and width > 0.0 and self.head.grid is not None:
                draws = jax.random.uniform(stream(key, "rounding", time), outputs.shape)
                shifts = width * (draws - 0.5)
            points = jax.vmap(
                lambda output, state, shift: self.head.legal_point(
                    output,
                    self.problem.action_mask(state),
                    self.env.action_bounds(state),
                    rounded,
                    shift,
                )
            )(outputs, states, shifts)
            beyond = jnp.maximum(jnp.abs(outputs) - _SATURATION, 0.0) ** 2
            return points, (jax.lax.stop_gradient(inputs), beyond.mean())

        return act

    def update(
        self, state: ActorState, batch: Key[Array, ""], outer: Any, unit: Float[Array, ""]
    ) -> tuple[ActorState, Float[Array, ""]]:
        """One gradient step on the episodes of a key, and minus their value in `unit`s; NaN if the
        gradient is not finite.

        Until `risk_neutral_fraction` of the run their value is the mean, from `annealing_fraction`
        on the measure, and a mixture of both between. h, the `outer` variable,
        counts where episodes are learned from in segments; otherwise it is that of the batch.
        """
        settings, progress = self.settings, state.updates / self.updates
        rounded = progress >= 1.0 - settings.rounding_fraction
        neutral = progress < settings.risk_neutral_fraction
        share = risk_share(settings, progress)

        def utility(returns: Float[Array, " n"]) -> Float[Array, " n"]:
            return share * outer(returns) + (1.0 - share) * returns

        def loss(actor: Actor, key: Key[Array, ""]) -> tuple[Array, tuple[Episodes, Any]]:
            if isinstance(self.algorithm, ChoiceDial):
                value, episodes = backward_loss(self, actor, key, outer)
                return value, (episodes, None)
            if self.head.low is None:
                value, episodes = branched_loss(self, actor, key, neutral, unit, outer)
                return value, (episodes, None)
            recorded = None
            if state.segments is not None:
                value, (episodes, recorded) = segment_loss(
                    self, actor, state.segments, key, utility, rounded
                )
            else:
                positions = self.algorithm.positions(key, settings.batch_size, outer)
                episodes = self.simulate(actor, key, rounded, positions, noisy=True)
                value = self.algorithm.batch_value(episodes.returns, positions)
                # The measures of a dial reach from the mean to the tail anyway.
                weight = share if positions is None else jnp.where(neutral, 0.0, 1.0)
                value = weight * value + (1.0 - weight) * episodes.returns.mean()
            return _SATURATION_WEIGHT * episodes.saturation - value / unit, (episodes, recorded)

        grad = eqx.filter_value_and_grad(loss, has_aux=True)
        if settings.final_batches > 1 and not self.in_segments:
            grown = state.updates >= settings.growth_begins(self.updates)
            count = jnp.where(grown, settings.final_batches, 1)
            (value, (episodes, recorded)), gradient = mean_of_batches(
                lambda i: grad(state.networks, stream(batch, "batch", i)), count
            )
        else:
            (value, (episodes, recorded)), gradient = grad(state.networks, batch)
        change, moments = self._optimiser.update(
            _weights(gradient), state.optimiser, _weights(state.networks)
        )
        actor = eqx.apply_updates(state.networks, change)
        follow = jnp.where(progress < _STATISTICS_UNTIL, _STATISTICS_RATE, 0.0)
        actor = _normalised(actor, episodes, follow)
        updates = state.updates + 1
        since = updates - (1.0 - settings.averaging) * self.updates
        rate = 1.0 / jnp.maximum(since, 1.0) if settings.averaging else jnp.ones(())
        average = jax.tree.map(
            lambda old, new: old + rate * (new - old) if eqx.is_inexact_array(old) else old,
            state.average,
            actor,
        )
        segments = state.segments
        if segments is not None:
            segments = next_segment(self, segments, batch, recorded)
        # Weights that are lost in the last update of a chunk must not pass for those of a good one.
        value = jnp.where(jnp.isfinite(optax.tree.norm(change)), value, jnp.nan)
        return ActorState(actor, average, moments, updates, segments), value


def risk_share(settings: PathwiseSettings, progress: Float[Array, ""]) -> Float[Array, ""]:
    """The weight of the measure beside the mean at this share of the run."""
    begin, end = settings.risk_neutral_fraction, settings.annealing_fraction
    if end <= begin:
        return jnp.where(progress < begin, 0.0, 1.0)
    return jnp.clip((progress - begin) / (end - begin), 0.0, 1.0)


def mean_of_batches(of_batch: Callable[[Any], Any], count: Int[Array, ""]) -> Any:
    """The mean of `of_batch(0)`, `of_batch(1)`, and so on."""
    shapes = jax.eval_shape(of_batch, 0)
    total = jax.lax.fori_loop(
        0,
        count,
        lambda i, total: jax.tree.map(jnp.add, total, of_batch(i)),
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes),
    )
    return jax.tree.map(lambda leaf: leaf / count, total)


def _weights(actor: Actor) -> Any:
    """What is learned: all but the clock and the normalisation."""
    weights = eqx.filter(actor, eqx.is_inexact_array)
    nothing = jax.tree.map(lambda _: None, (weights.clock, weights.networks.scale))
    return eqx.tree_at(lambda a: (a.clock, a.networks.scale), weights, nothing)


def _normalised(actor: Actor, episodes: Episodes, rate: Any) -> Actor:
    """The actor with its inputs normalised by what the episodes show, a share `rate` of the way."""
    mean, spread = episodes.input_mean, episodes.input_spread
    if actor.count == 1:  # over all steps
        spread = jnp.sqrt((spread**2).mean(axis=0) + mean.var(axis=0))[None]
        mean = mean.mean(axis=0)[None]
    # What never changes at a step is left as it is.
    spread = jnp.where(spread > 1e-6 * (1.0 + jnp.abs(mean)), spread, 1.0)
    scale = actor.networks.scale
    return eqx.tree_at(
        lambda a: (a.networks.scale.input_mean, a.networks.scale.input_spread),
        actor,
        (
            scale.input_mean + rate * (mean - scale.input_mean),
            scale.input_spread + rate * (spread - scale.input_spread),
        ),
    )
