"""What does not change in a run of AC-SRM, what changes, and its compiled parts."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.agents.actor_critic_learner import (
    ActorCriticLearner,
    ActorCriticState,
    LivedBatch,
    UpdateMetrics,
)
from downside.agents.algorithm import AbstractAlgorithm, OuterVariable
from downside.agents.lived import AbstractLivedAlgorithm
from downside.agents.networks import MakeTrunk
from downside.agents.policy_head import PolicyHead
from downside.agents.settings import OnPolicySettings
from downside.envs import AbstractJaxEnv, Memory
from downside.envs.memory_env import initial_memory
from downside.train.backends.gymnasium.program import ArrayStructure, flat_arrays
from downside.train.backends.jax.program import strong
from downside.train.backends.state import CommonState

_LEAST_DISCOUNT = 1e-9
"""Discounts count as at least this when increments are divided by them."""


class OnPolicySpec(eqx.Module):
    """What does not change in a run of AC-SRM."""

    env: AbstractJaxEnv | None
    settings: OnPolicySettings = eqx.field(static=True)
    make_trunk: MakeTrunk = eqx.field(static=True)
    head: PolicyHead
    num_envs: int = eqx.field(static=True)
    chunks: int = eqx.field(static=True)
    """How many chunks of `outer_interval` iterations make a run."""

    @classmethod
    def make(
        cls,
        env: AbstractJaxEnv | None,
        settings: OnPolicySettings,
        make_trunk: MakeTrunk,
        head: PolicyHead,
        num_envs: int,
        total_timesteps: int,
    ) -> "OnPolicySpec":
        """Of a run of about so many environment steps: a whole number of chunks."""
        spec = cls(env, settings, make_trunk, head, num_envs, 1)
        chunks = max(1, round(total_timesteps / spec.timesteps_per_chunk))
        return dataclasses.replace(spec, chunks=chunks)

    @property
    def transitions(self) -> int:
        """Environment steps of an iteration."""
        return self.n_steps * self.num_envs

    @property
    def n_steps(self) -> int:
        """Steps of each environment in an iteration."""
        parts = self.settings.episodes_per_seed
        steps = self.settings.n_steps or max(_LEAST_STEPS, _TRANSITIONS // self.num_envs)
        return math.ceil(steps / parts) * parts

    @property
    def part(self) -> int:
        """Steps after which all environments begin anew with the same seed; all of an iteration if
        each seed is played once."""
        return self.n_steps // self.settings.episodes_per_seed

    @property
    def timesteps_per_chunk(self) -> int:
        """Environment steps between two records."""
        return self.transitions * self.settings.outer_interval

    @property
    def iterations(self) -> int:
        """Iterations of a run."""
        return self.chunks * self.settings.outer_interval

    @property
    def updates_per_iteration(self) -> int:
        """Gradient steps of an iteration."""
        size = self.settings.batch_size or max(1, self.transitions // MINIBATCHES)
        return self.settings.epochs * max(1, self.transitions // size)

    @property
    def fit_chunks(self) -> int:
        """Whether the return distribution of the final policy is learned: 1, or 0."""
        return int(self.settings.evaluation_fraction > 0.0)

    def learner(self, algorithm: AbstractAlgorithm) -> ActorCriticLearner:
        """The learner, with schedules of the length of the run."""
        assert isinstance(algorithm, AbstractLivedAlgorithm)
        return ActorCriticLearner(
            algorithm,
            self.settings,
            self.make_trunk,
            self.head,
            self.iterations,
            self.updates_per_iteration,
        )

    def mean_share(self, progress: float) -> float:
        """The share of the mean in h at this share of the run."""
        settings = self.settings
        since = progress - settings.risk_neutral_fraction
        risk = float(since >= 0.0) if not settings.risk_ramp else since / settings.risk_ramp
        return 1.0 - min(max(risk, 0.0), 1.0) * (1.0 - settings.mean_weight)


MINIBATCHES = 8
"""Into how many updates an epoch is cut."""
_TRANSITIONS, _LEAST_STEPS = 2048, 16
"""Steps of an iteration in all environments, and in each at least."""


WINDOW, RECENT = 4096, 8
"""Finished episodes that are remembered; iterations of which it is known how many they were."""


class OnPolicyState(CommonState):
    """What changes in a run of AC-SRM."""

    learner: ActorCriticState
    episodes: Float[np.ndarray, "w r"]
    """Of the last episodes, the latest last: discounted return, sum of rewards, length, and what
    the algorithm records of their positions."""
    ended: Int[np.ndarray, ""]
    """Episodes that have ended so far."""
    recent: Int[np.ndarray, " r"]
    """How many of them in each of the last iterations, the latest last."""


def increments(
    algorithm: AbstractLivedAlgorithm, outer: OuterVariable, steps: Mapping[str, Any]
) -> Float[np.ndarray, "T n"]:
    """What each step adds to the utility, divided by c; in 64 bits: c becomes small in long
    episodes."""
    memory, after, positions = (steps[name] for name in ("memory", "next_memory", "positions"))
    discount = np.maximum(memory.discount_so_far, _LEAST_DISCOUNT)
    before = algorithm.utilities(memory.accumulated, positions, outer)
    return (algorithm.utilities(after.accumulated, positions, outer) - before) / discount


def order_of(spec: OnPolicySpec, generator: np.random.Generator) -> Int[np.ndarray, "u b"]:
    """Which transitions each gradient step takes: in each epoch all of them, in another order.

    Drawn by NumPy: sorting within a compiled program takes long to compile.
    """
    count, epochs = spec.transitions, spec.settings.epochs
    updates = spec.updates_per_iteration // epochs
    orders = [generator.permutation(count)[: count // updates * updates] for _ in range(epochs)]
    return np.stack(orders).reshape(epochs * updates, -1).astype(np.int32)


def in_32_bits(steps: Mapping[str, Any]) -> dict[str, Any]:
    """The steps in single precision, as they are learned from."""
    return jax.tree.map(
        lambda array: array.astype(np.float32) if array.dtype == np.float64 else array, dict(steps)
    )


# --- compiled -----------------------------------------------------------------------------------


class Explorer:
    """Acts at random, as the policy says; for one iteration, in which nothing changes."""

    def __init__(self, learner: ActorCriticLearner, state: OnPolicyState, log_anneal: float):
        tree = (learner, state.learner.networks, state.outer, jnp.asarray(log_anneal, jnp.float32))
        self._leaves, structure = flat_arrays(tree)
        self._compiled = _compiled_exploration(structure)

    def __call__(
        self, rollout: Any, positions: Any, noise: Float[np.ndarray, "n o"]
    ) -> tuple[Any, Any]:
        """The raw actions of all environments, and the actions."""
        memory = tuple(part.astype(np.float32) for part in rollout.memory)
        raw, actions = self._compiled(
            self._leaves, positions, rollout.observations, *memory, rollout.masks, noise
        )
        return np.asarray(raw), np.asarray(actions)


@functools.lru_cache(maxsize=16)
def _compiled_exploration(structure: ArrayStructure) -> Any:
    @functools.partial(jax.jit, compiler_options={"xla_cpu_multi_thread_eigen": False})
    def explore(leaves: list[Array], positions: Any, *situation: Array) -> Any:
        learner, networks, outer, log_anneal = structure.whole(leaves)

        def alone(position: Any, x: Array, s: Array, c: Array, mask: Array, noise: Array) -> Any:
            placed, memory = learner.algorithm.placed(outer, position), Memory(s, c)
            return learner.explore(networks, x, memory, mask, placed, noise, log_anneal)

        return jax.vmap(alone)(positions, *situation)

    return explore


@eqx.filter_jit
def fresh(
    spec: OnPolicySpec,
    algorithm: AbstractLivedAlgorithm,
    observation_size: int,
    key: Key[Array, ""],
) -> tuple[ActorCriticState, OuterVariable]:
    """Networks that have learned nothing, and the first outer variable. Compiled, since it is many
    small steps that would be compiled one by one."""
    outer = algorithm.initial_outer(jnp.array([-1.0, 1.0]))
    inputs = jax.eval_shape(
        lambda x: algorithm.network_input(x, initial_memory(), outer),
        jax.ShapeDtypeStruct((observation_size,), jnp.float32),
    )
    learner = spec.learner(algorithm).init(stream(key, "networks"), inputs.shape[0])
    return jax.tree.map(strong, (learner, outer))


@eqx.filter_jit
def improve(
    spec: OnPolicySpec,
    algorithm: AbstractLivedAlgorithm,
    state: ActorCriticState,
    outer: OuterVariable,
    batch: LivedBatch,
) -> tuple[ActorCriticState, UpdateMetrics]:
    """The gradient steps of an iteration."""
    return spec.learner(algorithm).update(state, batch, outer)


@eqx.filter_jit
def next_outer(
    algorithm: AbstractLivedAlgorithm,
    outer: OuterVariable,
    lived: Any,
    mean_share: Float[Array, ""],
    rate: Float[Array, ""],
) -> OuterVariable:
    """The outer variable a share `rate` of the way to that of the last episodes."""
    return algorithm.next_outer(outer, lived, mean_share, rate)
