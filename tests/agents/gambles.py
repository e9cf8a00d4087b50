"""Problems with continuous actions whose optimum is known."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from downside.envs import AbstractJaxEnv, StepResult, Tabular


class Stake(AbstractJaxEnv):
    """One step: a stake a in [0, 2] pays a (0.5 + z) - a²/4 with z standard normal.

    By CVaR at level α its value is a (0.5 - λ) - a²/4 with λ = density(quantile(α)) / α; by the
    mean a/2 - a²/4, whose optimum is 1/4 at a = 1.
    """

    @property
    def action_space(self):
        return gym.spaces.Box(0.0, 2.0, (1,), np.float32)

    @property
    def horizon(self):
        return 1

    @property
    def observation_space(self):
        return gym.spaces.Box(0.0, 1.0, (1,), np.float32)

    def initial_state(self, key):
        return jnp.zeros(())

    def sample_noise(self, key):
        return jax.random.normal(key)

    def mirrored(self, noise):
        return -noise

    def reward(self, action, noise):
        return action[0] * (0.5 + noise) - action[0] ** 2 / 4

    def transition(self, state, action, noise):
        over = jnp.ones((), bool)
        return StepResult(state + 1.0, self.reward(action, noise), over, ~over)

    def observe(self, state):
        return state[None].astype(jnp.float32)


class Rounded(Stake):
    """As the stake, in whole units: the derivative is 0 everywhere."""

    def reward(self, action, noise):
        return super().reward(jnp.round(action), noise)


class Kinked(Stake):
    """As the stake, with |a - 1| as the square root of a square: at a = 1, where an untrained actor
    stands, and random play never, its derivative is NaN."""

    def reward(self, action, noise):
        return super().reward(action, noise) - jnp.sqrt((action[0] - 1.0) ** 2)


class Rooted(Stake):
    """As the stake, with the square root of something that is 0."""

    def reward(self, action, noise):
        return super().reward(action, noise) + jnp.sqrt(action[0] - action[0])


class Stakes(AbstractJaxEnv):
    """The stake again and again: at each of 120 steps a in [0, 2] pays (a (0.5 + 2 z) - a²/4)/10.

    With the same stake at all steps the return is normal with mean 12 (a/2 - a²/4) and standard
    deviation 0.2 a sqrt(120).
    """

    steps = 120

    @property
    def action_space(self):
        return gym.spaces.Box(0.0, 2.0, (1,), np.float32)

    @property
    def horizon(self):
        return self.steps

    @property
    def observation_space(self):
        return gym.spaces.Box(0.0, 1.0, (1,), np.float32)

    def initial_state(self, key):
        return jnp.zeros(())

    def sample_noise(self, key):
        return jax.random.normal(key)

    def mirrored(self, noise):
        return -noise

    def transition(self, state, action, noise):
        stake = jnp.asarray(action)[0]
        reward = (stake * (0.5 + 2.0 * noise) - stake**2 / 4) / 10
        return StepResult(state + 1.0, reward, state + 1 >= self.steps, jnp.zeros((), bool))

    def observe(self, state):
        return (state / self.steps)[None].astype(jnp.float32)

    def best(self, tail):
        """The best constant stake and its value, where `tail` deviations are taken off the mean."""
        # 12 (a/2 - a²/4) - 0.2 sqrt(120) tail a, highest where 6 - 6 a = 0.2 sqrt(120) tail.
        cost = 0.2 * np.sqrt(self.steps) * tail
        stake = np.clip(1 - cost / 6, 0, 2)
        return stake, 12 * (stake / 2 - stake**2 / 4) - cost * stake


class SecondChance(AbstractJaxEnv):
    """Two steps, nothing to see but the time. The first pays 3 or -3 whatever is done. In the
    second, a in [0, 1] buys a gamble that pays 5 a or -3 a.

    By CVaR at level 1/2, the mean of the two worst of four outcomes: buying a = 1 after a loss
    alone has -6, 2, 3, 3 and so -2. Who does not remember the loss buys the same in both cases:
    -3 + 5 a, -3 - 3 a, 3 + 5 a, 3 - 3 a, at the best -2.25 with a = 3/4.
    """

    @property
    def action_space(self):
        return gym.spaces.Box(0.0, 1.0, (1,), np.float32)

    @property
    def horizon(self):
        return 2

    @property
    def observation_space(self):
        return gym.spaces.Box(0.0, 2.0, (1,), np.float32)

    def initial_state(self, key):
        return jnp.zeros(())

    def sample_noise(self, key):
        return jax.random.rademacher(key, (), float)

    def mirrored(self, noise):
        return -noise

    def transition(self, state, action, noise):
        gamble = jnp.where(noise > 0, 5.0, -3.0) * jnp.asarray(action)[0]
        # A little of the first action, which otherwise has no derivative at all.
        first = 3.0 * noise - 1e-3 * jnp.asarray(action)[0]
        reward = jnp.where(state == 0, first, gamble)
        return StepResult(state + 1.0, reward, state >= 1, jnp.zeros((), bool))

    def observe(self, state):
        return state[None].astype(jnp.float32)


class Wait(AbstractJaxEnv):
    """Stop (action 0) for the present offer, or wait (action 1) for another: three offers, each
    uniform in [0, 1]; the last one is paid in any case. Mean: stop at the second above 1/2, at the
    first above 5/8; worth 0.625² / 2 + 1/2 = 0.6953 by the mean."""

    @property
    def num_actions(self):
        return 2

    @property
    def horizon(self):
        return 2

    @property
    def observation_space(self):
        return gym.spaces.Box(0.0, 2.0, (2,), np.float32)

    def initial_state(self, key):
        return jnp.zeros(()), jax.random.uniform(key)

    def sample_noise(self, key):
        return jax.random.uniform(key)

    def mirrored(self, noise):
        return 1.0 - noise

    def transition(self, state, action, noise):
        time, offer = state
        last = time >= 1
        stop = jnp.asarray(action) == 0
        reward = jnp.where(stop, offer, jnp.where(last, noise, 0.0))
        return StepResult((time + 1.0, noise), reward, stop | last, jnp.zeros((), bool))

    def observe(self, state):
        return jnp.stack(state).astype(jnp.float32)


def second_gamble():
    """Two steps. The first pays 3 or -3 whatever is done; in the second action 1 pays 5 or -3.

    By its mean of 1 the gamble is worth taking; whether it is by another measure depends on what
    the first step has paid.
    """
    coin = [0.5, 0.5]
    return Tabular(
        [[coin, coin], [coin, coin], [coin, coin]],
        [[[3.0, -3.0], [3.0, -3.0]], *[[[0.0, 0.0], [5.0, -3.0]]] * 2],
        next_states=[[[1, 2], [1, 2]], [[1, 1], [1, 1]], [[2, 2], [2, 2]]],
        horizon=2,
    )
