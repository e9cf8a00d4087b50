"""The whole run as one compiled program, for environments written in JAX.

A run is a state (`Run`) and a function `advance` that takes it from one outer step to the next:
environments, exploration, replay, updates, target networks and the outer step, in nested
`lax.scan`s. Between two calls Python has its turn: progress, logging, interruption. `advance` knows
its risk measure only as data, so that it can be mapped over runs (`many.py`).
"""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import (
    AbstractAlgorithm,
    Decision,
    Goal,
    Measured,
    start_distribution,
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
from downside.agents.networks import MakeTrunk, Scale
from downside.agents.optimisers import make_optimiser
from downside.agents.settings import Settings
from downside.envs import AbstractJaxEnv
from downside.ops import masked
from downside.train.experience import (
    Lived,
    Replay,
    lived_decision,
    relabelled,
    simulated_decision,
)
from downside.train.rollout import greedy_returns, random_legal

compiled = functools.partial(eqx.filter_jit, compiler_options={"xla_cpu_multi_thread_eigen": False})
"""One core for each run. Two make a run of this size no faster; two runs side by side do use them
(`many.py`). And a result does not depend on how many cores there are."""

_START_STATES = 32
"""Start states that the learned outer step and the predicted value look at."""
_DISTRIBUTION_OUTCOMES = 2
_DISTRIBUTION_CHUNK = 250


class Kept(eqx.Module):
    """The best policy so far."""

    networks: Networks
    goal: Goal
    value: Float[Array, ""]
    """The risk measure's value of it, in the episodes that all iterates are measured in."""


class Run(eqx.Module):
    """Everything that changes in a run."""

    learner: Learner
    goal: Goal
    has_goal: Bool[Array, ""]
    """Whether an outer step has been made; before, the mean is maximised."""
    spread: Float[Array, ""]
    """Standard deviation of the returns, of the present policy where it is known."""
    env_states: Any
    replay: Replay
    vector_steps: Int[Array, ""]
    """Steps of all environments together, without the warm-up."""
    kept: Kept
    key: Key[Array, ""]
    """The root of all randomness; it never changes."""


class Metrics(NamedTuple):
    """What there is to say about one chunk."""

    timesteps: Float[Array, ""]
    updates: Float[Array, ""]
    critic_loss: Float[Array, ""]
    quantile_loss: Float[Array, ""]
    value: Float[Array, ""]
    """J of the present iterate: the risk measure's value of its policy, measured in episodes."""
    predicted: Float[Array, ""]
    """What the networks expect it to be."""
    best: Float[Array, ""]
    """The best value so far: the policy that is kept."""
    mean: Float[Array, ""]
    """Mean return of the present iterate's policy."""
    spread: Float[Array, ""]
    """Standard deviation of its returns."""
    exploration: Float[Array, ""]
    """Share of random actions."""


class Program(eqx.Module):
    """What does not change in a run: the environment, the settings, its length."""

    env: AbstractJaxEnv
    settings: Settings = eqx.field(static=True)
    make_trunk: MakeTrunk = eqx.field(static=True)
    chunks: int = eqx.field(static=True)
    """How many calls of `advance` make a run."""

    @property
    def steps_per_chunk(self) -> int:
        """Steps of all environments between two outer steps."""
        return self.settings.outer_interval // self.settings.updates_per_step

    @property
    def updates(self) -> int:
        """Updates of a run."""
        return self.chunks * self.settings.outer_interval

    @property
    def distribution_chunks(self) -> int:
        """How many calls of `settle` follow: none where the quantiles are the policy."""
        if self.settings.critic == "quantiles":
            return 0
        return math.ceil(self.settings.distribution_fraction * self.updates / _DISTRIBUTION_CHUNK)

    @property
    def quantiles_beside(self) -> bool:
        """Whether the quantiles are learned beside a critic, because the outer step needs them.
        Otherwise they wait for the policy to be final (`settle`)."""
        return self.settings.critic == "utility" and self.settings.outer == "learned"

    @property
    def _optimiser(self):
        return make_optimiser(self.settings, self.updates)

    @property
    def _quantile_optimiser(self):
        settings = self.settings
        if settings.critic == "quantiles":
            return self._optimiser
        beside = self.quantiles_beside * self.updates // settings.updates_per_step
        return make_optimiser(settings, beside + self.distribution_chunks * _DISTRIBUTION_CHUNK)


def measuring_horizon(env: AbstractJaxEnv, gamma: float) -> int:
    """After how many steps an episode that is measured is cut: when nothing counts any more."""
    if env.horizon is not None:
        return env.horizon
    return 1000 if gamma == 1.0 else min(1000, math.ceil(math.log(1e-3) / math.log(gamma)))


def make_program(
    env: AbstractJaxEnv, settings: Settings, make_trunk: MakeTrunk, total_timesteps: int
) -> Program:
    """The program of a run of about so many environment steps: a whole number of chunks."""
    per_chunk = settings.num_envs * (settings.outer_interval // settings.updates_per_step)
    return Program(env, settings, make_trunk, max(1, round(total_timesteps / per_chunk)))


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
        stream(key, "networks"), settings, program.make_trunk, size, env.num_actions
    )
    spread = jnp.maximum(returns.std(), 1e-6)
    if settings.normalise:
        flat = jax.vmap(lambda one: algorithm.view(one, goal))(seen.reshape(-1, size))
        mean, deviation = flat.mean(axis=0), flat.std(axis=0)
        deviation = jnp.where(deviation > 1e-6, deviation, 1.0)
        scale = Scale(mean, deviation, jnp.zeros(()), spread)
        centred = Scale(mean, deviation, returns.mean(), spread)
        networks = with_scale(networks, scale, centred)
    learner = make_learner(networks, program._optimiser)
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
        exploration = _exploration(settings, run.vector_steps / total)
        return _step(program, algorithm, run, exploration)

    run, (critic_losses, quantile_losses) = _scan(step, run, None, program.steps_per_chunk)
    run, value, predicted, returns = _outer(program, algorithm, run, run.vector_steps / total)
    metrics = Metrics(
        timesteps=run.vector_steps * settings.num_envs,
        updates=run.vector_steps * settings.updates_per_step,
        critic_loss=critic_losses.mean(),
        quantile_loss=quantile_losses.mean(),
        value=value,
        predicted=predicted,
        best=run.kept.value,
        mean=returns.mean(),
        spread=returns.std(),
        exploration=_exploration(settings, run.vector_steps / total),
    )
    return run, jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), metrics)


def _exploration(settings: Settings, progress: Float[Array, ""]) -> Float[Array, ""]:
    declined = jnp.clip(progress / max(settings.exploration_fraction, 1e-9), 0.0, 1.0)
    first, last = settings.exploration_initial, settings.exploration_final
    return first + declined * (last - first)


def _step(
    program: Program, algorithm: AbstractAlgorithm, run: Run, exploration: Float[Array, ""]
) -> tuple[Run, tuple[Array, Array]]:
    """One step of all environments and the updates that follow it."""
    settings = program.settings
    env = algorithm.wrap(program.env, run.goal)
    key = stream(run.key, "step", run.vector_steps)

    # Act.
    observations = jax.vmap(env.observe)(run.env_states)
    masks = jax.vmap(env.action_mask)(run.env_states)
    networks = run.learner.networks
    scores = jax.vmap(lambda one: action_scores(algorithm, networks, one, run.goal))(observations)
    best = jnp.argmax(jax.vmap(masked)(scores, masks), axis=-1)
    explore = jax.random.uniform(stream(key, "explore"), best.shape) < exploration
    actions = jnp.where(explore, random_legal(stream(key, "actions"), masks), best)
    lived, env_states = _live(env, run.env_states, actions, stream(key, "environments"))
    replay = run.replay.add(lived)

    # Learn.
    optimiser, quantile_optimiser = program._optimiser, program._quantile_optimiser
    unit = run.spread if settings.normalise else jnp.ones(())

    def batch(networks: Networks, key: Key[Array, ""]) -> Decision:
        return _batch(settings, algorithm, env, networks, run.goal, replay, unit, key)

    def update(learner: Learner, key: Key[Array, ""]):
        decisions = batch(learner.networks, key)
        if settings.critic == "utility":
            return update_critic(algorithm, settings, optimiser, learner, decisions, run.goal)
        return update_quantiles(
            algorithm, settings, quantile_optimiser, learner, decisions, run.goal, unit
        )

    keys = jax.random.split(stream(key, "updates"), settings.updates_per_step)
    learner, losses = _scan(update, run.learner, keys)
    quantile_loss = losses.mean()
    if program.quantiles_beside:
        decisions = _for_distribution(batch(learner.networks, stream(key, "quantiles")))
        learner, quantile_loss = update_quantiles(
            algorithm, settings, quantile_optimiser, learner, decisions, run.goal, unit
        )
    run = eqx.tree_at(
        lambda one: (one.learner, one.env_states, one.replay, one.vector_steps),
        run,
        (learner, env_states, replay, run.vector_steps + 1),
    )
    return run, (losses.mean(), quantile_loss)


def _batch(
    settings: Settings,
    algorithm: AbstractAlgorithm,
    env: AbstractJaxEnv,
    networks: Networks,
    goal: Goal,
    replay: Replay,
    unit: Float[Array, ""],
    key: Key[Array, ""],
) -> Decision:
    """Decisions to learn from, simulated afresh or as they were lived through."""
    noise = jax.random.normal(stream(key, "relabel"), (settings.batch_size,))
    amounts = settings.relabel * unit * noise
    sampled = replay.sample(stream(key, "sample"), settings.batch_size)
    if settings.branches:
        keys = jax.random.split(stream(key, "simulate"), settings.batch_size)
        decisions = jax.vmap(
            lambda state, amount, key: simulated_decision(
                algorithm, settings, env, networks, goal, state, amount, key
            )
        )(sampled.state, amounts, keys)
    else:
        decisions = jax.vmap(lambda one: lived_decision(env, one))(sampled)
    return jax.vmap(lambda one, amount: relabelled(algorithm, one, amount))(decisions, amounts)


def _scan(step: Any, carry: Any, xs: Any, length: int | None = None) -> tuple[Any, Any]:
    """`jax.lax.scan` over a carry that may hold functions: a network's activations, say."""
    arrays, rest = eqx.partition(carry, eqx.is_array)

    def of_arrays(arrays: Any, x: Any) -> tuple[Any, Any]:
        carry, out = step(eqx.combine(arrays, rest), x)
        return eqx.filter(carry, eqx.is_array), out

    arrays, out = jax.lax.scan(of_arrays, arrays, xs, length=length)
    return eqx.combine(arrays, rest), out


def _for_distribution(decisions: Decision) -> Decision:
    """Of each decision the best action and one drawn at random, with a few outcomes."""
    actions = jnp.array([0, decisions.actions.shape[1] - 1])
    chosen = {
        name: getattr(decisions, name)[:, actions]
        for name in ("actions", "rewards", "next_observations", "next_masks", "terminated")
    }
    for name in ("rewards", "next_observations", "next_masks", "terminated"):
        chosen[name] = chosen[name][:, :, :_DISTRIBUTION_OUTCOMES]
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


# --- the outer step ---------------------------------------------------------------------------


def _outer(
    program: Program, algorithm: AbstractAlgorithm, run: Run, progress: Float[Array, ""]
) -> tuple[Run, Array, Array, Array]:
    """Measures the candidates, keeps the best policy seen, and moves the goal."""
    settings = program.settings
    networks = run.learner.networks
    start_score = _start_score(program, algorithm, networks, run.key)
    goals = algorithm.candidates(run.goal, run.spread, settings, start_score)
    returns = jax.vmap(
        lambda goal: policy_returns(
            program, algorithm, networks, goal, settings.outer_episodes, stream(run.key, "measure")
        )
    )(goals)
    returns = jnp.sort(returns, axis=-1)
    values = jax.vmap(algorithm.objective.value)(returns)
    measured = Measured(goals, values, returns)
    middle, best = values.shape[0] // 2, jnp.argmax(values)

    better = values[best] > run.kept.value
    candidate = Kept(networks, jax.tree.map(lambda leaf: leaf[best], goals), values[best])
    kept = _where(better, candidate, run.kept)

    due = progress >= settings.neutral_fraction
    if settings.outer == "simulated":
        moved = algorithm.outer_step(run.goal, measured, settings.outer_rate, ~run.has_goal)
    else:
        start = _learned_start(program, algorithm, networks, run)
        moved = algorithm.learned_outer_step(run.goal, start, start_score, settings.outer_rate)
    predicted = algorithm.predicted_value(start_score(run.goal), run.goal)
    if settings.normalise and settings.rescale_until > 0:
        run = _rescaled(program, algorithm, run, due & (progress <= settings.rescale_until))
    run = eqx.tree_at(
        lambda one: (one.goal, one.has_goal, one.kept, one.spread),
        run,
        (
            _where(due, moved, run.goal),
            run.has_goal | due,
            kept,
            jnp.maximum(returns[middle].std(), 1e-6),
        ),
    )
    return run, values[middle], predicted, returns[middle]


def _rescaled(
    program: Program, algorithm: AbstractAlgorithm, run: Run, due: Bool[Array, ""]
) -> Run:
    """The inputs scaled by their spread since the last outer step, half of the way."""
    env = algorithm.wrap(program.env, run.goal)
    count = min(program.steps_per_chunk * program.settings.num_envs, run.replay.capacity)
    seen = jax.vmap(env.observe)(run.replay.latest(count).state)
    measured = seen.std(axis=0)

    def spreads(run: Run) -> list[Any]:
        learner = run.learner
        parts = (learner.networks, learner.targets)
        networks = [n for part in parts for n in (part.critic, part.quantiles) if n is not None]
        return [network.scale.input_spread for network in networks]

    old = spreads(run)[0]
    new = jnp.where(due & (measured > 1e-6), jnp.sqrt(old * measured), old)
    return eqx.tree_at(spreads, run, [new for _ in spreads(run)])


def policy_returns(
    program: Program,
    algorithm: AbstractAlgorithm,
    networks: Networks,
    goal: Goal,
    episodes: int,
    key: Key[Array, ""],
) -> Float[Array, " n"]:
    """Returns of the greedy policy."""

    def act(observation: Array, mask: Array, key: Key[Array, ""]) -> Array:
        del key
        return jnp.argmax(masked(action_scores(algorithm, networks, observation, goal), mask))

    return greedy_returns(
        algorithm.wrap(program.env, goal),
        act,
        gamma=program.settings.gamma,
        horizon=measuring_horizon(program.env, program.settings.gamma),
        episodes=episodes,
        key=key,
    )


def _start_keys(key: Key[Array, ""]) -> Key[Array, " m"]:
    return jax.random.split(stream(key, "start states"), _START_STATES)


def _start_score(
    program: Program, algorithm: AbstractAlgorithm, networks: Networks, key: Key[Array, ""]
) -> Any:
    """What the networks expect at the start, on average over start states, for a goal."""
    keys = _start_keys(key)

    def score(goal: Goal) -> Float[Array, ""]:
        env = algorithm.wrap(program.env, goal)

        def of_one(key: Key[Array, ""]) -> Array:
            state = env.initial_state(key)
            scores = action_scores(algorithm, networks, env.observe(state), goal)
            return masked(scores, env.action_mask(state)).max()

        return jax.vmap(of_one)(keys).mean()

    return score


def _learned_start(
    program: Program, algorithm: AbstractAlgorithm, networks: Networks, run: Run
) -> Float[Array, " n"]:
    env = algorithm.wrap(program.env, run.goal)
    states = jax.vmap(env.initial_state)(_start_keys(run.key))
    seen = jax.vmap(lambda one: algorithm.view(env.observe(one), run.goal))(states)
    quantiles = jax.vmap(networks.quantiles)(seen)
    return start_distribution(algorithm.objective, quantiles, jax.vmap(env.action_mask)(states))


def _where(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
    def choose(new: Any, old: Any) -> Any:
        return jnp.where(condition, new, old) if eqx.is_array(old) else old

    return jax.tree.map(choose, new, old)


# --- the end ----------------------------------------------------------------------------------


@compiled
def settle(program: Program, algorithm: AbstractAlgorithm, run: Run) -> tuple[Run, Array]:
    """Updates of the quantiles alone, for the policy that is kept: it does not change any more."""
    settings = program.settings
    kept, optimiser = run.kept, program._quantile_optimiser
    env = algorithm.wrap(program.env, kept.goal)
    unit = run.spread if settings.normalise else jnp.ones(())

    def update(learner: Learner, key: Key[Array, ""]):
        decisions = _batch(
            settings, algorithm, env, kept.networks, kept.goal, run.replay, unit, key
        )
        return update_quantiles(
            algorithm, settings, optimiser, learner, _for_distribution(decisions), kept.goal, unit
        )

    # The kept policy decides, and its quantiles are the ones that go on learning.
    learner = eqx.tree_at(
        lambda one: (one.networks.critic, one.targets.critic),
        run.learner,
        (kept.networks.critic, kept.networks.critic),
        is_leaf=lambda leaf: leaf is None,
    )
    key = stream(run.key, "settle", learner.quantile_updates)
    learner, losses = _scan(update, learner, jax.random.split(key, _DISTRIBUTION_CHUNK))
    kept = eqx.tree_at(lambda one: one.networks.quantiles, kept, learner.networks.quantiles)
    run = eqx.tree_at(lambda one: (one.learner, one.kept), run, (learner, kept))
    return run, losses.mean()
