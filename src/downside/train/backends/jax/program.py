"""Training in environments written in JAX: everything between two outer steps is one compiled
program.

`chunk` takes a `TrainState` from one outer step to the next: environments, exploration, replay,
updates, target networks and the outer step, in nested `lax.scan`s. Between two calls Python has its
turn: progress, logging, interruption. The risk measure is data, so that `chunk` can be mapped over
runs (`many.py`).
"""

import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm, BranchedTransition
from downside.agents.learner import Normalisation, return_scale
from downside.agents.networks import input_spread
from downside.agents.quantile_learner import LearnerState
from downside.envs import AbstractJaxEnv, MemoryState
from downside.envs.memory_env import initial_memory
from downside.envs.rollout import random_episodes, random_legal
from downside.train.backends.outer import outer_step
from downside.train.backends.replay import ReplayBuffer, Transition, as_branch, simulate_branches
from downside.train.backends.state import (
    FIT_CHUNK,
    BestPolicy,
    Metrics,
    TrainSpec,
    TrainState,
    fitting_learner,
    measuring_horizon,
    scan,
    with_critics,
)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`filter_jit` for one core.

    Two make a run of this size no faster, but two runs side by side use both (`many.py`); and a
    result does not depend on how many cores there are.
    """
    options = {"xla_cpu_multi_thread_eigen": False}
    return cast(Any, eqx.filter_jit(function, compiler_options=options))  # pyright: ignore[reportCallIssue]


_RANDOM_EPISODES = 512
"""Episodes of random play that say how large returns are."""
_FIT_SAMPLES = 2


# --- the start --------------------------------------------------------------------------------


@compiled
def init(
    spec: TrainSpec, algorithm: AbstractAlgorithm, key: Key[Array, ""]
) -> tuple[TrainState, Int[Array, ""]]:
    """A run that has learned nothing yet, after the warm-up of random play; and the steps that
    were simulated beside it."""
    settings, env = spec.settings, spec.jax_env
    states, replay = _first_states(spec, key)

    def warm_up(carry: Any, step: Int[Array, ""]) -> tuple[Any, Any]:
        states, replay = carry
        here = stream(key, "warm-up", step)
        masks = jax.vmap(env.action_mask)(states.inner)
        actions = random_legal(stream(here, "actions"), masks)
        steps = stream(here, "steps")
        transition, states, _ = _step_all(env, settings.gamma, states, actions, steps)
        return (states, replay.add(transition)), transition

    warmup = max(1, math.ceil(settings.warmup_steps / settings.num_envs))
    (states, replay), played = jax.lax.scan(warm_up, (states, replay), jnp.arange(warmup))
    played = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), played)

    simulated = jnp.zeros((), jnp.int32)
    if settings.normalise:
        random_play = random_episodes(
            env,
            stream(key, "random returns"),
            gamma=settings.gamma,
            horizon=measuring_horizon(env, settings.gamma),
            episodes=_RANDOM_EPISODES,
        )
        returns, simulated = random_play.memory.accumulated, random_play.steps
    else:  # what was earned on the way has to do: nothing is simulated beside the run
        after = played.memory.update(played.reward, settings.gamma)
        returns = after.accumulated
    outer = algorithm.initial_outer(returns)
    spread, size = return_scale(returns)
    inputs = jax.vmap(lambda x, memory: algorithm.network_input(env.observe(x), memory, outer))(
        played.state, played.memory
    )
    normalisation = None
    if settings.normalise:
        deviation = input_spread(inputs)
        deviation = jnp.where(deviation > 1e-6, deviation, 1.0)
        normalisation = Normalisation(inputs.mean(axis=0), deviation, returns.mean(), spread, size)
    learner = spec.learner(algorithm)
    learner_state = learner.init(stream(key, "networks"), inputs.shape[-1], normalisation)
    state = TrainState(
        learner=learner_state,
        outer=outer,
        has_outer=jnp.zeros((), bool),
        spread=spread,
        best=BestPolicy(learner_state.networks, outer, jnp.asarray(-jnp.inf)),
        key=key,
        env_states=states,
        replay=replay,
        vector_steps=jnp.zeros((), jnp.int32),
    )
    return jax.tree.map(strong, state), simulated


def _first_states(spec: TrainSpec, key: Key[Array, ""]) -> tuple[MemoryState, ReplayBuffer]:
    settings, env = spec.settings, spec.jax_env
    count = settings.num_envs
    keys = jax.random.split(stream(key, "first states"), count)
    states = _begin(jax.vmap(env.initial_state)(keys), count)
    example = jax.eval_shape(
        lambda: jax.tree.map(
            lambda leaf: leaf[0],
            _step_all(env, settings.gamma, states, jnp.zeros(count, jnp.int32), key)[0],
        )
    )
    return states, ReplayBuffer.empty(example, settings.buffer_size // count * count)


def _begin(inner: Any, count: int) -> MemoryState:
    """States at the start of episodes."""
    memory = jax.tree.map(lambda number: jnp.broadcast_to(number, (count,)), initial_memory())
    return MemoryState(inner, memory)


def strong(leaf: Any) -> Any:
    """The array without JAX's weak type, so that the first call of `chunk` compiles for all that
    follow."""
    is_number = eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.lax.convert_element_type(leaf, leaf.dtype) if is_number else leaf


# --- one chunk --------------------------------------------------------------------------------


@compiled
def chunk(
    spec: TrainSpec, algorithm: AbstractAlgorithm, state: TrainState
) -> tuple[TrainState, Metrics]:
    """From one outer step to the next."""
    settings = spec.settings

    def step(state: TrainState, _: None) -> tuple[TrainState, tuple[Array, Array, Array]]:
        return _round(spec, algorithm, state)

    state, (critic_losses, quantile_losses, ended) = scan(step, state, None, spec.rounds_per_chunk)
    state, measured = outer_step(spec, algorithm, state, state.vector_steps / spec.rounds)
    batches = spec.rounds_per_chunk * (settings.updates_per_step + spec.quantiles_beside)
    metrics = Metrics(
        timesteps=state.vector_steps * spec.timesteps_per_round,
        simulated_steps=measured.steps + batches * simulated_per_batch(spec),
        updates=state.vector_steps * settings.updates_per_step,
        critic_loss=critic_losses.mean(),
        quantile_loss=quantile_losses.mean(),
        value=measured.value,
        predicted=measured.predicted,
        best=state.best.value,
        mean=measured.returns.mean(),
        spread=measured.returns.std(),
        exploration=spec.exploration(state.vector_steps / spec.rounds),
        ended=ended.sum(),
    )
    simulated = jnp.asarray(metrics.simulated_steps, jnp.int32)
    metrics = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), metrics)
    return state, metrics._replace(simulated_steps=simulated)


def record(spec: TrainSpec, metrics: Metrics) -> dict[str, float]:
    """What `chunk` logs, as plain numbers."""
    del spec
    return {name: value.item() for name, value in metrics._asdict().items()}


def simulated_per_batch(spec: TrainSpec) -> int:
    """Environment steps that are simulated for one batch."""
    settings = spec.simulator
    branches = min(settings.branches, spec.num_actions)
    return settings.batch_size * branches * settings.samples_per_action


def _round(
    spec: TrainSpec, algorithm: AbstractAlgorithm, state: TrainState
) -> tuple[TrainState, tuple[Array, Array, Array]]:
    """Steps of all environments, and the updates that follow them; with the losses, and how many
    episodes ended."""
    settings = spec.settings
    key = stream(state.key, "step", state.vector_steps)
    exploration = spec.exploration(state.vector_steps / spec.rounds)
    ended = jnp.zeros((), jnp.int32)
    for tick in range(settings.update_interval):
        here = key if tick == 0 else stream(key, "tick", tick)
        state, over = _collect(spec, algorithm, state, exploration, here)
        ended += over
    learner_state, losses = update(spec, algorithm, state, stream(key, "updates"))
    quantile_loss = losses.mean()
    if spec.quantiles_beside:
        state = eqx.tree_at(lambda s: s.learner, state, learner_state)
        batch = _batch(spec, algorithm, state, learner_state.networks, stream(key, "quantiles"))
        learner_state, quantile_loss = spec.learner(algorithm).update_quantiles(
            learner_state, _two_actions(batch), state.outer, spec.unit(state)
        )
    state = eqx.tree_at(
        lambda s: (s.learner, s.vector_steps), state, (learner_state, state.vector_steps + 1)
    )
    return state, (losses.mean(), quantile_loss, ended)


def _collect(
    spec: TrainSpec,
    algorithm: AbstractAlgorithm,
    state: TrainState,
    exploration: Float[Array, ""],
    key: Key[Array, ""],
) -> tuple[TrainState, Int[Array, ""]]:
    """One step of all environments, into the replay buffer; and how many episodes ended."""
    env, learner = spec.jax_env, spec.learner(algorithm)
    states = state.env_states
    masks = jax.vmap(env.action_mask)(states.inner)
    greedy_actions = jax.vmap(
        lambda x, memory, mask: learner.act(
            state.learner.networks, env.observe(x), memory, mask, state.outer
        )
    )(states.inner, states.memory, masks)
    explore = jax.random.uniform(stream(key, "explore"), greedy_actions.shape) < exploration
    actions = jnp.where(explore, random_legal(stream(key, "actions"), masks), greedy_actions)
    transition, states, over = _step_all(
        env, spec.settings.gamma, states, actions, stream(key, "environments")
    )
    replay = state.replay.add(transition)
    return eqx.tree_at(lambda s: (s.env_states, s.replay), state, (states, replay)), over.sum()


def update(
    spec: TrainSpec, algorithm: AbstractAlgorithm, state: TrainState, key: Key[Array, ""]
) -> tuple[LearnerState, Float[Array, " updates"]]:
    """The updates of one round, with their losses."""
    learner = spec.learner(algorithm)

    def step(learner_state: LearnerState, key: Key[Array, ""]) -> tuple[LearnerState, Array]:
        batch = _batch(spec, algorithm, state, learner_state.networks, key)
        return learner.update(learner_state, batch, state.outer, spec.unit(state))

    return scan(step, state.learner, jax.random.split(key, spec.settings.updates_per_step))


def _batch(
    spec: TrainSpec,
    algorithm: AbstractAlgorithm,
    state: TrainState,
    networks: Any,
    key: Key[Array, ""],
) -> BranchedTransition:
    """Transitions of the buffer, with other memories; branched where the settings say so."""
    settings, env, learner = spec.simulator, spec.jax_env, spec.learner(algorithm)
    count = settings.batch_size
    noise = jax.random.normal(stream(key, "relabel"), (count,))
    amounts = settings.memory_noise * spec.unit(state) * noise
    sampled = state.replay.sample(stream(key, "sample"), count)
    amounts = jax.vmap(algorithm.memory_shift)(sampled.memory, amounts)
    if not settings.branches:
        return jax.vmap(lambda one, amount: as_branch(env, one).relabel(amount))(sampled, amounts)
    keys = jax.random.split(stream(key, "simulate"), count)
    return jax.vmap(
        lambda x, memory, amount, key: simulate_branches(
            learner, settings, env, networks, state.outer, x, memory, amount, key
        )
    )(sampled.state, sampled.memory, amounts, keys)


def _two_actions(batch: BranchedTransition) -> BranchedTransition:
    """Of each transition the best action and one drawn at random, with a few outcomes."""
    actions = jnp.array([0, batch.actions.shape[1] - 1])

    def outcomes(leaf: Array) -> Array:
        return leaf[:, actions, :_FIT_SAMPLES]

    return batch._replace(
        actions=batch.actions[:, actions],
        weights=jnp.where(batch.weights[:, actions] > 0, 1.0, 0.0),
        rewards=outcomes(batch.rewards),
        next_observations=outcomes(batch.next_observations),
        next_memory=jax.tree.map(outcomes, batch.next_memory),
        next_masks=outcomes(batch.next_masks),
        terminated=outcomes(batch.terminated),
        discounts=outcomes(batch.discounts),
    )


def _step_all(
    env: AbstractJaxEnv,
    gamma: float,
    states: MemoryState,
    actions: Int[Array, " E"],
    key: Key[Array, ""],
) -> tuple[Transition, MemoryState, Bool[Array, " E"]]:
    """Steps all environments; those whose episode ended, which are marked, start anew."""
    count = actions.shape[0]
    step_keys = jax.random.split(stream(key, "noise"), count)
    after = jax.vmap(env.step)(step_keys, states.inner, actions)
    discount = jnp.full(count, gamma)
    memory = states.memory.update(after.reward, discount)
    transition = Transition(
        states.inner,
        states.memory,
        actions,
        after.reward,
        after.state,
        after.terminated,
        discount,
    )
    keys = jax.random.split(stream(key, "reset"), count)
    fresh = _begin(jax.vmap(env.initial_state)(keys), count)
    over = after.terminated | after.truncated

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(over.reshape(over.shape + (1,) * (old.ndim - 1)), new, old)

    return transition, jax.tree.map(choose, fresh, MemoryState(after.state, memory)), over


# --- the end ----------------------------------------------------------------------------------


@compiled
def fit_return_distribution(
    spec: TrainSpec, algorithm: AbstractAlgorithm, state: TrainState
) -> tuple[TrainState, Array]:
    """Updates of the quantiles alone, for the final policy, which stays as it is."""
    best = state.best
    learner = fitting_learner(spec, algorithm)
    # The final policy decides, and its quantiles are the ones that go on learning.
    critics = state.learner.networks.critic, state.learner.targets.critic
    learner_state = with_critics(state.learner, best.networks.critic, best.networks.critic)
    final = eqx.tree_at(lambda s: s.outer, state, best.outer)

    def step(learner_state: LearnerState, key: Key[Array, ""]) -> tuple[LearnerState, Array]:
        batch = _two_actions(_batch(spec, algorithm, final, best.networks, key))
        return learner.update_quantiles(learner_state, batch, best.outer, spec.unit(state))

    key = stream(state.key, "settle", learner_state.quantile_updates)
    learner_state, losses = scan(step, learner_state, jax.random.split(key, FIT_CHUNK))
    best = eqx.tree_at(lambda b: b.networks.quantiles, best, learner_state.networks.quantiles)
    learner_state = with_critics(learner_state, *critics)  # further training goes on from them
    return eqx.tree_at(lambda s: (s.learner, s.best), state, (learner_state, best)), losses.mean()
