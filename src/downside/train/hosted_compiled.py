"""The compiled parts of a hosted run: choosing actions, a round of updates, the outer step."""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from downside.agents.algorithm import AbstractAlgorithm, Decision, Goal
from downside.agents.learner import (
    Learner,
    Networks,
    action_scores,
    update_quantiles,
)
from downside.ops import masked
from downside.train.host_memory import Samples
from downside.train.hosted_run import HostedRun
from downside.train.outer import learned_goal, where
from downside.train.playing import Choose
from downside.train.program import Kept, Program

_CLEARLY = 3.0
"""Standard errors by which a policy is clearly worse than the best so far: two for the difference
of two noisy values, and one for the luck of the best of many."""
_AWAKE = 5e-4
"""Seconds for which actions are waited for without going to sleep."""


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


def best_actions(algorithm: AbstractAlgorithm, networks: Networks, goal: Goal) -> Choose:
    """A function that says what is best in all environments.

    It is called at every step, so what does not change is taken apart once.
    """
    arrays, rest = eqx.partition((algorithm, networks, goal), _is_array)
    leaves, tree = jax.tree.flatten(arrays)
    others, other_tree = jax.tree.flatten(rest)
    compiled = _compiled(tree, tuple(others), other_tree)

    def choose(observations: Any, accumulated: Any, discount: Any, masks: Any) -> Any:
        memory = accumulated.astype(np.float32), discount.astype(np.float32)
        return awaited(compiled(leaves, observations, *memory, masks))

    return choose


@functools.lru_cache(maxsize=16)
def _compiled(tree: Any, others: tuple[Any, ...], other_tree: Any) -> Any:
    @jax.jit
    def choose(leaves: list[Array], *seen: Array) -> Array:
        arrays, rest = jax.tree.unflatten(tree, leaves), jax.tree.unflatten(other_tree, others)
        who = eqx.combine(arrays, rest)
        return jax.vmap(lambda *one: hosted_action(*who, *one))(*seen)

    return choose


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


def awaited(actions: Any) -> Int[np.ndarray, " n"]:
    """The actions, as soon as they are computed: to fall asleep and to be woken up takes longer
    than small networks do."""
    end = time.perf_counter() + _AWAKE
    while not actions.is_ready() and time.perf_counter() < end:
        _let_others_run()
    return np.asarray(actions)


_let_others_run = getattr(os, "sched_yield", lambda: time.sleep(0.0))


def compiled_round(
    program: Program, algorithm: AbstractAlgorithm, run: HostedRun
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(choose, update): the best actions, and a round of updates.

    They are called at every step, so their arguments are flat lists of arrays, whose handing over
    costs little: the leaves of the networks, of the learner, and of (algorithm, goal, spread).
    """
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
            samples = exchanged(samples, round(settings.exchange * settings.batch_size))
            decisions = jax.vmap(lambda lived, amount: _decision(algorithm, goal, lived, amount))(
                samples, settings.relabel * unit * noise
            )
            learner, loss = update_quantiles(
                algorithm, settings, program.quantile_optimiser, learner, decisions, goal, unit
            )
            return jax.tree.leaves(eqx.filter(learner, eqx.is_array)), loss

        leaves, losses = jax.lax.scan(one, learner_leaves, (samples, noise))
        return leaves, losses.mean()

    # One core for the networks: the other one steps the environments.
    options: Any = {"compiler_options": {"xla_cpu_multi_thread_eigen": False}}
    return jax.jit(choose, **options), jax.jit(update, **options)


def _split(tree: Any) -> tuple[Any, Any]:
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return jax.tree.structure(arrays), rest


def exchanged(samples: Samples, count: int) -> Samples:
    """The first `count` of them each with the memory of the one before it; any two are strangers,
    as samples come in no order."""

    def exchange(memory: Any) -> Array:
        return jnp.concatenate([jnp.roll(memory[:count], 1), memory[count:]])

    return samples._replace(
        accumulated=exchange(samples.accumulated),
        discount_so_far=exchange(samples.discount_so_far),
    )


def _decision(
    algorithm: AbstractAlgorithm, goal: Goal, lived: Any, amount: Float[Array, ""]
) -> Decision:
    """A transition (`Samples`) as a decision with one action and one outcome, as if `amount` more
    had been earned before it."""
    s, c = lived.accumulated + amount, lived.discount_so_far
    after_s, after_c = s + c * lived.reward, lived.discount * c
    observation = jnp.concatenate([lived.observation, algorithm.remembered(s, c, goal)])
    after = jnp.concatenate([lived.after, algorithm.remembered(after_s, after_c, goal)])
    return Decision(
        observation,
        lived.action[None],
        jnp.ones(1),
        lived.reward[None, None],
        after[None, None],
        lived.after_mask[None, None],
        lived.terminated[None, None],
        lived.discount[None, None],
    )


@eqx.filter_jit
def outer_step(
    program: Program,
    algorithm: AbstractAlgorithm,
    networks: Networks,
    to_keep: Networks,
    goal: Goal,
    has_goal: Bool[Array, ""],
    kept: Kept,
    key: Key[Array, ""],
    window: Float[Array, " n"],
    due: Bool[Array, ""],
    judged: Bool[Array, ""],
) -> tuple[Goal, Kept, Float[Array, ""], Float[Array, ""]]:
    """The next goal, the policy to keep, and the value of the present one.

    The value is that of the last episodes, which the networks that learn have played; the policy
    has those that are `to_keep`, the same or their average.
    """
    value = algorithm.objective.value(window)
    moved, predicted = learned_goal(program, algorithm, networks, goal, has_goal, key)
    if program.settings.outer == "lived":
        rate = jnp.where(has_goal, program.settings.outer_rate, 1.0)
        moved = algorithm.lived_outer_step(goal, window, rate)
    # The later policy is kept unless it is clearly worse: it has learned more, and the best of many
    # noisy values is mostly lucky.
    error = algorithm.objective.standard_error(window)
    better = ~judged | (value >= kept.value - _CLEARLY * error)
    # Until policies are judged the latest one is kept, at no value: any that is judged beats it.
    # The bar is the best value so far: it must not sink with those that came close to it.
    candidate = Kept(to_keep, goal, jnp.where(judged, jnp.maximum(value, kept.value), -jnp.inf))
    return where(due, moved, goal), where(better, candidate, kept), value, predicted
