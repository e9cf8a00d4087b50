"""What a hosted run remembers: transitions, chains of them, the last episodes."""

import numpy as np
import pytest

import downside as ds
from downside.train.host_memory import HostReplay, Ring, Samples
from downside.train.hosted_compiled import exchanged
from downside.train.hosted_run import HostedRun

from .test_hosted import SMALL
from .toys import Counter


def samples(numbers):
    n = np.asarray(numbers, float)
    columns = np.stack([n, n], axis=-1)
    yes = np.ones((len(n), 2), bool)
    half = np.full(len(n), 0.5)
    return Samples(columns, n, n, n.astype(int), n, columns, yes, n > 90, half)


def test_the_replay_overwrites_its_oldest_transitions():
    replay = HostReplay.empty(size=2, actions=2, capacity=4)
    replay.add(samples([1, 2, 3]))
    assert set(replay.sample(np.random.default_rng(0), (50,)).reward) == {1, 2, 3}
    replay.add(samples([4, 5]))
    assert replay.storage.reward.tolist() == [5, 2, 3, 4]
    assert int(replay.added) == 5


def test_several_steps_are_taken_as_one():
    replay = HostReplay.empty(size=2, actions=2, capacity=8)
    none = np.array([-1, -1])
    first = replay.add(samples([1, 10]), none)
    second = replay.add(samples([2, 95]), first)  # the second episode ends
    third = replay.add(samples([3, 20]), np.array([second[0], -1]))
    sampled = replay.sample(np.random.default_rng(0), (200,), 3)
    found = {
        int(s): (r, a[0], t, d)
        for s, r, a, t, d in zip(*(sampled[i] for i in (1, 4, 5, 7, 8)), strict=True)
    }
    assert found == {
        1: (1 + 2 / 2 + 3 / 4, 3, False, 1 / 8),
        2: (2 + 3 / 2, 3, False, 1 / 4),  # the third has not followed yet
        3: (3, 3, False, 1 / 2),
        10: (10 + 95 / 2, 95, True, 1 / 4),  # not into the next episode
        95: (95, 95, True, 1 / 2),
        20: (20, 20, False, 1 / 2),
    }
    # What follows is overwritten after what it follows, so that links never lead astray.
    fourth = replay.add(samples([4, 30]), third)
    replay.add(samples([5, 40]), fourth)
    sampled = replay.sample(np.random.default_rng(0), (200,), 2)
    found = {int(s): r for s, r in zip(sampled.accumulated, sampled.reward, strict=True)}
    assert found == {2: 3.5, 95: 95, 3: 5, 20: 35, 4: 6.5, 30: 50, 5: 5, 40: 40}


def test_some_transitions_are_taken_with_the_memory_of_another():
    # The first three of five hand theirs round; what happened to each stays as it was.
    count = np.arange(5.0)
    lived = Samples(
        count[:, None],
        10 + count,
        0.5 + count / 10,
        np.arange(5),
        20 + count,
        30 + count[:, None],
        np.ones((5, 2), bool),
        np.zeros(5, bool),
        np.full(5, 0.9),
    )
    got = exchanged(lived, 3)
    np.testing.assert_allclose(got.accumulated, [12, 10, 11, 13, 14])
    np.testing.assert_allclose(got.discount_so_far, [0.7, 0.5, 0.6, 0.8, 0.9])
    for name in set(Samples._fields) - {"accumulated", "discount_so_far"}:
        np.testing.assert_array_equal(getattr(got, name), getattr(lived, name))
    assert all(map(np.allclose, exchanged(lived, 0), lived))


def test_a_small_replay_does_not_link_to_what_was_overwritten():
    replay = HostReplay.empty(size=2, actions=2, capacity=3)
    first = replay.add(samples([1, 2]), np.array([-1, -1]))
    replay.add(samples([3, 4]), first)
    assert replay.storage.reward.tolist() == [4, 2, 3]
    assert replay.successor.tolist() == [-1, 0, -1]


@pytest.mark.parametrize(("explored", "linked"), [(1.0, 0.0), (0.0, 0.75)])
def test_several_steps_go_on_only_where_the_policy_acted(explored, linked):
    # Episodes of four steps: of what the policy does, three of four have a step that follows.
    share = {"exploration_initial": explored, "exploration_final": explored}
    agent = ds.QRDQN(Counter(length=4), seed=0, **SMALL, **share).learn(100)
    run = agent._run
    assert isinstance(run, HostedRun)
    count = int(run.replay.added)
    # Twenty episodes, without the last steps, of which one may still be followed.
    follows = run.replay.successor[count - 84 : count - 4] >= 0
    assert follows.mean() == linked


def test_a_ring_holds_what_was_written_last():
    ring = Ring.empty(3, (), float)
    assert len(ring.filled()) == 0
    ring.add(np.array([1.0, 2.0]))
    assert ring.filled().tolist() == [1, 2]
    ring.add(np.array([3.0, 4.0]))
    assert ring.filled().tolist() == [4, 2, 3]
