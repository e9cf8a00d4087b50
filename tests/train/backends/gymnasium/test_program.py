"""The compiled parts of training in a Gymnasium environment."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.envs import Memory
from downside.train.backends.gymnasium.outer import moved_and_kept
from downside.train.backends.gymnasium.program import greedy_actions

from ...tiny import SMALL, experience_of, state_of
from ...toys import Counter, Noisy


@pytest.mark.slow
def test_an_agent_acts_in_episodes_as_it_predicts_whatever_was_compiled_for_another():
    for seed in (0, 1):
        agent = ds.QRSRM(Noisy(), risk="cvar(0.5)", seed=seed, **SMALL).learn(50)
        policy = agent.policy
        size = policy.observation_space.shape[0]
        rows = np.random.default_rng(seed).normal(size=(40, size)).astype(np.float32)
        act = greedy_actions(policy.learner, policy.best.networks, policy.best.outer)

        def chosen(masks, act=act, rows=rows):
            memory = Memory(rows[:, -2], rows[:, -1])
            return act(SimpleNamespace(observations=rows[:, :-2], memory=memory, masks=masks))

        everything = np.ones((40, 2), bool)
        actions = chosen(everything)
        np.testing.assert_array_equal(actions, agent.predict(rows)[0])
        assert set(actions) == {0, 1}
        assert (chosen(everything & (np.arange(2) == 1)) == 1).all()


def kept_of(windows, **changes):
    """Which of some policies are kept, one after the other, by the episodes of each."""
    agent = ds.QRDQN(Counter(), **SMALL, **changes).learn(50)
    state, driver = state_of(agent), agent._driver
    starts, yes = experience_of(agent).first_observations(), jnp.array(True)
    best = eqx.tree_at(lambda policy: policy.value, state.best, jnp.asarray(-jnp.inf))
    accepted = []
    for step, window in enumerate(windows):
        networks = jax.tree.map(
            lambda leaf, n=step: leaf * 0 + n if eqx.is_array(leaf) else leaf,
            state.learner.networks,
        )
        state = eqx.tree_at(lambda s: s.best, state, best)
        _, best, value, _ = moved_and_kept(
            driver.planned(), driver.algorithm, state, networks, starts, window, yes, yes
        )
        assert float(value) == pytest.approx(float(window.mean()), abs=1e-6)
        accepted.append(float(jax.tree.leaves(best.networks)[0].ravel()[0]) == step)
    return accepted, float(best.value)


def sinking():
    """Each window is 0.4 standard errors below the one before."""
    return [jnp.linspace(-1.0, 1.0, 100) - 0.4 * i * 0.0583 for i in range(12)]


@pytest.mark.slow
def test_the_kept_policy_does_not_sink_with_those_that_come_close():
    accepted, value = kept_of(sinking())
    assert accepted == [True] * 8 + [False] * 4  # up to three of them
    assert value == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_without_keep_best_the_last_policy_is_kept():
    accepted, value = kept_of(sinking(), keep_best=False)
    assert accepted == [True] * 12
    assert value == pytest.approx(-0.4 * 11 * 0.0583, abs=1e-6)


@pytest.mark.slow
def test_of_policies_that_always_earn_the_same_the_last_is_kept():
    assert kept_of([jnp.full(100, 2.0)] * 3) == ([True] * 3, 2.0)
