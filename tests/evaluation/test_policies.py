"""`evaluate_policy`, in single and in vector environments."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from downside.evaluation import evaluate_policy


class Countdown(gym.Env):
    """Copy n: its first episode has n + 1 steps, the next one step more; step k pays 10^n."""

    observation_space = gym.spaces.Dict({"left": gym.spaces.Box(0, 100, (1,))})
    action_space = gym.spaces.Discrete(2, start=3)

    def __init__(self, number=0, masked=False):
        self.number, self.masked, self.length = number, masked, number

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length += 1
        self.left = self.length
        return self._observation(), self._info()

    def step(self, action):
        assert action == (4 if self.masked else 3)
        self.left -= 1
        return self._observation(), 10.0**self.number, self.left == 0, False, self._info()

    def _observation(self):
        return {"left": np.array([self.left], np.float32)}

    def _info(self):
        return {"action_mask": np.array([False, True])} if self.masked else {}


class First:
    """Takes the first legal action. Without masks it does not know the argument."""

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        assert set(observation) == {"left"}  # as the environment returned it, not flattened
        return np.full(len(observation["left"]), 3), state


class FirstLegal:
    def predict(self, observation, *, deterministic, action_masks):
        return 3 + np.argmax(action_masks, axis=1), None


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_each_environment_plays_its_share_whatever_its_autoreset_mode(mode):
    copies = [lambda i=i: Countdown(i) for i in range(3)]
    env = SyncVectorEnv(copies, autoreset_mode=mode)
    rewards, lengths = evaluate_policy(First(), env, 5, return_episode_rewards=True, seed=0)
    # Two episodes in copies 0 and 1, one in copy 2, in the order in which they end: after steps 1
    # and 3 in copy 0, 2 and 5 in copy 1, 3 in copy 2. NEXT_STEP takes one step for each reset.
    late = mode is AutoresetMode.NEXT_STEP
    assert rewards == [1.0, 20.0, *((300.0, 2.0) if late else (2.0, 300.0)), 30.0]
    assert lengths == [1, 2, *((3, 2) if late else (2, 3)), 3]


def test_a_single_environment_gives_mean_and_deviation():
    # Episodes of 1, 2, 3 and 4 steps, each step pays 1.
    assert evaluate_policy(First(), Countdown(), 4) == (2.5, pytest.approx(np.sqrt(1.25)))


def test_masks_reach_the_model():
    rewards, _ = evaluate_policy(FirstLegal(), Countdown(masked=True), 2, True, True)
    assert rewards == [1.0, 2.0]
