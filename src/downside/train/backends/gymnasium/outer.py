"""The outer step in a Gymnasium environment: the policy is judged by the last episodes."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from downside.agents.algorithm import AbstractAlgorithm, OuterVariable
from downside.agents.learner import next_spread
from downside.agents.networks import input_spread
from downside.envs.gymnasium.rollout import VectorRollout
from downside.train.backends.gymnasium.state import Experience, GymState, averaged, inputs_of
from downside.train.backends.outer import (
    RESCALE_UNTIL,
    learned_outer,
    rescaled,
    start_keys,
    start_value,
)
from downside.train.backends.replay import Observed
from downside.train.backends.state import BestPolicy, CommonState, TrainSpec, where
from downside.train.config import WINDOW

_CLEARLY = 3.0
"""Standard errors by which a policy is clearly worse than the best so far: two for the difference
of two noisy values, and one for the luck of the best of many."""


def outer_step(
    spec: TrainSpec,
    algorithm: AbstractAlgorithm,
    state: GymState,
    experience: Experience,
    rollout: VectorRollout,
    loss: float,
    ended_before: int,
) -> tuple[GymState, dict[str, float]]:
    """Judges the policy by the last episodes, and moves the outer variable.

    Where many episodes end between two outer steps, those before the last one (the first
    `ended_before`) are of another policy, and do not count.
    """
    settings = spec.gymnasium
    progress = int(state.rounds) / spec.rounds
    recent = int(experience.episodes.added) - ended_before
    episodes = experience.episodes.latest(max(WINDOW, recent))
    some_ended = len(episodes) > 0
    if not some_ended:  # in another environment than before: what was earned so far
        episodes = np.stack([rollout.memory.accumulated, rollout.rewards, rollout.lengths], -1)
    returns, rewards, lengths = episodes.T
    # As many numbers whatever the number of episodes: what is compiled has one size.
    count = settings.outer_episodes
    ranks = (np.arange(count) + 0.5) / count
    window = np.quantile(returns, ranks, method="inverted_cdf").astype(np.float32)
    # While actions are still mostly random, returns say little about the policy.
    enough = some_ended and len(returns) >= min(WINDOW, count)
    judged = enough and progress > settings.exploration_fraction
    average, to_keep = averaged(state, progress, settings)
    due = progress >= settings.risk_neutral_fraction
    outer, best, value, predicted = moved_and_kept(
        spec,
        algorithm,
        state,
        to_keep,
        experience.first_observations(),
        jnp.asarray(window),
        jnp.asarray(due),
        jnp.asarray(judged),
    )
    rescales = spec.has_critic and settings.normalise and not settings.cnn
    if rescales and due and progress <= RESCALE_UNTIL:
        latest = experience.replay.latest(spec.timesteps_per_chunk)
        inputs = inputs_of(algorithm, state.outer, latest.state.observation, latest.memory)
        state = rescaled(state, jnp.asarray(input_spread(inputs)), jnp.asarray(True))
    state = eqx.tree_at(
        lambda s: (s.outer, s.best, s.average, s.has_outer, s.spread),
        state,
        (
            outer,
            best,
            average,
            state.has_outer | due,
            next_spread(state.spread, jnp.asarray(window)) if some_ended else state.spread,
        ),
        is_leaf=lambda leaf: leaf is None,  # where there is no average
    )
    record = {
        "timesteps": float(state.rounds) * spec.timesteps_per_round,
        "simulated_steps": 0,
        "updates": float(state.rounds) * settings.updates_per_step,
        "critic_loss": loss,
        "quantile_loss": loss,
        "value": float(value),
        "predicted": float(predicted),
        "best": float(state.best.value),
        "mean": float(returns.mean()),
        "spread": float(returns.std()),
        "exploration": spec.exploration(progress),
        "episodes": float(experience.episodes.added),
        "episode_reward": float(rewards.mean()),
        "episode_length": float(lengths.mean()),
    }
    return state, record


@eqx.filter_jit
def moved_and_kept(
    spec: TrainSpec,
    algorithm: AbstractAlgorithm,
    state: CommonState,
    networks_to_keep: Any,
    starts: Observed,
    window: Float[Array, " n"],
    due: Bool[Array, ""],
    judged: Bool[Array, ""],
) -> tuple[OuterVariable, BestPolicy, Float[Array, ""], Float[Array, ""]]:
    """The next outer variable, the policy to keep, and the value of the present one, measured and
    predicted.

    The value is that of the last episodes (`window`), which the networks that learn have played;
    the policy has the networks to keep, which are the same or their average.
    """
    settings, learner, best = spec.settings, spec.learner(algorithm), state.best
    networks = state.learner.networks
    chosen = _some_starts(starts, state.key)
    value = algorithm.objective.value(window)
    if spec.has_critic:  # no quantiles are learned beside it
        rate = jnp.where(state.has_outer, settings.outer_rate, 1.0)
        moved = algorithm.lived_outer_step(state.outer, window, rate)
    else:
        moved = learned_outer(
            learner, networks, state.outer, state.has_outer, chosen, settings.outer_rate
        )
    predicted = start_value(learner, networks, chosen)(state.outer)
    # The later policy is kept unless it is clearly worse: it has learned more, and the best of many
    # noisy values is mostly lucky.
    error = algorithm.objective.standard_error(window)
    better = ~judged | (value >= best.value - _CLEARLY * error) | (not settings.keep_best)
    # Until policies are judged the latest one is kept, at no value: any that is judged beats it.
    # The bar is the best value so far: it must not sink with policies that came close to it.
    bar = jnp.maximum(value, best.value) if settings.keep_best else value
    candidate = BestPolicy(networks_to_keep, state.outer, jnp.where(judged, bar, -jnp.inf))
    return where(due, moved, state.outer), where(better, candidate, best), value, predicted


def _some_starts(starts: Observed, key: Key[Array, ""]) -> Observed:
    """As many of the first observations as a JAX environment has start states."""
    count = starts.mask.shape[0]
    index = jax.vmap(lambda key: jax.random.randint(key, (), 0, count))(start_keys(key))
    return Observed(starts.observation[index].astype(jnp.float32), starts.mask[index])
