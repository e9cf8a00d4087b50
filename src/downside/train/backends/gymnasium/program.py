"""The compiled parts of training in a Gymnasium environment: acting and updates."""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from downside.agents.algorithm import AbstractAlgorithm, OuterVariable
from downside.agents.learner import AbstractLearner
from downside.agents.quantile_learner import LearnerState, QuantileLearner
from downside.agents.settings import GymnasiumSettings
from downside.envs import Memory
from downside.envs.gymnasium.rollout import VectorRollout
from downside.ops import masked
from downside.train.backends.replay import Transition, branch_of
from downside.train.backends.state import (
    BestPolicy,
    CommonState,
    TrainSpec,
    fitting_learner,
    scan,
    with_critics,
)

_SPIN_SECONDS = 5e-4
"""How long actions are waited for in a loop, without going to sleep."""

Act = Callable[[VectorRollout], Int[np.ndarray, " n"]]


def greedy_actions(learner: AbstractLearner, networks: Any, outer: OuterVariable) -> Act:
    """The greedy policy, for all copies of a vector environment.

    It is called at every step, so what does not change is taken apart once.
    """
    leaves, structure = flat_arrays((learner, networks, outer))
    choose = _compiled_choice(structure)
    return lambda rollout: choose_now(choose, leaves, rollout)


def ranked_actions(
    learner: QuantileLearner,
    count: int,
    networks: Any,
    outer: OuterVariable,
    observations: Array,
    accumulated: Array,
    discount: Array,
    masks: Array,
) -> Int[Array, "n k"]:
    """The `count` actions with the highest scores, the best one first; where fewer are legal, that
    one again."""

    def ranked(x: Array, s: Array, c: Array, mask: Array) -> Array:
        scores = masked(learner.scores(networks, x, Memory(s, c), outer), mask)
        _, best = jax.lax.top_k(scores, count)
        return jnp.where(mask[best], best, best[0])

    return jax.vmap(ranked)(observations, accumulated, discount, masks)


def choose_now(choose: Callable[..., Any], leaves: Any, rollout: VectorRollout) -> Any:
    """The actions for where a rollout is."""
    memory = tuple(part.astype(np.float32) for part in rollout.memory)
    return awaited(choose(leaves, rollout.observations, *memory, rollout.masks))


@functools.lru_cache(maxsize=16)
def _compiled_choice(structure: Any) -> Any:
    @jax.jit
    def choose(leaves: list[Array], *situation: Array) -> Array:
        return _choose(*structure.whole(leaves), *situation)

    return choose


def _choose(
    learner: AbstractLearner,
    networks: Any,
    outer: OuterVariable,
    observations: Array,
    accumulated: Array,
    discount: Array,
    masks: Array,
) -> Array:
    return jax.vmap(lambda x, s, c, mask: learner.act(networks, x, Memory(s, c), mask, outer))(
        observations.astype(jnp.float32), accumulated, discount, masks
    )


class ArrayStructure:
    """A pytree without its arrays; hashable, so that what is compiled for it can be found again."""

    def __init__(self, tree: Any, rest: Any):
        self.tree = tree
        self._others, self._other_tree = jax.tree.flatten(rest)

    def whole(self, leaves: list[Array]) -> Any:
        """The pytree with these arrays."""
        rest = jax.tree.unflatten(self._other_tree, self._others)
        return eqx.combine(jax.tree.unflatten(self.tree, leaves), rest)

    def _key(self) -> tuple:
        return self.tree, tuple(self._others), self._other_tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayStructure) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def flat_arrays(tree: Any) -> tuple[list[Array], ArrayStructure]:
    """The arrays of a pytree, and all else: a compiled function that takes a list is called with
    less ado."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    return leaves, ArrayStructure(structure, rest)


def awaited(actions: Any) -> Int[np.ndarray, " n"]:
    """The actions, as soon as they are computed: to fall asleep and to be woken up takes longer
    than small networks do."""
    end = time.perf_counter() + _SPIN_SECONDS
    while not actions.is_ready() and time.perf_counter() < end:
        _yield_core()
    return np.asarray(actions)


_yield_core = getattr(os, "sched_yield", lambda: time.sleep(0.0))


class Round:
    """Acting and updating within a chunk, as compiled functions of flat lists of arrays: they are
    called at every step, and passing a list costs little."""

    def __init__(self, spec: TrainSpec, algorithm: AbstractAlgorithm, state: CommonState):
        settings = spec.settings
        assert isinstance(settings, GymnasiumSettings)
        _, learner_structure = flat_arrays(state.learner)
        _, networks_structure = flat_arrays(state.learner.networks)
        _, fixed_structure = flat_arrays((algorithm, state.outer, state.spread))

        def choose(leaves: tuple[list[Array], list[Array]], *situation: Array) -> Array:
            networks = networks_structure.whole(leaves[0])
            algorithm, outer, _ = fixed_structure.whole(leaves[1])
            learner, count = (
                spec.learner(algorithm),
                min(settings.exploration_top, spec.num_actions),
            )
            if count:
                return ranked_actions(learner, count, networks, outer, *situation)
            return _choose(learner, networks, outer, *situation)

        def update(
            learner_leaves: list[Array], fixed: list[Array], samples: Transition, noise: Array
        ) -> tuple[list[Array], Array]:
            algorithm, outer, spread = fixed_structure.whole(fixed)
            learner = spec.learner(algorithm)
            unit = spread if settings.normalise else jnp.ones(())

            def step(
                leaves: list[Array], batch: tuple[Transition, Array]
            ) -> tuple[list[Array], Array]:
                learner_state: LearnerState = learner_structure.whole(leaves)
                transitions = relabelled(settings, algorithm, unit, *batch)
                learner_state, loss = learner.update(learner_state, transitions, outer, unit)
                return flat_arrays(learner_state)[0], loss

            if noise.shape[0] == 1:  # a loop would copy what it carries
                return step(learner_leaves, jax.tree.map(lambda leaf: leaf[0], (samples, noise)))
            leaves, losses = jax.lax.scan(step, learner_leaves, (samples, noise))
            return leaves, losses.mean()

        # One core for the networks: the other one steps the environments.
        options: Any = {"compiler_options": {"xla_cpu_multi_thread_eigen": False}}
        self.choose, self.update = jax.jit(choose, **options), jax.jit(update, **options)
        self._learner_structure = learner_structure
        self.num_networks = len(flat_arrays(state.learner.networks)[0])
        """The networks are the first field of the learner's state, so their leaves come first."""

    @staticmethod
    def leaves(algorithm: AbstractAlgorithm, state: CommonState) -> tuple[list[Array], list[Array]]:
        """The arrays of the learner's state, and those that do not change within a chunk."""
        return flat_arrays(state.learner)[0], flat_arrays((algorithm, state.outer, state.spread))[0]

    def learner_state(self, leaves: list[Array]) -> LearnerState:
        """The learner's state with these arrays."""
        return self._learner_structure.whole(leaves)


def relabelled(
    settings: GymnasiumSettings,
    algorithm: AbstractAlgorithm,
    unit: Float[Array, ""],
    samples: Transition,
    noise: Float[Array, " n"],
) -> Any:
    """A batch as a learner wants it: transitions with other memories."""
    samples = shuffled(samples, round(settings.memory_shuffle * settings.batch_size))
    amounts = jax.vmap(algorithm.memory_shift)(samples.memory, settings.memory_noise * unit * noise)
    return jax.vmap(_branch)(samples, amounts)


def shuffled(samples: Transition, count: int) -> Transition:
    """The first `count` transitions each with the memory of the one before it; samples come in no
    order, so any two are strangers."""

    def shuffle(memory: Any) -> Array:
        return jnp.concatenate([jnp.roll(memory[:count], 1), memory[count:]])

    return samples._replace(memory=Memory(*map(shuffle, samples.memory)))


def _branch(transition: Transition, amount: Float[Array, ""]) -> Any:
    """The transition as a learner wants it, as if `amount` more had been earned before it."""
    transition = transition._replace(memory=transition.memory.relabel(amount))
    before, after = transition.state, transition.next_state
    return branch_of(
        before.observation.astype(jnp.float32),
        transition,
        after.observation.astype(jnp.float32),
        after.mask,
    )


@eqx.filter_jit
def fit_quantiles(
    spec: TrainSpec,
    algorithm: AbstractAlgorithm,
    state: CommonState,
    samples: Transition,
    noise: Float[Array, "updates n"],
) -> tuple[LearnerState, BestPolicy]:
    """Updates of the quantiles alone, for the final policy, which stays as it is."""
    best = state.best
    learner = fitting_learner(spec, algorithm)
    # The final policy decides, and its quantiles are the ones that go on learning.
    critics = state.learner.networks.critic, state.learner.targets.critic
    learner_state = with_critics(state.learner, best.networks.critic, best.networks.critic)
    unit = spec.unit(state)

    def step(learner_state: LearnerState, batch: Any) -> tuple[LearnerState, Array]:
        transitions = relabelled(spec.gymnasium, algorithm, unit, *batch)
        return learner.update_quantiles(learner_state, transitions, best.outer, unit)

    learner_state, _ = scan(step, learner_state, (samples, noise))
    best = eqx.tree_at(lambda b: b.networks.quantiles, best, learner_state.networks.quantiles)
    return with_critics(learner_state, *critics), best  # further training goes on from them
