r"""Long episodes are differentiated in segments, with a learned value at the end of each.

With h held, the value of a situation is $V(x, s, c) = \mathbb{E}[h(s + c\,G)]$ of the return $G$ to
come. It has neither reward nor discount: $V = \mathbb{E}[V']$, and $h(s)$ once an episode is over.
So an actor can follow the derivative of

$$\frac1n \sum_i V(x_i, s_i, c_i) \quad\text{after some steps, or } h(s_i) \text{ of an episode that
is over,}$$

for episodes that go on from one update to the next; the derivative passes through these steps
alone. The mean over episodes at all times of their life is that of the whole episode, up to a
factor. A critic learns V by squared errors from averages of its own later values, as TD(λ) does.

Differs from SHAC (Xu et al., 2022), where this comes from: the value is that of a utility of the
whole return, which needs the memory (s, c).
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.actor import Actor
from downside.agents.branching import Episodes, input_statistics
from downside.agents.networks import MLP, Network
from downside.envs import Memory, ReturnInput
from downside.envs.memory import append_memory
from downside.envs.rollout import mirrored_noises, unroll_segment, where_rows

if TYPE_CHECKING:
    from downside.agents.pgsrm import PathwiseLearner

_LAMBDA = 0.95
"""λ of the critic's targets: the weight of later values."""
_CRITIC_RATE, _CRITIC_STEPS = 2e-3, 4
"""Learning rate of the critic, and its gradient steps in each update, each on a part of what the
episodes show."""
_TARGET_RATE = 0.1
"""How fast the target network follows the critic, for each update."""
_SCALE_RATE = 0.02
"""How fast the normalisation of the critic follows what it sees."""


class SegmentState(eqx.Module):
    """What goes from one segment to the next."""

    states: Any
    """Of the environment, of a batch of episodes."""
    memory: Memory
    steps: Int[Array, " n"]
    """Of each episode so far."""
    critic: Network
    target: Network
    """A slow copy of the critic."""
    optimiser: Any


def init_segments(
    learner: "PathwiseLearner",
    actor: Actor,
    key: Key[Array, ""],
    returns: Float[Array, " n"],
) -> SegmentState:
    """Episodes at all times of their life, and a critic that knows the size of `returns`."""
    count = learner.settings.batch_size
    ages = jnp.arange(count) * learner.horizon // count
    starts = _starts(learner, key, count)
    act = learner.relaxed_act(actor, jnp.zeros((), bool))

    def step(carry: tuple, time: Int[Array, ""]) -> tuple[tuple, None]:
        states, memory, steps = carry
        actions, _ = act(states, memory, jnp.zeros((), jnp.int32))
        noise = mirrored_noises(learner.env, stream(key, "time", time), count)
        result = jax.vmap(learner.env.transition)(states, actions, noise)
        goes = time < ages
        after = memory.update(
            jnp.where(goes, result.reward, 0.0), jnp.where(goes, learner.settings.gamma, 1.0)
        )
        over = goes & (result.terminated | result.truncated)
        states = where_rows(goes, result.state, states)
        return _begin_anew(over, starts, states, after, steps + goes), None

    first = (starts, _no_memory(count), jnp.zeros(count, jnp.int32))
    (states, memory, steps), _ = jax.lax.scan(step, first, jnp.arange(learner.horizon))
    inputs = _critic_inputs(learner, states, memory)
    size = inputs.shape[-1]
    trunk = MLP(stream(key, "critic"), size, learner.settings.hidden_sizes, "silu")
    critic = _rescaled(Network(trunk, size, (1,)), inputs, returns, 1.0)
    optimiser = optax.adam(_CRITIC_RATE).init(_critic_weights(critic))
    target = jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, critic)
    return SegmentState(states, memory, steps, critic, target, optimiser)


def segment_loss(
    learner: "PathwiseLearner",
    actor: Actor,
    segments: SegmentState,
    key: Key[Array, ""],
    utility: Any,
    rounded: Bool[Array, ""],
) -> tuple[Float[Array, ""], tuple[Episodes, Any]]:
    """The mean value after one segment, which can be differentiated by the weights of the actor;
    with what the episodes show, and what the critic learns from."""
    act = learner.relaxed_act(actor, rounded, None, key)
    count, steps = learner.settings.batch_size, learner.settings.segment_steps

    def record(states: Any, memory: Memory, time: Int[Array, ""]) -> tuple[Array, Any]:
        actions, (inputs, beyond) = act(states, memory, time)  # one network for all steps
        seen = jax.lax.stop_gradient(_critic_inputs(learner, states, memory))
        return actions, (inputs, beyond, seen)

    end = unroll_segment(
        learner.env,
        record,
        segments.states,
        lambda time: mirrored_noises(learner.env, stream(key, "time", time), count),
        gamma=learner.settings.gamma,
        steps=steps,
        memory=segments.memory,
    )
    inputs, beyond, seen = end.records
    ages = segments.steps + end.were_running.sum(axis=0)
    running = end.running & (ages < learner.horizon)
    later = jax.vmap(segments.target)(_critic_inputs(learner, end.states, end.memory))[:, 0]
    values = jnp.where(running, later, utility(end.memory.accumulated))
    statistics = input_statistics(inputs, end.were_running)
    episodes = Episodes(values, *statistics, saturation=beyond.mean())
    after = (end.states, end.memory, ages, running)
    return values.mean(), (episodes, (seen, end.were_running, values, after))


def next_segment(
    learner: "PathwiseLearner", segments: SegmentState, key: Key[Array, ""], recorded: Any
) -> SegmentState:
    """Where the episodes go on, with new ones for those that are over; and the critic after its
    gradient steps."""
    seen, were_running, values, (states, memory, ages, running) = recorded
    critic, optimiser = _learn(segments, stream(key, "critic"), seen, were_running, values)
    target = _towards(segments.target, critic, _TARGET_RATE)
    target = eqx.tree_at(lambda network: network.scale, target, critic.scale)
    count = learner.settings.batch_size
    fresh = _starts(learner, stream(key, "start"), count)
    states, memory, ages = _begin_anew(~running, fresh, states, memory, ages)
    return SegmentState(states, memory, ages, critic, target, optimiser)


def _learn(
    segments: SegmentState,
    key: Key[Array, ""],
    seen: Float[Array, "T n e"],
    were_running: Bool[Array, "T n"],
    values: Float[Array, " n"],
) -> tuple[Network, Any]:
    """The critic after gradient steps towards averages of later values."""
    target_values = jax.vmap(jax.vmap(segments.target))(seen)[..., 0]

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        value, running = now
        mixed = (1.0 - _LAMBDA) * value + _LAMBDA * later
        return jnp.where(running, mixed, values), later

    _, targets = jax.lax.scan(back, values, (target_values, were_running), reverse=True)
    rows, goals = seen.reshape(-1, seen.shape[-1]), targets.ravel()
    weights = were_running.ravel().astype(goals.dtype)
    parts = jax.random.permutation(key, rows.shape[0])
    parts = parts[: rows.shape[0] // _CRITIC_STEPS * _CRITIC_STEPS].reshape(_CRITIC_STEPS, -1)
    critic = _rescaled(segments.critic, rows, goals, _SCALE_RATE)
    arrays, rest = eqx.partition(critic, eqx.is_array)

    def step(carry: tuple, part: Int[Array, " m"]) -> tuple[tuple, None]:
        arrays, optimiser = carry

        def loss(critic: Network) -> Array:
            spread = jax.lax.stop_gradient(critic.scale.output_spread)
            error = (jax.vmap(critic)(rows[part])[:, 0] - goals[part]) / spread
            return (weights[part] * error**2).sum() / jnp.maximum(weights[part].sum(), 1.0)

        critic = eqx.combine(arrays, rest)
        gradient = eqx.filter_grad(loss)(critic)
        change, optimiser = optax.adam(_CRITIC_RATE).update(_critic_weights(gradient), optimiser)
        return (eqx.filter(eqx.apply_updates(critic, change), eqx.is_array), optimiser), None

    (arrays, optimiser), _ = jax.lax.scan(step, (arrays, segments.optimiser), parts)
    return eqx.combine(arrays, rest), optimiser


def _critic_inputs(learner: "PathwiseLearner", states: Any, memory: Memory) -> Float[Array, "n e"]:
    """The observation and (s, c), whether the actor sees them or not."""
    observations = jax.vmap(learner.env.observe)(states)
    return jax.vmap(lambda x, m: append_memory(x, m, ReturnInput()))(observations, memory)


def _critic_weights(critic: Network) -> Any:
    """What is learned: all but the normalisation."""
    weights = eqx.filter(critic, eqx.is_inexact_array)
    nothing = jax.tree.map(lambda _: None, weights.scale)
    return eqx.tree_at(lambda network: network.scale, weights, nothing)


def _rescaled(
    critic: Network, inputs: Float[Array, "m e"], values: Float[Array, " k"], rate: float
) -> Network:
    """The critic, normalised a share `rate` of the way by these inputs and values."""
    spread = inputs.std(axis=0)
    spread = jnp.where(spread > 1e-6 * (1.0 + jnp.abs(inputs.mean(axis=0))), spread, 1.0)
    scale = critic.scale
    wanted = (inputs.mean(axis=0), spread, values.mean(), jnp.maximum(values.std(), 1e-6))
    now = (scale.input_mean, scale.input_spread, scale.output_mean, scale.output_spread)
    return eqx.tree_at(
        lambda n: (
            n.scale.input_mean,
            n.scale.input_spread,
            n.scale.output_mean,
            n.scale.output_spread,
        ),
        critic,
        jax.tree.map(lambda old, new: old + rate * (new - old), now, wanted),
    )


def _towards(old: Network, new: Network, rate: float) -> Network:
    return jax.tree.map(lambda a, b: a + rate * (b - a) if eqx.is_inexact_array(a) else a, old, new)


def _starts(learner: "PathwiseLearner", key: Key[Array, ""], count: int) -> Any:
    return jax.vmap(learner.env.initial_state)(jax.random.split(key, count))


def _no_memory(count: int) -> Memory:
    return Memory(jnp.zeros(count), jnp.ones(count))


def _begin_anew(
    over: Bool[Array, " n"], starts: Any, states: Any, memory: Memory, steps: Int[Array, " n"]
) -> tuple[Any, Memory, Int[Array, " n"]]:
    """Episodes that are over begin again."""
    memory = where_rows(over, _no_memory(over.shape[0]), memory)
    return where_rows(over, starts, states), memory, jnp.where(over, 0, steps)
