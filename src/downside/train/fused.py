"""The whole run as one compiled program, for environments written in JAX.

A run is a state (`Run`) and a function `advance` that takes it from one outer step to the next:
environments, exploration, replay, updates, target networks and the outer step, in nested
`lax.scan`s. Between two calls Python has its turn: progress, logging, interruption. `advance` knows
its risk measure only as data, so that it can be mapped over runs (`many.py`).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import (
    AbstractAlgorithm,
    Decision,
)
from downside.agents.learner import (
    Learner,
    Networks,
    action_scores,
    make_learner,
    make_networks,
    update_critic,
    update_quantiles,
    with_scale,
)
from downside.agents.networks import Network, Scale, input_spread
from downside.envs import AbstractJaxEnv
from downside.ops import masked
from downside.train.experience import (
    Lived,
    Replay,
    lived_decision,
    relabelled,
    simulated_decision,
)
from downside.train.outer import outer_step
from downside.train.program import (
    DISTRIBUTION_CHUNK,
    Kept,
    Metrics,
    Program,
    Run,
    exploration_share,
    measuring_horizon,
)
from downside.train.rollout import greedy_returns, random_legal

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`filter_jit` for one core.

    Two make a run of this size no faster, but two runs side by side use both (`many.py`); and a
    result does not depend on how many cores there are.
    """
    options = {"xla_cpu_multi_thread_eigen": False}
    return cast(Any, eqx.filter_jit(function, compiler_options=options))  # pyright: ignore[reportCallIssue]


_DISTRIBUTION_OUTCOMES = 2
_SETTLING_RATE = 0.05
"""How fast target networks follow when only the quantiles of a fixed policy are learned: news has
to travel from the end of an episode to its start, and no policy chases its own targets."""


# --- the start --------------------------------------------------------------------------------


@compiled
def begin(program: Program, algorithm: AbstractAlgorithm, key: Key[Array, ""]) -> Run:
    """A run that has seen random play and learned nothing yet."""
    settings = program.settings
    blank = algorithm.first_goal(jnp.zeros(2))
    env = algorithm.wrap(program.env, blank)
    returns = _random_returns(program, stream(key, "random returns"))
    goal = algorithm.first_goal(returns)
    env = algorithm.wrap(program.env, goal)
    size = env.observation_space.shape[0]

    keys = jax.random.split(stream(key, "first states"), settings.num_envs)
    states = jax.vmap(env.initial_state)(keys)
    example = jax.eval_shape(
        lambda: jax.tree.map(
            lambda leaf: leaf[0],
            _live(env, states, jnp.zeros(settings.num_envs, jnp.int32), key)[0],
        )
    )
    capacity = settings.buffer_size // settings.num_envs * settings.num_envs
    replay = Replay.empty(example, capacity)

    def warm_up(carry: Any, step: Int[Array, ""]) -> tuple[Any, Any]:
        states, replay = carry
        here = stream(key, "warm-up", step)
        masks = jax.vmap(env.action_mask)(states)
        actions = random_legal(stream(here, "actions"), masks)
        lived, states = _live(env, states, actions, stream(here, "steps"))
        return (states, replay.add(lived)), jax.vmap(env.observe)(lived.state)

    warmup = max(1, math.ceil(settings.warmup_steps / settings.num_envs))
    (states, replay), seen = jax.lax.scan(warm_up, (states, replay), jnp.arange(warmup))

    networks = make_networks(
        stream(key, "networks"),
        settings,
        program.make_trunk,
        size,
        env.num_actions,
        anchored=not program.env.bounded,
    )
    spread = jnp.maximum(returns.std(), 1e-6)
    if settings.normalise:
        flat = jax.vmap(lambda one: algorithm.view(one, goal))(seen.reshape(-1, size))
        mean, deviation = flat.mean(axis=0), input_spread(flat)
        deviation = jnp.where(deviation > 1e-6, deviation, 1.0)
        scale = Scale(mean, deviation, jnp.zeros(()), spread)
        centred = Scale(mean, deviation, returns.mean(), spread)
        networks = with_scale(networks, scale, centred)
    learner = make_learner(networks, program.optimiser)
    kept = Kept(networks, goal, jnp.asarray(-jnp.inf))
    run = Run(
        learner=learner,
        goal=goal,
        has_goal=jnp.zeros((), bool),
        spread=spread,
        env_states=states,
        replay=replay,
        vector_steps=jnp.zeros((), jnp.int32),
        kept=kept,
        key=key,
    )
    return jax.tree.map(_settled, run)


def _settled(leaf: Any) -> Any:
    """An array whose type is its own and not that of a Python number, so that the first call of
    `advance` compiles for all that follow."""
    is_number = eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.lax.convert_element_type(leaf, leaf.dtype) if is_number else leaf


def _random_returns(program: Program, key: Key[Array, ""]) -> Float[Array, " n"]:
    """Returns of random play: a first idea of how large returns are."""
    env = program.env
    return greedy_returns(
        env,
        lambda _, mask, key: random_legal(key, mask),
        gamma=program.settings.gamma,
        horizon=measuring_horizon(program.env, program.settings.gamma),
        episodes=512,
        key=key,
    )


# --- one chunk --------------------------------------------------------------------------------


@compiled
def advance(program: Program, algorithm: AbstractAlgorithm, run: Run) -> tuple[Run, Metrics]:
    """From one outer step to the next."""
    settings = program.settings
    total = program.chunks * program.steps_per_chunk

    def step(run: Run, _: None) -> tuple[Run, tuple[Array, Array]]:
        exploration = exploration_share(settings, run.vector_steps / total)
        return _step(program, algorithm, run, exploration)

    run, (critic_losses, quantile_losses) = _scan(step, run, None, program.steps_per_chunk)
    run, value, predicted, returns = outer_step(program, algorithm, run, run.vector_steps / total)
    metrics = Metrics(
        timesteps=run.vector_steps * program.timesteps_per_round,
        updates=run.vector_steps * settings.updates_per_step,
        critic_loss=critic_losses.mean(),
        quantile_loss=quantile_losses.mean(),
        value=value,
        predicted=predicted,
        best=run.kept.value,
        mean=returns.mean(),
        spread=returns.std(),
        exploration=exploration_share(settings, run.vector_steps / total),
    )
    return run, jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), metrics)


def _scan(step: Any, carry: Any, inputs: Any, length: int | None = None) -> tuple[Any, Any]:
    """`lax.scan` for a carry that also holds what is no array, such as a network's activation."""
    arrays, rest = eqx.partition(carry, eqx.is_array)

    def body(arrays: Any, entry: Any) -> tuple[Any, Any]:
        carry, output = step(eqx.combine(arrays, rest), entry)
        return eqx.filter(carry, eqx.is_array), output

    arrays, outputs = jax.lax.scan(body, arrays, inputs, length)
    return eqx.combine(arrays, rest), outputs


def _step(
    program: Program, algorithm: AbstractAlgorithm, run: Run, exploration: Float[Array, ""]
) -> tuple[Run, tuple[Array, Array]]:
    """One round: steps of all environments, and the updates that follow them."""
    settings = program.settings
    env = algorithm.wrap(program.env, run.goal)
    key = stream(run.key, "step", run.vector_steps)
    for tick in range(settings.update_interval):
        here = key if tick == 0 else stream(key, "tick", tick)
        run = _act(algorithm, env, run, exploration, here)
    learner, losses = learn(program, algorithm, run, stream(key, "updates"))
    quantile_loss = losses.mean()
    if program.quantiles_beside:
        run = eqx.tree_at(lambda one: one.learner, run, learner)
        decisions = _batch(program, algorithm, run, learner.networks, stream(key, "quantiles"))
        learner, quantile_loss = update_quantiles(
            algorithm,
            settings,
            program.quantile_optimiser,
            learner,
            _for_distribution(decisions),
            run.goal,
            program.unit(run),
        )
    run = eqx.tree_at(
        lambda one: (one.learner, one.vector_steps), run, (learner, run.vector_steps + 1)
    )
    return run, (losses.mean(), quantile_loss)


def _act(
    algorithm: AbstractAlgorithm,
    env: AbstractJaxEnv,
    run: Run,
    exploration: Float[Array, ""],
    key: Key[Array, ""],
) -> Run:
    """One step of all environments."""
    observations = jax.vmap(env.observe)(run.env_states)
    masks = jax.vmap(env.action_mask)(run.env_states)
    networks = run.learner.networks
    scores = jax.vmap(lambda one: action_scores(algorithm, networks, one, run.goal))(observations)
    best = jnp.argmax(jax.vmap(masked)(scores, masks), axis=-1)
    explore = jax.random.uniform(stream(key, "explore"), best.shape) < exploration
    actions = jnp.where(explore, random_legal(stream(key, "actions"), masks), best)
    lived, env_states = _live(env, run.env_states, actions, stream(key, "environments"))
    replay = run.replay.add(lived)
    return eqx.tree_at(lambda one: (one.env_states, one.replay), run, (env_states, replay))


def learn(
    program: Program, algorithm: AbstractAlgorithm, run: Run, key: Key[Array, ""]
) -> tuple[Learner, Float[Array, " updates"]]:
    """The updates that follow a step, from what is in the replay; with their losses."""
    settings = program.settings
    optimiser, quantile_optimiser = program.optimiser, program.quantile_optimiser

    def update(learner: Learner, key: Key[Array, ""]):
        decisions = _batch(program, algorithm, run, learner.networks, key)
        if settings.critic == "utility":
            return update_critic(algorithm, settings, optimiser, learner, decisions, run.goal)
        return update_quantiles(
            algorithm, settings, quantile_optimiser, learner, decisions, run.goal, program.unit(run)
        )

    return _scan(update, run.learner, jax.random.split(key, settings.updates_per_step))


def _batch(
    program: Program,
    algorithm: AbstractAlgorithm,
    run: Run,
    networks: Networks,
    key: Key[Array, ""],
) -> Decision:
    """Decisions to learn from: remembered ones, simulated afresh where the settings say so."""
    settings = program.settings
    env, count = algorithm.wrap(program.env, run.goal), settings.batch_size
    draws = jax.random.normal(stream(key, "relabel"), (count,))
    amounts = settings.relabel * program.unit(run) * draws
    sampled = run.replay.sample(stream(key, "sample"), count)
    if settings.branches:
        keys = jax.random.split(stream(key, "simulate"), count)
        decisions = jax.vmap(
            lambda state, amount, key: simulated_decision(
                algorithm, settings, env, networks, run.goal, state, amount, key
            )
        )(sampled.state, amounts, keys)
    else:
        decisions = jax.vmap(lambda one: lived_decision(env, one, algorithm.gamma))(sampled)
    return jax.vmap(lambda one, amount: relabelled(algorithm, one, amount))(decisions, amounts)


def _for_distribution(decisions: Decision) -> Decision:
    """Of each decision the best action and one drawn at random, with a few outcomes."""
    actions = jnp.array([0, decisions.actions.shape[1] - 1])
    outcomes = ("rewards", "next_observations", "next_masks", "terminated", "discounts")
    chosen = {
        name: getattr(decisions, name)[:, actions, :_DISTRIBUTION_OUTCOMES] for name in outcomes
    }
    chosen["actions"] = decisions.actions[:, actions]
    emphasis = jnp.where(decisions.emphasis[:, actions] > 0, 1.0, 0.0)
    return decisions._replace(**chosen, emphasis=emphasis)


def _live(
    env: AbstractJaxEnv, states: Any, actions: Int[Array, " E"], key: Key[Array, ""]
) -> tuple[Lived, Any]:
    """Steps all environments; those whose episode ended start anew."""
    count = actions.shape[0]
    step_keys = jax.random.split(stream(key, "noise"), count)
    after = jax.vmap(env.step)(step_keys, states, actions)
    lived = Lived(states, actions, after.reward, after.state, after.terminated)
    fresh = jax.vmap(env.initial_state)(jax.random.split(stream(key, "reset"), count))
    over = after.terminated | after.truncated

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(over.reshape(over.shape + (1,) * (old.ndim - 1)), new, old)

    return lived, jax.tree.map(choose, fresh, after.state)


# --- the end ----------------------------------------------------------------------------------


@compiled
def settle(program: Program, algorithm: AbstractAlgorithm, run: Run) -> tuple[Run, Array]:
    """Updates of the quantiles alone, for the policy that is kept: it does not change any more."""
    kept = run.kept
    settings = dataclasses.replace(program.settings, target_rate=_SETTLING_RATE, target_interval=1)
    # The kept policy decides, and its quantiles are the ones that go on learning.
    critics = run.learner.networks.critic, run.learner.targets.critic
    learner = _with_critics(run.learner, kept.networks.critic, kept.networks.critic)
    final = eqx.tree_at(lambda one: one.goal, run, kept.goal)

    def update(learner: Learner, key: Key[Array, ""]):
        decisions = _for_distribution(_batch(program, algorithm, final, kept.networks, key))
        return update_quantiles(
            algorithm,
            settings,
            program.quantile_optimiser,
            learner,
            decisions,
            kept.goal,
            program.unit(run),
        )

    key = stream(run.key, "settle", learner.quantile_updates)
    learner, losses = _scan(update, learner, jax.random.split(key, DISTRIBUTION_CHUNK))
    kept = eqx.tree_at(lambda one: one.networks.quantiles, kept, learner.networks.quantiles)
    learner = _with_critics(learner, *critics)  # whoever learns on goes on from where it was
    return eqx.tree_at(lambda one: (one.learner, one.kept), run, (learner, kept)), losses.mean()


def _with_critics(learner: Learner, own: Network | None, target: Network | None) -> Learner:
    return eqx.tree_at(
        lambda one: (one.networks.critic, one.targets.critic),
        learner,
        (own, target),
        is_leaf=lambda leaf: leaf is None,
    )
