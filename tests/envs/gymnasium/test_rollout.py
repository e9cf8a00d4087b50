"""Episodes of scripted Gymnasium environments, whose returns and lengths are known."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from downside.envs import GymnasiumEnv
from downside.envs.gymnasium import rollout as gym_rollout
from downside.envs.gymnasium.rollout import VectorRollout, in_turns, play_episodes
from downside.envs.gymnasium.vector_adapter import EnvironmentFaultError, VectorEnvAdapter

from ..scripted import GO_ON, TERMINATE, TRUNCATE, Scripted

MODES = list(AutoresetMode)

SCRIPT = [TERMINATE, GO_ON, TRUNCATE, GO_ON, GO_ON, TERMINATE]
"""Episodes of 1, 2 and 3 steps."""
EPISODES = [
    # Discounted return with γ = 0.5, sum of rewards, length. Action a at time t pays t + 1 + 10 a.
    [11.0, 11.0, 1.0],
    [1.0 + 22.0 / 2, 23.0, 2.0],
    [1.0 + 2.0 / 2 + 13.0 / 4, 16.0, 3.0],
]


def scripted_rollout(mode, copies):
    envs = SyncVectorEnv([lambda: GymnasiumEnv(Scripted())] * copies, autoreset_mode=mode)
    return VectorRollout(VectorEnvAdapter(envs, copies), 0.5, seed=0)


class Scripts:
    """A script for each copy, read on whenever the copy really steps."""

    def __init__(self, *scripts):
        self.scripts, self.places = scripts, [0] * len(scripts)

    def __call__(self, now):
        return np.array(
            [script[at % len(script)] for script, at in zip(self.scripts, self.places, strict=True)]
        )

    def move_on(self, is_step):
        self.places = [at + int(moved) for at, moved in zip(self.places, is_step, strict=True)]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_rows_of_episodes_are_the_same_in_every_autoreset_mode(mode):
    # The second copy plays the same script, three actions ahead: the long episode comes first.
    now = scripted_rollout(mode, 2)
    script = Scripts(SCRIPT, SCRIPT[3:] + SCRIPT[:3])
    rows: list[list[Any]] = [[], []]
    for _ in range(12):
        earned = now.memory
        step, ended = now.step(script(now))
        script.move_on(step.is_step)
        assert len(ended) == step.over.sum()
        for i, row in zip(np.flatnonzero(step.over), ended, strict=True):
            rows[i].append(row.tolist())
        # The memory is that of the episode under way, untouched by a step that only resets.
        np.testing.assert_array_equal(now.memory.accumulated[step.over], 0.0)
        np.testing.assert_array_equal(now.memory.discount_so_far[step.over], 1.0)
        idle = ~step.is_step
        np.testing.assert_array_equal(now.memory.accumulated[idle], earned.accumulated[idle])
        times = now.observations[:, 0]
        begun = times[~step.over]  # where it is over, what is shown depends on the mode
        np.testing.assert_array_equal(now.memory.discount_so_far[~step.over], 0.5**begun)
        np.testing.assert_array_equal(now.started, step.started)
    first = EPISODES + EPISODES
    second = EPISODES[2:] + EPISODES + EPISODES
    assert len(rows[0]) >= 4
    assert rows[0] == first[: len(rows[0])]
    assert rows[1] == second[: len(rows[1])]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_each_copy_plays_its_share_of_the_episodes(mode):
    # Five episodes in two copies: three and two, although the second copy's are over sooner.
    now = scripted_rollout(mode, 2)

    def act(now):
        length = np.array([3, 1])
        return np.where(now.lengths == length - 1, TERMINATE, GO_ON)

    rows = now.play(act, 5)
    assert [[row.tolist() for row in copy] for copy in rows] == [
        [[5.25, 16.0, 3.0]] * 3,
        [[11.0, 11.0, 1.0]] * 2,
    ]


def test_rows_are_taken_in_turns():
    assert in_turns([[1, 4, 6], [2], [3, 5]]) == [1, 2, 3, 4, 5, 6]


def test_an_episode_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr(gym_rollout, "MAX_EPISODE_STEPS", 20)
    now = scripted_rollout(AutoresetMode.SAME_STEP, 2)
    with pytest.raises(EnvironmentFaultError, match=r"did not end in .* steps\. Wrap the env"):
        now.play(lambda now: np.array([GO_ON, TERMINATE]), 2)
    assert now.lengths[0] == 21


def test_a_rollout_notices_that_somebody_else_has_reset_its_environment():
    now = scripted_rollout(AutoresetMode.SAME_STEP, 1)
    now.step(np.array([GO_ON]))
    assert not now.disturbed
    now.env.reset(seed=1)
    assert now.disturbed
    now.reset(seed=2)
    assert not now.disturbed
    assert now.memory.accumulated.tolist() == [0.0]
    assert now.lengths.tolist() == [0.0]


# --- Gymnasium, given seeds -------------------------------------------------------------------


class Dice(gym.Env):
    """Observes and pays what a die shows; action 1 ends the episode."""

    observation_space = gym.spaces.Box(0.0, 6.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, says_mask=False):
        self.says_mask, self.steps = says_mask, 0

    def _show(self) -> Any:
        self.shown = int(self.np_random.integers(1, 7))
        info = {"action_mask": np.array([self.shown > 1, True])} if self.says_mask else {}
        return np.array([self.shown], np.float32), info

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        return self._show()

    def step(self, action) -> Any:
        self.steps += 1
        paid = float(self.shown)
        observation, info = self._show()
        return observation, paid, action == 1, False, info


def test_each_episode_begins_with_its_seed_and_stays_where_it_ended():
    visited: list[Any] = []
    envs = [GymnasiumEnv(Scripted()) for _ in range(3)]

    def act(now):
        # The first episode is terminated at time 0, the second truncated at time 1.
        return np.array([TERMINATE, TRUNCATE if now.time == 1 else GO_ON])

    end = play_episodes(
        envs,
        [5, 6],
        act,
        lambda now, actions: visited.append((now, actions)),
        gamma=0.5,
        max_steps=100,
    )
    assert [now.time for now, _ in visited] == [0, 1, 2]
    assert visited[-1] == (end, None)
    assert visited[0][1].tolist() == [TERMINATE, GO_ON]
    assert [now.running.tolist() for now, _ in visited] == [[1, 1], [0, 1], [0, 0]]
    assert [now.rewards.tolist() for now, _ in visited] == [[0, 0], [11, 1], [0, 22]]
    assert [[float(shown[0]) for shown in now.observations] for now, _ in visited] == [
        [0, 0],
        [1, 1],
        [1, 2],
    ]
    assert end.terminated.tolist() == [True, False]
    # 11, with one step discounted; 1 + 22/2, with two.
    assert end.memory.accumulated.tolist() == [11.0, 12.0]
    assert end.memory.discount_so_far.tolist() == [0.5, 0.25]


def test_equal_seeds_are_equal_episodes():
    def first(seeds):
        envs = [Dice() for _ in seeds]
        end = play_episodes(
            envs,
            seeds,
            lambda now: np.zeros(len(seeds), int),
            lambda now, actions: None,
            gamma=1.0,
            max_steps=6,
        )
        return end.memory.accumulated.tolist()

    together = first([3, 4, 3])
    assert together[0] == together[2]
    assert together == [*first([3]), *first([4]), *first([3])]
    assert len(set(first(range(10)))) > 1


def test_episodes_are_left_after_the_largest_number_of_steps():
    env, visits = Dice(), []
    end = play_episodes(
        [env],
        [0],
        lambda now: [0],
        lambda now, actions: visits.append(actions),
        gamma=1.0,
        max_steps=4,
    )
    assert env.steps == 4
    assert visits == [[0]] * 4 + [None]
    assert end.running.tolist() == [True]


def test_masks_are_known_where_all_environments_say_them():
    def masks(*say):
        out = []
        envs = [Dice(says_mask) for says_mask in say]
        play_episodes(
            envs,
            list(range(len(say))),
            lambda now: np.ones(len(say), int),
            lambda now, actions: out.append((now.masks, now.observations)),
            gamma=1.0,
            max_steps=1,
        )
        return out

    for known, observations in masks(True, True):
        assert known.tolist() == [[bool(shown[0] > 1), True] for shown in observations]
    assert [known for known, _ in masks(True, False)] == [None, None]
