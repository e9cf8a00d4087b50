"""The outer step: what is measured, what is kept, and what decides nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside._random import stream
from downside.agents import SRM, SimulatorSettings, StaticCVaR
from downside.risk import CVaR
from downside.train.backends.outer import policy_episodes

from ..tiny import ENV, PAPER, TINY, TWO, all_equal, make, state_of, weights


def paper(**changes):
    return ds.QRSRM(ENV, risk="cvar(0.5)", **{**PAPER, **changes})


def measured(agent, policy):
    """The returns of a policy in the episodes that the outer step measures in."""
    spec, driver = agent._driver.planned(), agent._driver
    episodes = policy_episodes(
        spec,
        spec.learner(driver.algorithm),
        policy.networks,
        policy.outer,
        agent.settings.outer_episodes,
        stream(state_of(agent).key, "measure"),
    )
    assert int(episodes.steps) == 3 * agent.settings.outer_episodes
    return np.asarray(episodes.memory.accumulated, float)


@pytest.mark.slow
def test_by_default_the_best_policy_is_the_result():
    is_last = []
    for seed in range(4):
        agent = make(seed).learn(TWO)
        state = state_of(agent)
        returns = measured(agent, state.best)
        assert returns.std() > 0.0
        np.testing.assert_allclose(state.best.value, CVaR(0.5)(returns), rtol=1e-4, atol=1e-6)
        assert state.best.value >= max(record["value"] for record in agent.history)
        is_last.append(eqx.tree_equal(state.best.networks, state.learner.networks))
    assert True in is_last
    assert False in is_last


@pytest.mark.parametrize("algorithm", [SRM, StaticCVaR])
@pytest.mark.parametrize("shifts", [1, 3])
def test_the_middle_candidate_is_the_outer_variable_itself(algorithm, shifts):
    settings = SimulatorSettings(**{**TINY, "shifts": shifts, "shift_span": 0.5})
    made = algorithm.make(CVaR(0.5), settings)
    variable = made.initial_outer(jnp.array([1.0, 3.0]))
    candidates = made.candidates(variable, jnp.array(4.0), settings)
    middle = jax.tree.map(lambda leaf: leaf[shifts // 2], candidates)
    assert eqx.tree_equal(middle, variable)
    if shifts == 3:  # half of a spread of 4 to either side
        locations = jax.vmap(lambda candidate: made.logged(candidate)["location"])(candidates)
        np.testing.assert_allclose(np.diff(locations), [2.0, 2.0])


# --- the paper --------------------------------------------------------------------------------


@pytest.mark.slow
def test_in_the_paper_the_last_policy_is_the_result():
    agent, values, kept = paper(), [], []

    def watch(agent):
        state = state_of(agent)
        kept.append(all_equal(weights(agent.networks), weights(state.learner.networks)))
        values.append(agent.history[-1]["value"])
        assert agent.history[-1]["best"] == values[-1]

    agent.learn(400, callback=watch)
    assert kept == [True] * 10
    # Some policy on the way measured better than the last one, which is the result all the same.
    assert max(values) > values[-1]
    # The value in the log is that of the last policy, with the h that it acted by.
    np.testing.assert_allclose(
        values[-1], CVaR(0.5)(measured(agent, state_of(agent).best)), rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
def test_nothing_that_is_measured_changes_training_in_the_paper():
    few, many = (paper(outer_episodes=episodes).learn(400) for episodes in (16, 24))
    assert few.history[-1]["value"] != many.history[-1]["value"]
    first, second = state_of(few), state_of(many)
    for part in ("learner", "outer", "replay", "env_states"):
        assert eqx.tree_equal(getattr(first, part), getattr(second, part)), part
    assert eqx.tree_equal(few.networks, many.networks)
    assert eqx.tree_equal(few.outer_variable, many.outer_variable)
    assert float(np.abs(few.outer_variable.utility.drops).sum()) > 0.0  # h has been moved
