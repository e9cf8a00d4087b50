"""Backward induction of expected utilities: branches by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import downside as ds
from downside.agents.backward import branch_values
from downside.agents.choice_dial import ChoicePosition
from downside.envs import Memory
from downside.train.backends.pathwise.program import PathwiseSpec

from .gambles import second_gamble


def learner_and_actor():
    agent = ds.PGSRM(second_gamble(), risk="dial", gamma=1.0, hidden_sizes=(4,), batch_size=8)
    spec = agent._driver.new_spec(1)
    assert isinstance(spec, PathwiseSpec)
    learner = spec.learner(agent._driver.algorithm)
    algorithm: Any = agent._driver.algorithm
    size = spec.env.observation_space.shape[0] + algorithm.inputs_appended
    outer = algorithm.initial_outer(jnp.linspace(-6.0, 8.0, 101))
    return learner, learner.init(jax.random.key(0), size, outer=outer).networks


def test_an_action_is_worth_the_mean_utility_of_what_it_leads_to():
    learner, actor = learner_and_actor()
    rows = 2 * 500
    state = learner.env.initial_state(jax.random.key(0))
    numbers = jnp.repeat(jnp.asarray([0, 1]), 500)  # at the start, and after the first step
    states = type(state)(numbers, numbers)
    earned = jnp.where(numbers == 1, 3.0, 0.0)
    full = lambda number: jnp.full(rows, number)  # noqa: E731
    values = branch_values(
        learner,
        actor,
        states,
        Memory(earned, full(1.0)),
        ChoicePosition(full(1.0), full(0.5), full(3.5), full(1.0)),
        full(True),
        jax.random.key(1),
    ).reshape(2, 500, 2)
    # An untrained actor takes action 0: from the start the return is 3 or -3, of utility 0.5 * 2 or
    # -4. After 3, holding has utility 1; the gamble leads to 8 or 0, of utility 3.5 or -1.
    np.testing.assert_allclose(values[0].mean(axis=0), [-1.5, -1.5], atol=0.4)
    np.testing.assert_allclose(values[0, :, 0], values[0, :, 1])  # under the same noise
    np.testing.assert_allclose(values[1, :, 0], 1.0)
    assert set(np.unique(values[1, :, 1])) <= {-1.0, 1.25, 3.5}
    np.testing.assert_allclose(values[1, :, 1].mean(), 1.25, atol=0.3)


def test_what_is_over_is_worth_what_was_earned():
    learner, actor = learner_and_actor()
    state = learner.env.initial_state(jax.random.key(0))
    rows = jnp.zeros(4)
    values = branch_values(
        learner,
        actor,
        type(state)(rows.astype(int), rows.astype(int)),
        Memory(rows - 2.0, rows + 1.0),
        ChoicePosition(rows + 1.0, rows, rows + 3.5, rows + 1.0),
        jnp.zeros(4, bool),
        jax.random.key(1),
    )
    np.testing.assert_allclose(values, -3.0)
