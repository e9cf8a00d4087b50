"""A problem with continuous actions of two dimensions, whose every number follows from them."""

import gymnasium as gym
import jax.numpy as jnp
import numpy as np

from downside.envs import AbstractJaxEnv, StepResult


class Steered(AbstractJaxEnv):
    """Action (a, b) at time t pays t + 1 + 10 a - b², and three steps end it. Observes the time
    and the sum of a; the noise is added to that sum. At time t, a is at most 1 - t/4."""

    @property
    def action_space(self):
        low, high = np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32)
        return gym.spaces.Box(low, high)

    @property
    def horizon(self):
        return 3

    @property
    def observation_space(self):
        return gym.spaces.Box(-1000.0, 1000.0, (2,), np.float32)

    def initial_state(self, key):
        return jnp.zeros(()), jnp.zeros(())

    def sample_noise(self, key):
        return jnp.zeros(())

    def mirrored(self, noise):
        return -noise

    def action_bounds(self, state):
        low, high = super().action_bounds(state)
        return low, jnp.stack([1.0 - state[0] / 4.0, high[1]])

    def transition(self, state, action, noise):
        time, total = state
        a, b = jnp.minimum(jnp.asarray(action), self.action_bounds(state)[1])
        reward = time + 1.0 + 10.0 * a - b**2
        after = (time + 1.0, total + a + noise)
        return StepResult(after, reward, after[0] >= 3.0, jnp.zeros((), bool))

    def observe(self, state):
        return jnp.stack(state).astype(jnp.float32)
