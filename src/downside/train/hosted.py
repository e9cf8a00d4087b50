"""Training in any Gymnasium environment, with compiled updates.

The environment is stepped by Python, the agent acts by one small compiled call for all environments
together, and the updates of a round run while the environments are being stepped: they are handed
over before the step and waited for after it.

A run is a `HostedRun`; the episodes that are under way belong to the loop and not to it. They are
abandoned when training stops: it goes on with new ones, whose seeds follow from the seed of the run
and the number of steps, so that what happens after a checkpoint depends on the checkpoint alone.
"""

import math
import zlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from downside._random import stream
from downside.agents.algorithm import AbstractAlgorithm, Decision, Goal
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
from downside.agents.networks import Scale, input_spread
from downside.ops import masked
from downside.train.host import Host, HostCore, HostState
from downside.train.host_memory import HostReplay, Ring, Samples
from downside.train.outer import learned_goal, where
from downside.train.program import Kept, Program, exploration_share

_WINDOW = 100
"""Finished episodes that the present policy is judged by."""
_STARTS = 256
"""First observations that are remembered."""
_MOST_WARMUP = 20
"""How many times longer the warm-up may get until an episode has ended."""


class HostedRun(eqx.Module):
    """Everything that changes in a run, but for the environments themselves."""

    learner: Learner
    goal: Goal
    has_goal: Bool[Array, ""]
    """Whether an outer step has been made; before, the mean is maximised."""
    spread: Float[Array, ""]
    """Standard deviation of the returns of the present policy."""
    kept: Kept
    key: Key[Array, ""]
    """The root of all randomness; it never changes."""
    rounds: Int[np.ndarray, ""]
    """Rounds of `update_interval` steps of all environments and the updates that follow."""
    replay: HostReplay
    episodes: Ring
    """Of the last episodes: discounted return, sum of rewards, length."""
    starts: Ring
    start_masks: Ring


class HostedLoop:
    """The loop over one environment."""

    def __init__(self, host: Host):
        self.host = host
        self._compiled: tuple[Any, Any] | None = None

    # --- episodes -----------------------------------------------------------------------------

    def restart(self, seed: int) -> None:
        """Abandons the episodes that are under way and begins new ones."""
        count = self.host.num_envs
        self._observations, self._masks = self.host.reset(seed)
        self._accumulated, self._discount = np.zeros(count), np.ones(count)
        self._rewards, self._lengths = np.zeros(count), np.zeros(count)
        self._fresh = np.ones(count, bool)

    def _act(self, program: Program, run: HostedRun, actions: Int[np.ndarray, " n"]) -> None:
        """Steps all environments and remembers what happened."""
        if self._fresh.any():
            run.starts.add(self._observations[self._fresh])
            run.start_masks.add(self._masks[self._fresh])
        seen = self.host.step(actions)
        lived = seen.lived
        run.replay.add(
            Samples(
                self._observations[lived],
                self._accumulated[lived],
                self._discount[lived],
                actions[lived],
                seen.rewards[lived],
                seen.after[lived],
                seen.after_masks[lived],
                seen.terminated[lived],
            )
        )
        self._accumulated = self._accumulated + np.where(lived, self._discount * seen.rewards, 0.0)
        self._discount = np.where(lived, program.settings.gamma * self._discount, self._discount)
        self._rewards += np.where(lived, seen.rewards, 0.0)
        self._lengths += lived
        if seen.over.any():
            ended = np.stack([self._accumulated, self._rewards, self._lengths], axis=-1)
            run.episodes.add(ended[seen.over])
            for array, value in (
                (self._accumulated, 0.0),
                (self._discount, 1.0),
                (self._rewards, 0.0),
                (self._lengths, 0.0),
            ):
                array[seen.over] = value
        self._observations, self._masks, self._fresh = seen.observations, seen.masks, seen.started

    # --- the start ----------------------------------------------------------------------------

    def begin(
        self, program: Program, algorithm: AbstractAlgorithm, key: Key[Array, ""]
    ) -> HostedRun:
        """A run that has seen random play and learned nothing yet."""
        settings, host = program.settings, self.host
        run = blank(program, algorithm, key)
        self.restart(episode_seed(key, 0))
        warmup = math.ceil(settings.warmup_steps / host.num_envs)
        for step in range(warmup * _MOST_WARMUP):
            if step >= warmup and int(run.episodes.added) >= 2:
                break
            draws = _draws(key, "warm-up", step)
            self._act(program, run, _random_legal(draws, self._masks))
        return _warmed_up(program, algorithm, run)

    # --- one chunk ----------------------------------------------------------------------------

    def advance(
        self, program: Program, algorithm: AbstractAlgorithm, run: HostedRun
    ) -> tuple[HostedRun, dict[str, float]]:
        """From one outer step to the next."""
        settings = program.settings
        total = program.chunks * program.steps_per_chunk
        first = int(run.rounds)
        choose, update, static = self._functions(program, algorithm, run)
        learner, tree = jax.tree.flatten(eqx.filter(run.learner, eqx.is_array))
        fixed = jax.tree.leaves(eqx.filter((algorithm, run.goal, run.spread), eqx.is_array))
        count = len(jax.tree.leaves(eqx.filter(run.learner.networks, eqx.is_array)))
        losses = []
        for number in range(first, first + program.steps_per_chunk):
            share = exploration_share(settings, number / total)
            for tick in range(settings.update_interval):
                draws = _draws(run.key, "act", number * settings.update_interval + tick)
                explore = draws.random(self.host.num_envs) < share
                if explore.all():
                    actions = _random_legal(draws, self._masks)
                else:
                    seen = self._observations, self._accumulated, self._discount, self._masks
                    best = np.asarray(choose(learner[:count], fixed, *seen))
                    actions = np.where(explore, _random_legal(draws, self._masks), best)
                if tick == 0:  # computed while the environments are being stepped
                    draws = _draws(run.key, "updates", number)
                    shape = (settings.updates_per_step, settings.batch_size)
                    samples = run.replay.sample(draws, shape)
                    noise = draws.standard_normal(shape, np.float32)
                    learner, loss = update(learner, fixed, samples, noise)
                    losses.append(loss)
                self._act(program, run, actions)
        learner = eqx.combine(jax.tree.unflatten(tree, learner), static)
        run.rounds[...] += program.steps_per_chunk
        run = eqx.tree_at(lambda one: one.learner, run, learner)
        return self._outer_step(program, algorithm, run, float(np.mean(jax.device_get(losses))))

    def greedily(
        self, program: Program, algorithm: AbstractAlgorithm, run: HostedRun
    ) -> Callable[[], None]:
        """A function that steps all environments by the present policy, without learning."""
        choose, _, _ = self._functions(program, algorithm, run)
        networks = jax.tree.leaves(eqx.filter(run.learner.networks, eqx.is_array))
        fixed = jax.tree.leaves(eqx.filter((algorithm, run.goal, run.spread), eqx.is_array))

        def act() -> None:
            seen = self._observations, self._accumulated, self._discount, self._masks
            self._act(program, run, np.asarray(choose(networks, fixed, *seen)))

        return act

    def _functions(
        self, program: Program, algorithm: AbstractAlgorithm, run: HostedRun
    ) -> tuple[Any, Any, Any]:
        """What is called once per step, compiled; its arguments are flat lists of arrays, whose
        handing over costs little."""
        static = eqx.partition(run.learner, eqx.is_array)[1]
        known = (program.settings, program.chunks, jax.tree.structure(run.goal))
        if self._compiled is None or self._compiled[0] != known:
            self._compiled = (known, _compile(program, algorithm, run))
        return *self._compiled[1], static

    def _outer_step(
        self, program: Program, algorithm: AbstractAlgorithm, run: HostedRun, loss: float
    ) -> tuple[HostedRun, dict[str, float]]:
        """Judges the policy by the last episodes, and moves the goal."""
        settings = program.settings
        progress = int(run.rounds) / (program.chunks * program.steps_per_chunk)
        returns, rewards, lengths = run.episodes.filled().T
        # As many numbers whatever the number of episodes: what is compiled knows one size.
        ranks = (np.arange(_WINDOW) + 0.5) / _WINDOW
        window = np.quantile(returns, ranks, method="inverted_cdf").astype(np.float32)
        # While actions are still mostly random, returns say little about the policy.
        judged = progress > settings.exploration_fraction and len(returns) == _WINDOW
        goal, kept, value, predicted = _outer(
            _with_starts(program, run),
            algorithm,
            run.learner.networks,
            run.goal,
            run.has_goal,
            run.kept,
            run.key,
            jnp.asarray(window),
            jnp.asarray(progress >= settings.neutral_fraction),
            jnp.asarray(judged),
        )
        run = eqx.tree_at(
            lambda one: (one.goal, one.kept, one.has_goal, one.spread),
            run,
            (
                goal,
                kept,
                run.has_goal | (progress >= settings.neutral_fraction),
                jnp.maximum(jnp.asarray(window.std()), 1e-6),
            ),
        )
        metrics = {
            "timesteps": float(run.rounds) * program.timesteps_per_round,
            "updates": float(run.rounds) * settings.updates_per_step,
            "critic_loss": loss,
            "quantile_loss": loss,
            "value": float(value),
            "predicted": float(predicted),
            "best": float(run.kept.value),
            "mean": float(returns.mean()),
            "spread": float(returns.std()),
            "exploration": exploration_share(settings, progress),
            "episodes": float(run.episodes.added),
            "episode_reward": float(rewards.mean()),
            "episode_length": float(lengths.mean()),
        }
        return run, metrics


# --- compiled ---------------------------------------------------------------------------------


def blank(program: Program, algorithm: AbstractAlgorithm, key: Key[Array, ""]) -> HostedRun:
    """A run that has not seen anything."""
    settings, core = program.settings, program.env
    goal = algorithm.first_goal(jnp.zeros(2))
    size = algorithm.wrap(core, goal).observation_space.shape[0]
    networks = make_networks(
        stream(key, "networks"),
        settings,
        program.make_trunk,
        size,
        core.num_actions,
        anchored=not core.bounded,
    )
    own = core.observation_space.shape[0]
    return HostedRun(
        learner=make_learner(networks, program.optimiser),
        goal=goal,
        has_goal=jnp.zeros((), bool),
        spread=jnp.ones(()),
        kept=Kept(networks, goal, jnp.asarray(-jnp.inf)),
        key=key,
        rounds=np.zeros((), np.int64),
        replay=HostReplay.empty(own, core.num_actions, settings.buffer_size),
        episodes=Ring.empty(_WINDOW, (3,), np.float64),
        starts=Ring.empty(_STARTS, (own,), np.float32),
        start_masks=Ring.empty(_STARTS, (core.num_actions,), bool),
    )


def _warmed_up(program: Program, algorithm: AbstractAlgorithm, run: HostedRun) -> HostedRun:
    """With what random play says about how large the numbers are."""
    count = min(int(run.replay.added), run.replay.capacity)
    seen = Samples(*(array[:count] for array in run.replay.storage))
    episodes = run.episodes.filled()
    # Where no episode has ended, what was earned by then has to do.
    returns = episodes[:, 0] if len(episodes) > 1 else seen.accumulated
    goal = algorithm.first_goal(jnp.asarray(returns, jnp.float32))
    spread = float(np.std(returns))
    spread = spread if spread > 1e-6 else max(1.0, float(np.abs(returns).max()))
    networks = run.learner.networks
    if program.settings.normalise:
        inputs = jax.vmap(
            lambda observation, s, c: algorithm.view(
                jnp.concatenate([observation, algorithm.remembered(s, c, goal)]), goal
            )
        )(seen.observation, seen.accumulated, seen.discount_so_far)
        mean, deviation = inputs.mean(axis=0), input_spread(inputs)
        deviation = jnp.where(deviation > 1e-6, deviation, 1.0)
        own = jnp.asarray(spread, jnp.float32)
        networks = with_scale(
            networks,
            Scale(mean, deviation, jnp.zeros(()), own),
            Scale(mean, deviation, jnp.asarray(returns.mean(), jnp.float32), own),
        )
    return eqx.tree_at(
        lambda one: (one.learner, one.goal, one.spread, one.kept),
        run,
        (
            make_learner(networks, program.optimiser),
            goal,
            jnp.asarray(spread, jnp.float32),
            Kept(networks, goal, run.kept.value),
        ),
    )


def _compile(
    program: Program, algorithm: AbstractAlgorithm, run: HostedRun
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(choose, update): the best actions, and a round of updates."""
    settings = program.settings
    learner_tree, learner_rest = _split(run.learner)
    networks_tree, networks_rest = _split(run.learner.networks)
    fixed_tree, fixed_rest = _split((algorithm, run.goal, run.spread))

    def whole(leaves: list[Array], tree: Any, rest: Any) -> Any:
        return eqx.combine(jax.tree.unflatten(tree, leaves), rest)

    def choose(
        networks_leaves: list[Array],
        fixed: list[Array],
        observations: Array,
        accumulated: Array,
        discount: Array,
        masks: Array,
    ) -> Array:
        networks: Networks = whole(networks_leaves, networks_tree, networks_rest)
        algorithm, goal, _ = whole(fixed, fixed_tree, fixed_rest)

        return jax.vmap(lambda *seen: hosted_action(algorithm, networks, goal, *seen))(
            observations, accumulated, discount, masks
        )

    def update(
        learner_leaves: list[Array], fixed: list[Array], samples: Samples, noise: Array
    ) -> tuple[list[Array], Array]:
        algorithm, goal, spread = whole(fixed, fixed_tree, fixed_rest)
        unit = spread if settings.normalise else jnp.ones(())

        def one(leaves: list[Array], batch: tuple[Samples, Array]) -> tuple[list[Array], Array]:
            learner: Learner = whole(leaves, learner_tree, learner_rest)
            samples, noise = batch
            decisions = jax.vmap(lambda lived, amount: _decision(algorithm, goal, lived, amount))(
                samples, settings.relabel * unit * noise
            )
            loss = jnp.zeros(())
            if settings.critic == "utility":
                learner, loss = update_critic(
                    algorithm, settings, program.optimiser, learner, decisions, goal
                )
            if program.quantiles_beside or settings.critic == "quantiles":
                learner, loss = update_quantiles(
                    algorithm, settings, program.quantile_optimiser, learner, decisions, goal, unit
                )
            return jax.tree.leaves(eqx.filter(learner, eqx.is_array)), loss

        leaves, losses = jax.lax.scan(one, learner_leaves, (samples, noise))
        return leaves, losses.mean()

    # One core for the networks: the other one steps the environments.
    options: Any = {"compiler_options": {"xla_cpu_multi_thread_eigen": False}}
    return jax.jit(choose, **options), jax.jit(update, **options)


def hosted_action(
    algorithm: AbstractAlgorithm,
    networks: Networks,
    goal: Goal,
    observation: Float[Array, " d"],
    accumulated: Float[Array, ""],
    discount_so_far: Float[Array, ""],
    mask: Bool[Array, " A"],
) -> Int[Array, ""]:
    """The best action in a hosted environment, where the memory is kept beside the observation."""
    remembered = algorithm.remembered(accumulated, discount_so_far, goal)
    seen = jnp.concatenate([observation, remembered])
    return jnp.argmax(masked(action_scores(algorithm, networks, seen, goal), mask))


def _split(tree: Any) -> tuple[Any, Any]:
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return jax.tree.structure(arrays), rest


def _decision(
    algorithm: AbstractAlgorithm, goal: Goal, lived: Any, amount: Float[Array, ""]
) -> Decision:
    """A transition (`Samples`) as a decision with one action and one outcome, relabelled."""
    s, c = lived.accumulated, lived.discount_so_far
    after_s, after_c = s + c * lived.reward, algorithm.gamma * c
    observation = jnp.concatenate([lived.observation, algorithm.remembered(s, c, goal)])
    after = jnp.concatenate([lived.after, algorithm.remembered(after_s, after_c, goal)])
    observation, afters = algorithm.relabel(observation, after[None, None], amount)
    return Decision(
        observation,
        lived.action[None],
        jnp.ones(1),
        lived.reward[None, None],
        afters,
        lived.after_mask[None, None],
        lived.terminated[None, None],
    )


@eqx.filter_jit
def _outer(
    program: Program,
    algorithm: AbstractAlgorithm,
    networks: Networks,
    goal: Goal,
    has_goal: Bool[Array, ""],
    kept: Kept,
    key: Key[Array, ""],
    window: Float[Array, " n"],
    due: Bool[Array, ""],
    judged: Bool[Array, ""],
) -> tuple[Goal, Kept, Float[Array, ""], Float[Array, ""]]:
    """The next goal, the policy to keep, and the value of the present one."""
    value = algorithm.objective.value(window)
    moved, predicted = learned_goal(program, algorithm, networks, goal, has_goal, key)
    better = ~judged | (value > kept.value)
    # Until policies are judged the latest one is kept, at no value: any that is judged beats it.
    candidate = Kept(networks, goal, jnp.where(judged, value, -jnp.inf))
    return where(due, moved, goal), where(better, candidate, kept), value, predicted


def _with_starts(program: Program, run: HostedRun) -> Program:
    """The program with the first observations of the last episodes, always as many of them."""
    index = np.resize(np.arange(len(run.starts.filled())), _STARTS)
    starts = HostState(
        jnp.asarray(run.starts.rows[index]), jnp.asarray(run.start_masks.rows[index])
    )
    return eqx.tree_at(lambda one: one.env, program, HostCore(starts))


def host_core(host: Host) -> HostCore:
    """The environment as compiled functions know it, before anything was seen."""
    blank = HostState(jnp.zeros((_STARTS, host.size)), jnp.ones((_STARTS, host.actions), bool))
    return HostCore(blank)


# --- randomness of the host -------------------------------------------------------------------


def _draws(key: Key[Array, ""], name: str, number: int) -> np.random.Generator:
    """A generator that depends on the root, a name and a number alone, and costs little to make."""
    root = np.asarray(jax.random.key_data(key)).view(np.uint64).ravel()[0]
    counter = [0, 0, zlib.crc32(name.encode()), number]
    return np.random.Generator(np.random.Philox(counter=counter, key=int(root)))


def episode_seed(key: Key[Array, ""], timesteps: int) -> int:
    """The seed that environments are reset with when training begins or goes on."""
    return int(_draws(key, "episodes", timesteps).integers(0, 2**31 - 1))


def _random_legal(
    draws: np.random.Generator, masks: Bool[np.ndarray, "n A"]
) -> Int[np.ndarray, " n"]:
    """A legal action at random, in each environment."""
    return np.where(masks, draws.random(masks.shape), -1.0).argmax(axis=1)
