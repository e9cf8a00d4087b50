"""PG-SRM in an environment written in JAX."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.agents.actor import ActionHead, Clock
from downside.agents.algorithm import AbstractAlgorithm, AbstractDialAlgorithm
from downside.agents.networks import MakeTrunk
from downside.agents.settings import PathwiseSettings
from downside.envs import AbstractJaxEnv, Memory, Simulator
from downside.envs.actions import check_box
from downside.envs.env_spec import EnvSpec
from downside.envs.faults import named_faults
from downside.envs.rollout import mirrored_noises, random_actions, unroll
from downside.train.backends.jax.backend import AbstractJaxBackend
from downside.train.backends.pathwise import program as pathwise_program
from downside.train.backends.pathwise.program import PathwiseSpec, PathwiseState, simulated_for

_RANDOM_EPISODES = 256
"""Random episodes in which a clock is looked for, and derivatives are checked."""
_SIMULATED_STEPS, _SHORT, _NO_HORIZON = 160_000_000, 15, 100
"""Steps of a run in a simulator: about four minutes of one core. Episodes of up to so many steps
are short; if there is no horizon, they are taken to be so long."""
_COARSEST_DISCOUNT = 0.9995
"""With a discount factor up to this, the discount so far tells the time step."""


class PathwiseBackend(AbstractJaxBackend):
    """Learns from whole simulated episodes (`program.py`)."""

    settings_class = PathwiseSettings
    program = pathwise_program

    def __init__(self, env: AbstractJaxEnv):
        space = env.action_space
        if isinstance(space, gym.spaces.Box):
            check_box(space, type(env).__name__)
        super().__init__(env)

    @classmethod
    def defaults_for(cls, env: AbstractJaxEnv) -> Mapping[str, Any]:
        """In a simulator in NumPy, whose steps cost more: a run of a few minutes."""
        if not isinstance(env, Simulator):
            return {}
        horizon = env.horizon or _NO_HORIZON
        batch = 4096 if horizon <= _SHORT else 2048
        updates = int(np.clip(_SIMULATED_STEPS / (batch * horizon), 1000, 6000))
        return {"batch_size": batch, "updates": updates, "final_batches": 1}

    @classmethod
    def complete(cls, settings: PathwiseSettings, env: AbstractJaxEnv) -> PathwiseSettings:
        """With the steps that the updates take, unless the steps were given."""
        if settings.total_timesteps:
            return settings
        steps = simulated_for(env, settings, settings.updates, settings.updates)
        return dataclasses.replace(settings, total_timesteps=steps)

    def new_spec(
        self, settings: PathwiseSettings, make_trunk: MakeTrunk, timesteps: int
    ) -> PathwiseSpec:
        """What a run of about so many simulated steps does not change."""
        with named_faults():
            clock = find_clock(self.env, settings)
        return PathwiseSpec.make(self.env, settings, make_trunk, clock, timesteps)

    def init(
        self, spec: PathwiseSpec, algorithm: AbstractAlgorithm, key: Key[Array, ""]
    ) -> tuple[PathwiseState, int]:
        """A run that has learned nothing yet, and the steps that were simulated for it."""
        if spec.in_segments and isinstance(algorithm, AbstractDialAlgorithm):
            raise ValueError(
                f"`longest_episode` must be at least {spec.horizon} for a dial in "
                f"{type(self.env).__name__}, got {spec.settings.longest_episode}: a dial learns "
                "from whole episodes, not in segments."
            )
        steps = spec.settings.segment_steps if spec.in_segments else spec.horizon
        with named_faults():
            check_gradients(self.env, spec.settings.gamma, steps)
        return super().init(spec, algorithm, key)

    def fit_return_distribution(
        self, spec: PathwiseSpec, algorithm: AbstractAlgorithm, state: PathwiseState
    ) -> tuple[PathwiseState, int]:
        """Nothing to do: the return distribution is simulated where it is asked for."""
        del spec, algorithm
        return state, 0

    def start_over(
        self, spec: PathwiseSpec, algorithm: AbstractAlgorithm, state: PathwiseState
    ) -> PathwiseState:
        """Steps and schedules from 0 again; what was learned stays."""
        before = state.learner
        fresh = spec.learner(algorithm).restart(before.networks, before.segments)
        return eqx.tree_at(lambda s: (s.learner, s.key), state, (fresh, stream(state.key, "again")))


# --- the time step ------------------------------------------------------------------------------


def find_clock(env: AbstractJaxEnv, settings: PathwiseSettings) -> Clock | None:
    """What tells the time step; None where one network serves all steps.

    The discount so far, where it differs enough from step to step. Otherwise a number of the
    observation that is the same in all episodes at each step and always grows, or always falls.
    """
    horizon = env.horizon
    if horizon is None or horizon > settings.step_networks or settings.in_segments(horizon):
        return None
    if settings.gamma <= _COARSEST_DISCOUNT:
        return Clock(settings.gamma ** jnp.arange(horizon), None)
    observations = np.asarray(_random_observations(env, horizon), float)
    for index in range(observations.shape[-1]):
        values = _clock_values(observations[:, :, index])
        if values is not None:
            return Clock(jnp.asarray(values, float), index)
    return None


def _clock_values(shown: np.ndarray) -> np.ndarray | None:
    """The value of a number at each step, if it is a clock; NaN marks episodes that are over."""
    running = ~np.isnan(shown).all(axis=1)
    steps = int(running.sum())
    if steps < 2:
        return None
    low, high = np.nanmin(shown[:steps], axis=1), np.nanmax(shown[:steps], axis=1)
    change = np.diff(low)
    grows = (change > 0).all() or (change < 0).all()
    if not grows or (high - low).max() > 1e-3 * np.abs(change).min():
        return None
    # Steps that no random episode has reached: as far apart as the last two.
    beyond = low[-1] + change[-1] * np.arange(1, len(shown) - steps + 1)
    return np.concatenate([low, beyond])


@eqx.filter_jit
def _random_observations(env: AbstractJaxEnv, horizon: int) -> Float[Array, "T n d"]:
    """What random episodes show at each step; NaN once they are over."""

    def act(states: Any, memory: Memory, time: Int[Array, ""]) -> tuple[Array, Array]:
        del memory
        return _random_actions(env, states, time), jax.vmap(env.observe)(states)

    _, observations, running = _random_episodes(env, act, horizon, gamma=1.0)
    return jnp.where(running[:, :, None], observations, jnp.nan)


# --- derivatives --------------------------------------------------------------------------------


def check_gradients(env: AbstractJaxEnv, gamma: float, horizon: int) -> None:
    """Raises unless returns have useful derivatives by the actions."""
    head, simulated = ActionHead.of(env)
    if head.low is None:
        return
    slopes = np.asarray(_slopes(simulated, gamma, horizon, head.outputs))
    name = str(EnvSpec.of(env))
    if not np.isfinite(slopes).all():
        time, _, number = np.argwhere(~np.isfinite(slopes))[0]
        raise ValueError(
            f"`env` must have finite derivatives: that of the return of {name} by number {number} "
            f"of the action at step {time} is not. Look for a square root, a logarithm or a power "
            "at 0 in `transition`, and keep it away from there with jnp.where or jnp.maximum."
        )
    flat = np.flatnonzero((slopes == 0.0).all(axis=(0, 1)))
    if flat.size:
        raise ValueError(
            f"`env` must have rewards that can be differentiated by the action: in {name} the "
            f"derivative by number {', '.join(map(str, flat))} of the action is 0 everywhere, so "
            "that PG-SRM has nothing to follow. Rounding, comparisons and `jnp.where` on the "
            "action do this. Write the reward as a smooth function of the action, or use "
            "ds.QRSRM with a grid of actions."
        )


@eqx.filter_jit
def _slopes(env: AbstractJaxEnv, gamma: float, horizon: int, size: int) -> Float[Array, "T n k"]:
    """The derivative of the return of random episodes by each action."""

    def total(change: Float[Array, "T n k"]) -> Array:
        def act(states: Any, memory: Memory, time: Int[Array, ""]) -> tuple[Array, None]:
            del memory
            return _random_actions(env, states, time) + change[time], None

        memory, _, _ = _random_episodes(env, act, horizon, gamma=gamma)
        return memory.accumulated.sum()

    return jax.grad(total)(jnp.zeros((horizon, _RANDOM_EPISODES, size)))


def _random_actions(env: AbstractJaxEnv, states: Any, time: Int[Array, ""]) -> Array:
    return random_actions(env, states, stream(jax.random.key(0), "act", time))


def _random_episodes(env: AbstractJaxEnv, act: Any, horizon: int, *, gamma: float) -> Any:
    key, count = jax.random.key(0), _RANDOM_EPISODES
    return unroll(
        env,
        act,
        jax.vmap(env.initial_state)(jax.random.split(stream(key, "start"), count)),
        lambda time: mirrored_noises(env, stream(key, "time", time), count),
        gamma=gamma,
        horizon=horizon,
    )
