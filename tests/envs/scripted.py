"""A problem whose every number follows from the actions, in JAX."""

import gymnasium as gym
import jax.numpy as jnp
import numpy as np

from downside.envs import AbstractJaxEnv, StepResult

GO_ON, TERMINATE, TRUNCATE = range(3)


class Scripted(AbstractJaxEnv):
    """Action a at time t pays t + 1 + 10 a; 1 terminates and 2 truncates. Observes the time."""

    @property
    def num_actions(self):
        return 3

    @property
    def horizon(self):
        return None

    @property
    def observation_space(self):
        return gym.spaces.Box(0.0, 1000.0, (1,), np.float32)

    def initial_state(self, key):
        return jnp.zeros((), jnp.int32)

    def sample_noise(self, key):
        return jnp.zeros(())

    def transition(self, state, action, noise):
        action = jnp.asarray(action)
        reward = state + 1.0 + 10.0 * action
        return StepResult(state + 1, reward, action == TERMINATE, action == TRUNCATE)

    def observe(self, state):
        return jnp.reshape(state, (1,)).astype(jnp.float32)
