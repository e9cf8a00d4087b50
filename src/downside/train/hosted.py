"""Training in any Gymnasium environment, with compiled updates.

The environment is stepped by Python, the agent acts by one small compiled call for all environments
together, and the updates of a round run while the environments are being stepped: they are handed
over before the step and waited for after it.

A run is a `HostedRun`; the episodes that are under way belong to the loop and not to it. They are
abandoned when training stops, or when somebody else plays in the environment: it goes on with new
ones, whose seeds follow from the seed of the run and the number of steps, so that what happens
after a checkpoint depends on the checkpoint alone.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from downside.agents.algorithm import AbstractAlgorithm
from downside.agents.settings import Settings
from downside.train.averaging import averaged
from downside.train.host import EnvironmentFaultError, Host
from downside.train.host_memory import HostReplay, Ring, Samples
from downside.train.hosted_compiled import awaited, compiled_round, outer_step
from downside.train.hosted_run import (
    WINDOW,
    Draws,
    HostedRun,
    blank,
    episode_seed,
    warmed_up,
    with_starts,
)
from downside.train.playing import Player
from downside.train.program import Kept, Program, exploration_share
from downside.train.trials import Trials, allowance, least_episodes, try_out

_MOST_WARMUP = 20
"""How many times longer the warm-up may get until an episode has ended."""


class HostedLoop:
    """The loop over one environment."""

    def __init__(self, host: Host):
        self.host = host
        self._compiled: tuple[Any, tuple[Callable[..., Any], Callable[..., Any]]] | None = None

    # --- episodes -----------------------------------------------------------------------------

    def restart(self, seed: int) -> None:
        """Abandons the episodes that are under way and begins new ones."""
        count = self.host.num_envs
        self._observations, self._masks = self.host.reset(seed)
        self._accumulated, self._discount = np.zeros(count), np.ones(count)
        self._rewards, self._lengths = np.zeros(count), np.zeros(count)
        self._fresh = np.ones(count, bool)
        self._latest = np.full(count, -1)
        self._resets = self.host.resets

    def _act(
        self,
        program: Program,
        run: HostedRun,
        actions: Int[np.ndarray, " n"],
        explored: Bool[np.ndarray, " n"],
    ) -> None:
        """Steps all environments and remembers what happened.

        What an action led to that was `explored`, not chosen, says nothing of the policy: where
        several steps are taken as one, they end before it.
        """
        self._latest[explored] = -1
        # Methods by their class: a method of a module is a module, and takes long to make.
        if self._fresh.any():
            Ring.add(run.starts, self._observations[self._fresh])
            Ring.add(run.start_masks, self._masks[self._fresh])
        seen = self.host.step(actions)
        # All of them, mostly; those that did nothing but reset are left out.
        lived = slice(None) if seen.lived.all() else seen.lived
        gamma = program.settings.gamma
        rewards, earned = seen.rewards[lived], self._discount[lived] * seen.rewards[lived]
        self._latest[lived] = HostReplay.add(
            run.replay,
            Samples(
                self._observations[lived],
                self._accumulated[lived],
                self._discount[lived],
                actions[lived],
                rewards,
                seen.after[lived],
                seen.after_masks[lived],
                seen.terminated[lived],
                np.full(len(rewards), gamma),
            ),
            self._latest[lived],
        )
        self._accumulated[lived] += earned
        self._discount[lived] *= gamma
        self._rewards[lived] += rewards
        self._lengths[lived] += 1
        if seen.over.any():
            ended = np.stack([self._accumulated, self._rewards, self._lengths], axis=-1)
            Ring.add(run.episodes, ended[seen.over])
            for array, value in (
                (self._accumulated, 0.0),
                (self._discount, 1.0),
                (self._rewards, 0.0),
                (self._lengths, 0.0),
                (self._latest, -1),
            ):
                array[seen.over] = value
        self._observations, self._masks, self._fresh = seen.observations, seen.masks, seen.started

    def _cut_off(self, settings: Settings, streams: Draws, step: int) -> None:
        """Ends some of the episodes in which rewards hardly count any more."""
        late = self._discount < settings.least_discount
        if late.any():
            chance = streams.of("cut", step).random(len(late))
            self.host.cut(late & (chance < 1.0 - settings.gamma))

    # --- the start ----------------------------------------------------------------------------

    def begin(
        self, program: Program, algorithm: AbstractAlgorithm, key: Key[Array, ""]
    ) -> HostedRun:
        """A run that has seen random play and learned nothing yet."""
        settings, host = program.settings, self.host
        run = blank(program, algorithm, key)
        self.restart(episode_seed(key, 0))
        draws = Draws(key)
        warmup = math.ceil(settings.warmup_steps / host.num_envs)
        for step in range(warmup * _MOST_WARMUP):
            if step >= warmup and int(run.episodes.added) >= 2:
                break
            actions = _random_legal(draws.of("warm-up", step), self._masks)
            self._act(program, run, actions, np.ones(host.num_envs, bool))
        if int(run.episodes.added) == 0:
            raise EnvironmentFaultError(
                f"No episode of {host.name} ended in {warmup * _MOST_WARMUP * host.num_envs:,} "
                "steps of random play, so that there is no return to learn from. Wrap the "
                "environment in `gymnasium.wrappers.TimeLimit`."
            )
        return warmed_up(program, algorithm, run)

    # --- one chunk ----------------------------------------------------------------------------

    def advance(
        self, program: Program, algorithm: AbstractAlgorithm, run: HostedRun
    ) -> tuple[HostedRun, dict[str, float]]:
        """From one outer step to the next."""
        settings = program.settings
        total = program.chunks * program.steps_per_chunk
        first = int(run.rounds)
        if self.host.resets != self._resets:  # a callback or a trial has played in it
            self.restart(episode_seed(run.key, first * program.timesteps_per_round))
        choose, update = self._functions(program, algorithm, run)
        arrays, rest = eqx.partition(run.learner, eqx.is_array)
        learner, tree = jax.tree.flatten(arrays)
        # The networks are the learner's first field, so their leaves come first.
        networks = len(_leaves(run.learner.networks))
        fixed = _leaves((algorithm, run.goal, run.spread))
        streams = Draws(run.key)
        losses = []
        for number in range(first, first + program.steps_per_chunk):
            share = exploration_share(settings, number / total)
            for tick in range(settings.update_interval):
                draws = streams.of("act", number * settings.update_interval + tick)
                explore = draws.random(self.host.num_envs) < share
                if explore.all():
                    actions = _random_legal(draws, self._masks)
                else:
                    seen = self._observations, self._accumulated, self._discount, self._masks
                    best = np.asarray(choose(learner[:networks], fixed, *seen))
                    actions = np.where(explore, _random_legal(draws, self._masks), best)
                if tick == 0:  # computed while the environments are being stepped
                    draws = streams.of("updates", number)
                    shape = (settings.updates_per_step, settings.batch_size)
                    samples = HostReplay.sample(run.replay, draws, shape, settings.n_steps)
                    noise = draws.standard_normal(shape, np.float32)
                    learner, loss = update(learner, fixed, samples, noise)
                    losses.append(loss)
                self._cut_off(settings, streams, number * settings.update_interval + tick)
                self._act(program, run, actions, explore)
        learner = eqx.combine(jax.tree.unflatten(tree, learner), rest)
        # Not in place: whoever drops this step, as one that diverged, goes on from the run before.
        rounds = np.asarray(run.rounds + program.steps_per_chunk)  # a sum alone is no array
        run = eqx.tree_at(lambda one: (one.learner, one.rounds), run, (learner, rounds))
        return self._outer_step(program, algorithm, run, float(np.mean(jax.device_get(losses))))

    def _functions(
        self, program: Program, algorithm: AbstractAlgorithm, run: HostedRun
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """(choose, update), compiled when they are first needed."""
        known = (program.settings, program.chunks, jax.tree.structure(run.goal))
        if self._compiled is None or self._compiled[0] != known:
            self._compiled = (known, compiled_round(program, algorithm, run))
        return self._compiled[1]

    def _outer_step(
        self, program: Program, algorithm: AbstractAlgorithm, run: HostedRun, loss: float
    ) -> tuple[HostedRun, dict[str, float]]:
        """Judges the policy, by the last episodes or in a trial, and moves the goal."""
        settings = program.settings
        progress = int(run.rounds) / (program.chunks * program.steps_per_chunk)
        returns, rewards, lengths = run.episodes.filled().T
        # As many numbers whatever the number of episodes: what is compiled knows one size.
        ranks = (np.arange(WINDOW) + 0.5) / WINDOW
        window = np.quantile(returns, ranks, method="inverted_cdf").astype(np.float32)
        # While actions are still mostly random, returns say little about the policy.
        judged = progress > settings.exploration_fraction and len(returns) == WINDOW
        average, to_keep = averaged(run.average, run.learner.networks, progress, settings)
        policy = Kept(to_keep, run.goal, run.kept.value)
        goal, kept, value, predicted = outer_step(
            with_starts(program, run),
            algorithm,
            run.learner.networks,
            to_keep,
            run.goal,
            run.has_goal,
            run.kept,
            run.key,
            jnp.asarray(window),
            jnp.asarray(progress >= settings.neutral_fraction),
            jnp.asarray(judged),
        )
        kept, trials = kept if not run.trials.held else run.kept, run.trials
        if math.isfinite(loss):
            length = float(lengths.mean())
            kept, trials = self._try_out(program, algorithm, run, policy, kept, length)
        run = eqx.tree_at(
            lambda one: (one.goal, one.kept, one.trials, one.average, one.has_goal, one.spread),
            run,
            (
                goal,
                kept,
                trials,
                average,
                run.has_goal | (progress >= settings.neutral_fraction),
                jnp.maximum(jnp.asarray(window.std()), 1e-6),
            ),
            is_leaf=lambda one: one is None,  # where there is no average
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

    def _try_out(
        self,
        program: Program,
        algorithm: AbstractAlgorithm,
        run: HostedRun,
        policy: Kept,
        before: Kept,
        length: float,
    ) -> tuple[Kept, Trials]:
        """What to keep, the present policy or the one before, if it is time for a trial."""
        trials, rounds = run.trials, int(run.rounds)
        least = least_episodes(algorithm.objective)
        chunk = rounds // program.steps_per_chunk
        steps = allowance(program, chunk, int(trials.steps), least * length)
        if steps == 0.0:
            return before, trials
        choose, _ = self._functions(program, algorithm, run)
        leaves = _leaves(policy.networks), _leaves((algorithm, policy.goal, run.spread))
        # Of each, what it is worth at least: the best of many noisy values is mostly lucky. The
        # first one has to beat the best that the last episodes of training have said so far.
        bar = float(before.value) - (float(trials.error) if trials.held else 0.0)
        host = self.host.for_evaluation(least)
        try:
            player = Player(
                host,
                lambda *seen: awaited(choose(*leaves, *seen)),
                program.settings.gamma,
                episode_seed(run.key, rounds * program.timesteps_per_round, "trials"),
            )
            value, error = try_out(player, algorithm.objective, bar, steps)
        finally:
            host.close()
        better = value - error > bar
        spent = np.asarray(trials.steps + player.steps)  # a sum alone is no array
        trials = Trials(spent, np.asarray(error if better else trials.error))
        kept = Kept(policy.networks, policy.goal, jnp.asarray(value, jnp.float32))
        return kept if better else before, trials


def _leaves(tree: Any) -> list[Array]:
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def _random_legal(
    draws: np.random.Generator, masks: Bool[np.ndarray, "n A"]
) -> Int[np.ndarray, " n"]:
    """A legal action at random, in each environment."""
    return np.where(masks, draws.random(masks.shape), -1.0).argmax(axis=1)
