"""Episodes as lists of time steps."""

import gymnasium as gym
import numpy as np

from downside.explanation.trajectory import record_trajectories

GO_ON, TERMINATE, TRUNCATE = 0, 1, 2


class Ending(gym.Env):
    """The action says how the step ends. At time t, action a pays t + 1 + 10 a."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.time = seed, 0
        return self._observation(), {}

    def step(self, action):
        self.time += 1
        reward = self.time + 10.0 * action
        return self._observation(), reward, action == TERMINATE, action == TRUNCATE, {}

    def _observation(self):
        return np.array([self.seed, self.time], np.float32)


def record(actions_by_seed, seeds, copies):
    """Episodes in which each seed follows a list of actions."""

    def act(now, states):
        return [actions_by_seed[int(seed)][now.time] for seed, _ in states]

    return record_trajectories(
        [Ending() for _ in range(copies)],
        seeds,
        act,
        lambda env, observation: (env.unwrapped.seed, observation[1]),  # pyright: ignore
        gamma=0.5,
        appended=1,
    )


def test_a_terminated_episode_has_no_next_action_and_a_truncated_one_has():
    plans = {4: [GO_ON, TERMINATE, GO_ON, GO_ON], 5: [GO_ON, TRUNCATE, GO_ON, GO_ON]}
    over, cut = record(plans, [4, 5], copies=2)
    for trajectory, last in ((over, TERMINATE), (cut, TRUNCATE)):
        # 1 at time 0 and 2 + 10 a at time 1; the last step pays nothing more.
        assert [step.reward for step in trajectory] == [1.0, 2.0 + 10.0 * last, None]
        assert [step.discount_so_far for step in trajectory] == [1.0, 0.5, 0.25]
        accumulated = [step.accumulated for step in trajectory]
        assert accumulated == [0.0, 1.0, 1.0 + 0.5 * (2.0 + 10.0 * last)]
    assert over[-1].action is None
    assert cut[-1].action == GO_ON


def test_episodes_of_different_lengths_stay_apart_and_more_seeds_than_copies_are_played():
    plans = {
        0: [TERMINATE, GO_ON, GO_ON, GO_ON],
        1: [GO_ON, GO_ON, TERMINATE, GO_ON],
        2: [GO_ON, TRUNCATE, GO_ON, GO_ON],
    }
    trajectories = record(plans, [0, 1, 2], copies=2)
    assert [len(steps) for steps in trajectories] == [2, 4, 3]
    for seed, steps in enumerate(trajectories):
        assert [step.time for step in steps] == list(range(len(steps)))
        # The last number of an observation is the agent's memory here, and is left out.
        assert [step.observation.tolist() for step in steps] == [[seed]] * len(steps)
        assert [step.state for step in steps] == [(seed, time) for time in range(len(steps))]
        assert [step.action for step in steps[:-1]] == plans[seed][: len(steps) - 1]
