"""Explanations of actors: simulated futures, alternatives of continuous actions, checks."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

import downside as ds
from downside.envs import MeanReversion
from downside.explanation.calibration import FAILS, HOLDS
from downside.explanation.names import names_of
from downside.reporting import make_section, render
from downside.reporting.data import section_data

from ..envs.steered import Steered

pytestmark = pytest.mark.slow  # the fixtures train agents, or studies run

TINY = {
    "updates": 4,
    "batch_size": 16,
    "outer_interval": 2,
    "outer_episodes": 32,
    "hidden_sizes": (4,),
}
ENV = MeanReversion(periods=3, inventory_limit=2.0, continuous=True)


@pytest.fixture(scope="module")
def agent():
    # The last policy: in so few episodes doing nothing may look better, and would be kept.
    return ds.PGSRM(ENV, risk="cvar(0.5)", keep_best=False, **TINY).learn()


@pytest.fixture(scope="module")
def explanation(agent):
    return ds.explain(agent, episode_seed=3, episodes=2, checks=40)


@pytest.fixture(scope="module")
def steered():
    return ds.PGSRM(Steered(), risk="mean", **TINY).learn()


def test_the_futures_of_an_actor_are_simulated(explanation):
    assert explanation.kind == "simulated"
    assert explanation.calibration.predicted is None
    assert len(explanation.steps) == 4
    np.testing.assert_allclose(explanation.steps[0].risk.levels, [0.5], atol=0.03)


def test_a_continuous_action_is_explained_as_what_the_environment_does(explanation):
    for episode in explanation.episodes:
        steps = episode.steps
        for step, after in itertools.pairwise(steps):
            (trade,) = step.action
            held = step.named_observation["inventory"]
            assert after.named_observation["inventory"] == pytest.approx(held + trade, abs=1e-5)
            assert step.action in step.actions
            low, high = step.actions[0][0], step.actions[-1][0]
            assert low == pytest.approx(max(-2.0, -2.0 - held), abs=1e-5)
            assert high == pytest.approx(min(2.0, 2.0 - held), abs=1e-5)
            word = "buy" if trade > 0 else "sell"
            assert step.action_name.startswith(word) or abs(trade) < 5e-4
        assert steps[-1].action is None


def test_the_action_that_is_taken_has_the_value_of_the_step_under_common_noise(agent):
    explanation = ds.explain(agent, episode_seed=3, checks=0)
    for step in explanation.steps[:-1]:
        taken = step.action_values[step.actions.index(step.action)]
        assert taken == pytest.approx(float(step.risk.value), abs=0.15)


def test_rows_words_and_figure_take_continuous_actions(explanation):
    rows = json.loads(json.dumps(explanation.rows(), allow_nan=False))
    assert rows[0]["action"] == pytest.approx(list(explanation.steps[0].action))
    assert rows[-1]["action"] is None
    assert explanation.plot().axes
    assert len(explanation.table().rows) == 4


def test_the_best_action_of_two_coordinates_is_known(steered):
    # (a, b) pays 10 a - b²: the highest legal a, and b = 0, whatever the actor has learned.
    explanation: Any = ds.explain(steered, checks=20)
    step = explanation.steps[1]
    a, b = step.action
    assert {action[1] for action in step.actions if action[0] != a} == {b}
    assert {action[0] for action in step.actions if action[1] != b} == {a}
    assert max(action[0] for action in step.actions) == pytest.approx(0.75)
    best = step.actions[int(np.argmax(step.action_utilities))]
    assert best in ((pytest.approx(0.75), pytest.approx(b)), (pytest.approx(a), pytest.approx(0.0)))
    # In each of three steps b² or 10 times what is missing of a is there to be gained.
    assert explanation.calibration.verdicts["choices"] == FAILS
    assert explanation.calibration.choices.gain > 10.0
    assert "the agent does something else" in explanation.calibration.words


def test_an_actor_that_hardly_learned_looks_bad(explanation):
    checks = explanation.calibration
    assert checks.verdicts["promise"] == HOLDS
    assert checks.verdict == FAILS
    assert "would add" in checks.words


def test_the_page_has_vectors_and_no_names_for_them(explanation, steered):
    section = make_section(steered, explained_episodes=1, checks=0, episodes=50)
    data = section_data(section, ["mean"], 100)
    step = data["episodes"][0]["steps"][0]
    assert step["acts"][step["taken"]] == step["a"]
    assert len(step["a"]) == 2
    assert len(step["worth"]) == len(step["acts"])
    assert data["actionNames"] == {}
    json.dumps(data, allow_nan=False)
    assert "distributions are simulated" in render([section])
    del explanation


def test_learned_distributions_are_for_agents_that_have_them(agent):
    with pytest.raises(ValueError, match='`returns` must be "simulated" for an agent of PG-SRM'):
        ds.explain(agent, returns="learned")


def test_an_environment_may_name_what_it_shows_and_does():
    class Named(Steered):
        observation_names = ("time", "sum")
        action_names = ("speed", "angle")

    names = names_of(Named())
    assert names.observation(np.array([1.0, 2.5])) == {"time": 1.0, "sum": 2.5}
    assert names.action((0.5, 2.0)) == "speed 0.500, angle 2.00"
    assert names.coordinates == ("speed", "angle")
    assert names_of(Steered()).action((0.5, 2.0)) == "(0.500, 2.00)"
