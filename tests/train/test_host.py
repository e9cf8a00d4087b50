"""Any Gymnasium environment as the hosted loop sees it."""

import contextlib
import multiprocessing
import os
import signal
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import downside as ds
from downside.train.host import Host

from .toys import Assorted, Continuous, Counter, Faulty, Masked

MODES = list(AutoresetMode)


def lived(host, actions):
    """The transitions of a sequence of actions: (before, action, reward, after, terminated)."""
    observations, _ = host.reset(seed=0)
    out = []
    for action in actions:
        chosen = np.full(host.num_envs, action)
        seen = host.step(chosen)
        out += [
            (tuple(observations[i]), action, seen.rewards[i], tuple(seen.after[i]), over, ended)
            for i, (over, ended) in enumerate(zip(seen.over, seen.terminated, strict=True))
            if seen.lived[i]
        ]
        observations = seen.observations
    return out


@pytest.mark.parametrize("truncates", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=lambda one: one.name)
def test_transitions_are_the_same_in_every_autoreset_mode(mode, truncates):
    env = SyncVectorEnv([lambda: Counter(2, truncates)], autoreset_mode=mode)
    # Two steps to the end; where the reset takes a step of its own, it lives through nothing.
    steps = 7 if mode is AutoresetMode.NEXT_STEP else 5
    ends = not truncates
    assert lived(Host(env, 1), [1] * steps)[:5] == [
        ((0, -1), 1, 1.0, (1, 1), False, False),
        ((1, 1), 1, 1.0, (2, 1), True, ends),
        ((0, -1), 1, 1.0, (1, 1), False, False),
        ((1, 1), 1, 1.0, (2, 1), True, ends),
        ((0, -1), 1, 1.0, (1, 1), False, False),
    ]


@pytest.mark.parametrize("mode", MODES, ids=lambda one: one.name)
def test_the_first_observation_of_an_episode_is_marked_as_such(mode):
    host = Host(SyncVectorEnv([lambda: Counter(2)], autoreset_mode=mode), 1)
    host.reset(seed=0)
    seen = [host.step(np.array([1])) for _ in range(6)]
    for one in seen:
        assert bool(one.started[0]) == (tuple(one.observations[0]) == (0, -1))


def test_copies_that_end_at_different_times_are_told_apart():
    makers = [lambda: Counter(2), lambda: Counter(3)]
    host = Host(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP), 2)
    host.reset(seed=0)
    over = [host.step(np.array([0, 1])).over.tolist() for _ in range(4)]
    assert over == [[False, False], [True, False], [False, True], [True, False]]


def test_observations_of_several_kinds_become_one_row():
    host = Host(Assorted(), 1)
    flat, _ = host.reset(seed=0)
    # By key: last = 0 of 3; parts = (0 of 2, 0 of 3); time.
    assert flat.tolist() == [[1, 0, 0, 1, 0, 1, 0, 0, 0]]
    assert host.step(np.array([1])).after.tolist() == [[0, 0, 1, 0, 1, 0, 1, 0, 1]]


@pytest.mark.parametrize("mode", MODES, ids=lambda one: one.name)
def test_masks_come_from_the_info_of_the_observation_they_belong_to(mode):
    host = Host(SyncVectorEnv([lambda: Masked(2)], autoreset_mode=mode), 1)
    _, masks = host.reset(seed=0)
    assert masks.tolist() == [[True, False]]
    seen = host.step(np.array([0]))
    assert seen.after_masks.tolist() == [[True, True]]
    last = host.step(np.array([1]))
    assert last.over.all()
    assert last.after_masks.tolist() == [[True, False]]


def test_actions_may_be_numbered_from_anywhere():
    class Shifted(Counter):
        action_space = gym.spaces.Discrete(2, start=5)

        def step(self, action):
            return super().step(action - 5)

    host = Host(Shifted(), 1)
    host.reset(seed=0)
    assert host.step(np.array([1])).rewards.tolist() == [1.0]


def many_steps(host):
    for _ in range(10):
        host.step(np.zeros(host.num_envs, int))


@pytest.mark.parametrize(
    ("fault", "said"),
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
def test_an_environment_that_breaks_is_named(fault, said):
    host = Host(Faulty(fault), 1)
    host.reset(seed=0)
    with pytest.raises(ds.EnvironmentFaultError, match=said):
        many_steps(host)


def test_continuous_actions_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"`env` must have discrete actions, got Box.*Transform"):
        ds.QRDQN(Continuous())
    with pytest.raises(ValueError, match="`env` must have discrete actions, got Box"):
        ds.QRSRM("Pendulum-v1", risk="cvar(0.2)")


def test_a_worker_that_dies_ends_the_run_and_does_not_hang_it():
    env = AsyncVectorEnv(
        [Counter, Counter], autoreset_mode=AutoresetMode.SAME_STEP, context="spawn"
    )
    try:
        host = Host(env, 2)
        host.reset(seed=0)
        host.step(np.array([0, 1]))
        worker = multiprocessing.active_children()[0]
        os.kill(worker.pid or 0, signal.SIGKILL)
        with pytest.raises(ds.EnvironmentFaultError, match=r"worker process of .* died in `step`"):
            many_steps(host)
    finally:
        with warnings.catch_warnings(), contextlib.suppress(EOFError, OSError):
            warnings.simplefilter("ignore")  # closing finds the worker gone
            env.close(terminate=True)
        env.closed = True  # or it is closed once more when it is deleted, and finds the same
