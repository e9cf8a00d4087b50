"""Any Gymnasium environment as a vector of flat arrays."""

import contextlib
import multiprocessing
import os
import signal
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from downside.envs.gymnasium.vector_adapter import EnvironmentFaultError, VectorEnvAdapter

from ...train.toys import Assorted, Continuous, Counter, Faulty, Masked

MODES = list(AutoresetMode)


def transitions(adapter, actions):
    """The transitions of a sequence of actions: (before, action, reward, after, terminated)."""
    observations, _ = adapter.reset(seed=0)
    out = []
    for action in actions:
        chosen = np.full(adapter.num_envs, action)
        step = adapter.step(chosen)
        out += [
            (
                tuple(observations[i]),
                action,
                step.rewards[i],
                tuple(step.next_observations[i]),
                step.over[i],
                step.terminated[i],
            )
            for i in np.flatnonzero(step.is_step)
        ]
        observations = step.observations
    return out


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_transitions_are_the_same_in_every_autoreset_mode(mode, truncates):
    env = SyncVectorEnv([lambda: Counter(2, truncates)], autoreset_mode=mode)
    # Two steps to the end; where the reset takes a step of its own, nothing happens in it.
    steps = 7 if mode is AutoresetMode.NEXT_STEP else 5
    ends = not truncates
    assert transitions(VectorEnvAdapter(env, 1), [1] * steps)[:5] == [
        ((0, -1), 1, 1.0, (1, 1), False, False),
        ((1, 1), 1, 1.0, (2, 1), True, ends),
        ((0, -1), 1, 1.0, (1, 1), False, False),
        ((1, 1), 1, 1.0, (2, 1), True, ends),
        ((0, -1), 1, 1.0, (1, 1), False, False),
    ]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_the_first_observation_of_an_episode_is_marked_as_such(mode):
    adapter = VectorEnvAdapter(SyncVectorEnv([lambda: Counter(2)], autoreset_mode=mode), 1)
    adapter.reset(seed=0)
    steps = [adapter.step(np.array([1])) for _ in range(6)]
    started = [bool(step.started[0]) for step in steps]
    assert started == [tuple(step.observations[0]) == (0, -1) for step in steps]
    assert sum(started) == (2 if mode is AutoresetMode.NEXT_STEP else 3)


def test_copies_that_end_at_different_times_are_told_apart():
    makers = [lambda: Counter(2), lambda: Counter(3)]
    adapter = VectorEnvAdapter(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP), 2)
    adapter.reset(seed=0)
    over = [adapter.step(np.array([0, 1])).over.tolist() for _ in range(4)]
    assert over == [[False, False], [True, False], [False, True], [True, False]]


def test_observations_of_several_kinds_become_one_row():
    adapter = VectorEnvAdapter(Assorted(), 1)
    flat, _ = adapter.reset(seed=0)
    # By key: last = 0 of 3; parts = (0 of 2, 0 of 3); time.
    assert flat.tolist() == [[1, 0, 0, 1, 0, 1, 0, 0, 0]]
    assert adapter.step(np.array([1])).next_observations.tolist() == [[0, 0, 1, 0, 1, 0, 1, 0, 1]]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_masks_come_from_the_info_of_the_observation_they_belong_to(mode):
    adapter = VectorEnvAdapter(SyncVectorEnv([lambda: Masked(2)], autoreset_mode=mode), 1)
    _, masks = adapter.reset(seed=0)
    assert masks.tolist() == [[True, False]]
    step = adapter.step(np.array([0]))
    assert step.next_masks.tolist() == [[True, True]]
    last = adapter.step(np.array([1]))
    assert last.over.all()
    assert last.next_masks.tolist() == [[True, False]]


def test_actions_may_be_numbered_from_anywhere():
    class Shifted(Counter):
        action_space = gym.spaces.Discrete(2, start=5)

        def step(self, action):
            return super().step(action - 5)

    adapter = VectorEnvAdapter(Shifted(), 1)
    adapter.reset(seed=0)
    assert adapter.step(np.array([1])).rewards.tolist() == [1.0]


def many_steps(adapter):
    for _ in range(10):
        adapter.step(np.zeros(adapter.num_envs, int))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", r"raised OSError in `step`: the simulator is gone"),
        (
            "nan reward",
            r"The reward that .* is not finite, in environment 0: nan",
        ),
        ("nan observation", r"The observation that .* returned from `step` is not finite"),
        ("text", r"of shape \(2,\) and type <U1, but its space is \(2,\), float32"),
        ("complex", r"type complex64, but its space is \(2,\), float32"),
        ("shape", r"of shape \(3,\) and type float32, but its space is \(2,\)"),
        ("mask", r"info\['action_mask'\] of .* must have one entry for each of the 2 actions"),
    ],
)
def test_an_environment_that_breaks_is_named(fault, message):
    adapter = VectorEnvAdapter(Faulty(fault), 1)
    adapter.reset(seed=0)
    with pytest.raises(EnvironmentFaultError, match=message):
        many_steps(adapter)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        # A choice of two and a choice of three; the first mask is the one of the first copy.
        ([[1, 0, 0, 1, 1], [0, 1, 1, 1, 1]], [[1, 0, 0, 1, 1], [0, 1, 1, 1, 1]]),
        ([[1, 0, 0, 1, 1], [0, 0, 0, 0, 0]], [[1, 0, 0, 1, 1], [1, 1, 1, 1, 1]]),
        ([[1, 0, 0, 0, 0], [0, 1, 1, 1, 1]], None),
        ([[1, 0, 0, 1, 1], [0, 0, 1, 1, 1]], None),
    ],
    ids=["legal", "over", "nothing of the second", "nothing of the first"],
)
def test_masks_of_all_copies_come_as_one_array(given, shown):
    class Chooser(Continuous):
        action_space = gym.spaces.MultiDiscrete([2, 3])

    adapter = VectorEnvAdapter(SyncVectorEnv([Chooser, Chooser]), 2)
    infos, ended = {"action_mask": np.array(given)}, np.array([False, True])
    if shown is not None:
        np.testing.assert_array_equal(adapter._masks(infos, ended), np.array(shown, bool))
        return
    with pytest.raises(EnvironmentFaultError, match="at least one of them of each choice"):
        adapter._masks(infos, ended)


def test_continuous_actions_are_passed_on_as_they_are():
    class Throttle(Continuous):
        def step(self, action):
            return super().step(action[0])

    adapter = VectorEnvAdapter(Throttle(), 1)
    assert adapter.num_actions == 0
    adapter.reset(seed=0)
    step = adapter.step(np.array([[0.25]], np.float32))
    assert step.rewards.tolist() == [0.25]
    assert step.next_observations.tolist() == [[1.0, 0.25]]
    assert step.next_masks.shape == (1, 0)


def test_a_worker_that_dies_ends_the_run_and_does_not_hang_it():
    env = AsyncVectorEnv(
        [Counter, Counter], autoreset_mode=AutoresetMode.SAME_STEP, context="spawn"
    )
    try:
        adapter = VectorEnvAdapter(env, 2)
        adapter.reset(seed=0)
        adapter.step(np.array([0, 1]))
        worker = multiprocessing.active_children()[0]
        os.kill(worker.pid or 0, signal.SIGKILL)
        with pytest.raises(EnvironmentFaultError, match=r"worker process of .* died in `step`"):
            many_steps(adapter)
    finally:
        with warnings.catch_warnings(), contextlib.suppress(EOFError, OSError):
            warnings.simplefilter("ignore")  # closing finds the worker gone
            env.close(terminate=True)
        env.closed = True  # or it is closed once more when it is deleted, and finds the same
