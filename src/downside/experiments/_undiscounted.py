"""Sums of rewards without discount, of an agent that learned with one."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from downside._random import stream
from downside.envs import AbstractJaxEnv, Memory
from downside.envs.rollout import unroll
from downside.train import Agent
from downside.train.backends.jax.backend import GreedyPolicy

_BATCH = 2_000
"""Episodes at a time."""


def undiscounted_returns(
    agent: Agent, env: AbstractJaxEnv, episodes: int, seed: int
) -> Float[np.ndarray, " episodes"]:
    """The sums of rewards of fresh episodes of the agent's policy in an environment with a
    horizon. The policy remembers discounted rewards, as in training."""
    if agent.settings.gamma == 1.0:  # then returns are these sums, also if a policy sees the time
        return agent.simulate_returns(episodes, seed)
    policy = agent.policy
    greedy = GreedyPolicy(policy.learner, policy.best.networks, policy.best.outer, env)
    key, batches = jax.random.key(seed), -(-episodes // _BATCH)
    sums = [
        np.asarray(_sums(greedy, agent.settings.gamma, stream(key, "batch", i)))
        for i in range(batches)
    ]
    return np.concatenate(sums)[:episodes].astype(float)


@eqx.filter_jit
def _sums(policy: GreedyPolicy, gamma: float, key: Key[Array, ""]) -> Float[Array, " n"]:
    env = policy.env
    assert env.horizon is not None

    def act(states: Any, memory: Memory, time: Int[Array, ""]) -> tuple[Array, Memory]:
        del time
        return jax.vmap(policy)(states, *memory), memory

    def noise(time: Int[Array, ""]) -> Any:
        return jax.vmap(env.sample_noise)(jax.random.split(stream(key, "noise", time), _BATCH))

    final, seen, running = unroll(
        env,
        act,
        jax.vmap(env.initial_state)(jax.random.split(stream(key, "start"), _BATCH)),
        noise,
        gamma=gamma,
        horizon=env.horizon,
    )
    earned = jnp.concatenate([seen.accumulated, final.accumulated[None]])
    rewards = (earned[1:] - earned[:-1]) / seen.discount_so_far
    return jnp.where(running, rewards, 0.0).sum(axis=0)
