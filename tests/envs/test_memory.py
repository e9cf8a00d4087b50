"""(s, c) and what is shown of it, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downside.envs import Memory, NoMemoryInput, ReturnInput, TargetInput
from downside.envs.memory import LARGEST, append_memory

REWARDS = st.lists(st.floats(-100, 100), min_size=1, max_size=8)
GAMMAS = st.floats(0.2, 1.0)


def after(rewards, gamma, memory=None):
    """The memory after some rewards."""
    memory = Memory(0.0, 1.0) if memory is None else memory
    for reward in rewards:
        memory = memory.update(reward, gamma)
    return memory


# --- (s, c) -----------------------------------------------------------------------------------


def test_a_reward_counts_with_the_discount_so_far():
    # Rewards 1, 2, 13 with γ = 0.5: s = 1 + 0.5 · 2 + 0.25 · 13 and c = 0.125.
    assert after([1.0, 2.0, 13.0], 0.5) == Memory(5.25, 0.125)
    assert after([], 0.5) == Memory(0.0, 1.0)


def test_each_environment_has_a_memory_and_its_discount():
    # Where the discount is 1 and the reward 0, nothing happened: the environment only reset.
    memory = Memory.initial(2).update(np.array([4.0, 0.0]), np.array([0.5, 1.0]))
    memory = memory.update(np.array([2.0, 6.0]), np.array([0.5, 0.5]))
    np.testing.assert_array_equal(memory.accumulated, [5, 6])
    np.testing.assert_array_equal(memory.discount_so_far, [0.25, 0.5])


def test_an_n_step_return_is_one_reward_with_the_power_of_the_discount():
    # From (3, 0.5), rewards 1, 2, 13 with γ = 0.5: their return is 5.25, so that s = 3 + 2.625.
    start = Memory(3.0, 0.5)
    assert start.update(5.25, 0.125) == Memory(5.625, 0.0625)
    assert after([1.0, 2.0, 13.0], 0.5, start) == Memory(5.625, 0.0625)


@given(rewards=REWARDS, gamma=GAMMAS, earned=st.floats(-50, 50), discount=st.floats(0.1, 1.0))
def test_n_updates_are_one_by_the_n_step_return(rewards, gamma, earned, discount):
    start = Memory(earned, discount)
    n_step_return = sum(gamma**k * reward for k, reward in enumerate(rewards))
    once = start.update(n_step_return, gamma ** len(rewards))
    np.testing.assert_allclose(after(rewards, gamma, start), once, rtol=1e-9, atol=1e-9)


def test_relabelling_adds_to_what_was_earned_before_and_after_a_step():
    # The reward is the same, so that s and s' both grow by the amount.
    memory = Memory(2.0, 0.5)
    assert memory.relabel(0.75) == Memory(2.75, 0.5)
    assert memory.relabel(0.75).update(4.0, 0.5) == Memory(4.75, 0.25)
    assert memory.update(4.0, 0.5).relabel(0.75) == Memory(4.75, 0.25)


def test_the_memory_starts_anew_where_an_episode_is_over():
    memory = Memory(np.array([3.0, 4.0]), np.array([0.5, 0.25]))
    memory = memory.reset_where(np.array([True, False]))
    np.testing.assert_array_equal(memory.accumulated, [0, 4])
    np.testing.assert_array_equal(memory.discount_so_far, [1, 0.25])


# --- what is shown ----------------------------------------------------------------------------


def test_what_is_missing_follows_its_recursion_by_hand():
    # b: (7 - 1) / 0.5 = 12, (12 - 2) / 0.5 = 20, (20 - 13) / 0.5 = 14.
    rewards = [1.0, 2.0, 13.0]
    shown = [TargetInput(7.0).show(after(rewards[:count], 0.5))[0] for count in range(4)]
    assert shown == [7.0, 12.0, 20.0, 14.0]


@given(rewards=REWARDS, gamma=GAMMAS, target=st.floats(-50, 50))
def test_what_is_missing_follows_its_recursion(rewards, gamma, target):
    # b' = (b - r) / γ from the target, whatever the rewards.
    missing = target
    for reward in rewards:
        missing = (missing - reward) / gamma
    memory = after(rewards, gamma)
    (shown,) = TargetInput(target).show(memory)
    tolerance = 1e-9 * (1 + abs(target) + 800) / memory.discount_so_far
    assert shown == pytest.approx(missing, abs=tolerance)


def test_targets_may_differ_between_environments():
    memory = Memory(np.array([1.0, 1.0]), np.array([0.5, 0.25]))
    (shown,) = TargetInput(np.array([3.0, 5.0])).show(memory)
    np.testing.assert_array_equal(shown, [4, 16])


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        (NoMemoryInput(), np.zeros((2, 0))),
        (ReturnInput(), [[3.0, 0.5], [-1.0, 0.25]]),
        (TargetInput(7.0), [[12.0], [-4.0]]),
        (TargetInput(np.array([7.0, 5.0])), [[12.0], [-4.0]]),
    ],
)
def test_what_is_recovered_is_shown_as_it_was(inputs, shown):
    shown = jnp.asarray(shown)
    memory = inputs.recover(shown)
    assert memory.accumulated.shape == memory.discount_so_far.shape == (2,)
    assert len(inputs.show(memory)) == inputs.size == len(inputs.high) == shown.shape[-1]
    for column, values in enumerate(inputs.show(memory)):
        np.testing.assert_array_equal(values, shown[:, column])


def test_the_return_is_recovered_as_it_was_and_a_target_as_that_of_a_new_episode():
    memory = ReturnInput().recover(jnp.array([3.0, 0.5]))
    assert (float(memory.accumulated), float(memory.discount_so_far)) == (3.0, 0.5)
    # 12 missing to 7, with all still to come: 5 have been lost.
    memory = TargetInput(7.0).recover(jnp.array([12.0]))
    assert (float(memory.accumulated), float(memory.discount_so_far)) == (-5.0, 1.0)


def test_the_same_is_shown_in_numpy_and_in_jax_in_32_bits():
    memory = Memory(np.array([1.0, 2.0]), np.array([0.5, 0.25]))
    for inputs, values in (
        (ReturnInput(), [[9, 1, 0.5], [8, 2, 0.25]]),
        (TargetInput(3.0), [[9, 4], [8, 4]]),
    ):
        for library in (np, jnp):
            observations = library.array([[9.0], [8.0]], dtype=np.float32)
            got = append_memory(observations, Memory(*map(library.asarray, memory)), inputs)
            assert isinstance(got, jax.Array) == (library is jnp)
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, values)


def test_what_is_shown_stays_finite():
    # A discount of 0 and a return beyond float32.
    observation = np.zeros(1, np.float32)
    lost = append_memory(observation, Memory(100.0, 0.0), TargetInput(0.0))
    np.testing.assert_array_equal(lost, np.array([0, -LARGEST], np.float32))
    earned = append_memory(observation, Memory(1e300, 1.0), ReturnInput())
    np.testing.assert_array_equal(earned, np.array([0, LARGEST, 1], np.float32))


def test_where_nothing_is_shown_the_observation_is_passed_on():
    observation = np.ones(3)
    assert append_memory(observation, Memory(2.0, 0.5), NoMemoryInput()) is observation
