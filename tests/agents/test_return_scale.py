"""Returns that are all equal have no spread: networks are scaled by their size instead, and the
quantiles start and end together."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents.learner import next_spread, return_scale
from downside.envs import AbstractJaxEnv, StepResult


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
@pytest.mark.parametrize(
    ("returns", "spread", "size"),
    [
        ([1.0, 2.0, 3.0, 2.0], np.sqrt(0.5), np.sqrt(0.5)),
        ([4.9, 4.9, 4.9], 0.0, 4.9),
        ([-1e4, -1e4 * (1 + 1e-7)], 0.0, 1e4),  # rounding
        ([0.0, 0.0], 0.0, 1.0),
        ([1e-4, 2e-4], 5e-5, 5e-5),  # small, but not equal
    ],
)
def test_the_scale_is_the_spread_or_the_size(make, returns, spread, size):
    measured = return_scale(make(returns, np.float32))
    np.testing.assert_allclose(measured, (spread, size), rtol=1e-5)


def test_a_spread_of_0_stays_only_while_there_has_never_been_one():
    constant, varied = jnp.ones(3), jnp.asarray([0.0, 2.0])
    assert next_spread(jnp.zeros(()), constant) == 0.0
    assert next_spread(jnp.zeros(()), varied) == 1.0
    # A policy that does nothing, in a problem with noise.
    assert next_spread(jnp.ones(()), constant) == pytest.approx(1e-6)


class Wage(AbstractJaxEnv):
    """Five steps that pay 1 each, whatever is done."""

    @property
    def num_actions(self):
        return 2

    @property
    def horizon(self):
        return 5

    @property
    def observation_space(self):
        return gym.spaces.Box(0.0, 5.0, (1,), np.float32)

    def initial_state(self, key):
        return jnp.zeros(())

    def sample_noise(self, key):
        return jax.random.normal(key)

    def transition(self, state, action, noise):
        return StepResult(state + 1.0, 1.0 + 0.0 * noise, state >= 4.0, jnp.zeros((), bool))

    def observe(self, state):
        return state[None].astype(jnp.float32)


@pytest.mark.slow
def test_the_learned_quantiles_of_constant_returns_meet():
    agent = ds.QRDQN(
        Wage(),
        seed=0,
        num_envs=32,
        hidden_sizes=(16, 16),
        quantiles=10,
        batch_size=64,
        warmup_steps=320,
        outer_interval=200,
        outer_episodes=16,
        optimiser="adam",
        target_rate=0.05,
    ).learn(20_000)
    observation, _ = agent.wrap().reset(seed=0)
    quantiles = np.asarray(agent.return_distribution(observation))
    total = (1 - 0.99**5) / 0.01
    np.testing.assert_allclose(quantiles, total, rtol=0.05)
    assert (quantiles.max(axis=-1) - quantiles.min(axis=-1)).max() < 0.02 * total
