"""A dial as an agent: turned, saved, loaded, compared, and what it refuses."""

import numpy as np
import pytest

import downside as ds
from downside.envs import MeanReversion

from ..agents.gambles import Wait
from .tiny import ENV

pytestmark = pytest.mark.slow  # what all tests look at takes long to make

TINY = {
    "hidden_sizes": (4,),
    "batch_size": 16,
    "outer_interval": 2,
    "outer_episodes": 108,
    "updates": 4,
}
MEASURES = ["mean", "cvar(0.05)", "0.5*mean + 0.5*cvar(0.2)"]


@pytest.fixture(scope="module", autouse=True)
def few_episodes():
    """The search for a target in few episodes."""
    from downside.train import dial

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dial, "_EPISODES", 0.002)
        yield


@pytest.fixture(scope="module")
def dial(few_episodes):
    return ds.PGSRM(ENV, risk="dial", seed=1, **TINY).learn()


@pytest.mark.parametrize("measure", MEASURES)
def test_an_agent_of_a_dial_is_an_agent_for_its_measure(dial, measure):
    agent = dial.at(measure)
    assert agent.risk == ds.parse(measure)
    assert dial.risk == ds.parse("0.5*mean + 0.5*cvar(0.1)")
    assert ds.evaluate(agent, episodes=100).value(measure) < np.inf
    observation, _ = agent.wrap().reset(seed=0)
    assert agent.predict(observation)[0] in range(5)
    assert agent.utility is not None


def test_a_target_is_searched_once_and_is_the_best_of_the_search(dial):
    target = dial.at("cvar(0.3)").targets["cvar(0.3)"]
    assert dial.at("cvar(0.3)").targets["cvar(0.3)"] is target
    agent = dial.at("cvar(0.3)")
    assert float(agent.outer_variable.position.target) == pytest.approx(target.target, rel=1e-6)
    from downside.train import dial as search

    episodes = round(search._EPISODES * 100_000)
    achieved = agent.risk(agent.simulate_returns(episodes, search._SEED))
    assert float(achieved) == pytest.approx(target.value, rel=1e-6)


def test_a_saved_dial_stands_where_it_stood_and_can_be_turned(tmp_path, dial):
    agent = dial.at("cvar(0.05)")
    loaded = ds.load(agent.save(tmp_path / "dial"), ENV)
    assert loaded.risk == agent.risk
    assert loaded.family == dial.family
    assert loaded.targets == agent.targets
    np.testing.assert_array_equal(
        loaded.simulate_returns(50, seed=3), agent.simulate_returns(50, seed=3)
    )
    np.testing.assert_array_equal(
        loaded.at("mean").simulate_returns(50, seed=3), dial.at("mean").simulate_returns(50, seed=3)
    )


def test_training_goes_on_to_the_same_dial(tmp_path):
    whole = ds.PGSRM(ENV, risk=ds.Dial((0.05, 1.0)), **TINY).learn()
    part = ds.PGSRM(ENV, risk=ds.Dial((0.05, 1.0)), **TINY)
    for _ in part.training():
        break
    resumed = ds.load(part.save(tmp_path / "part"), ENV).resume()
    np.testing.assert_array_equal(
        resumed.simulate_returns(50, seed=3), whole.simulate_returns(50, seed=3)
    )


@pytest.mark.parametrize(
    "env", [MeanReversion(periods=3, continuous=True), Wait()], ids=["box", "unordered"]
)
def test_actions_may_be_continuous_or_unordered(env, tmp_path):
    dial = ds.PGSRM(env, risk="dial", **TINY).learn()
    returns = dial.at("cvar(0.2)").simulate_returns(50, seed=0)
    assert np.isfinite(returns).all()
    loaded = ds.load(dial.save(tmp_path / "dial"), env)
    np.testing.assert_array_equal(loaded.at("cvar(0.2)").simulate_returns(50, seed=0), returns)


def test_the_memory_of_an_episode_goes_on_when_the_dial_is_turned(dial):
    bold, cautious = dial.at("mean"), dial.at("cvar(0.05)")
    env = bold.wrap()
    observation, _ = env.reset(seed=0)
    observation, reward, *_ = env.step(bold.predict(observation)[0])
    # What is appended is (s, c), whatever the measure: s is the reward, c the discount.
    np.testing.assert_allclose(observation[-2:], [reward, 0.99], rtol=1e-5)
    assert cautious.predict(observation)[0] in range(5)


def test_measures_outside_are_refused(dial):
    with pytest.raises(ValueError, match=r"got exponential\(4\).*nearest one is"):
        dial.at("exponential(4)")
    plain = ds.PGSRM(ENV, risk="cvar(0.5)", **TINY)
    with pytest.raises(TypeError, match=r"`at` needs an agent that was trained for a dial"):
        plain.at("cvar(0.5)")
    with pytest.raises(ValueError, match=r"`risk` must be one measure for QRSRM, got 'dial'"):
        ds.QRSRM(ENV, risk="dial")
    with pytest.raises(RuntimeError, match="call `learn` first"):
        ds.PGSRM(ENV, risk="dial", **TINY).at("mean")
    with pytest.raises(ValueError, match=r"`outer_episodes` must be at least 54 for a dial"):
        ds.PGSRM(ENV, risk="dial", **{**TINY, "outer_episodes": 50}).learn()


@pytest.mark.long
def test_dials_that_are_trained_together_are_those_trained_alone(dial):
    (together,) = ds.train_many(
        ENV, risks=["dial"], seeds=[1], agent=ds.PGSRM, engine="vmap", **TINY
    )
    np.testing.assert_allclose(
        together.at("mean").simulate_returns(50, seed=3),
        dial.at("mean").simulate_returns(50, seed=3),
        rtol=1e-4,
    )


def test_the_explanation_says_what_a_turn_changes(dial):
    agent = dial.at("mean")
    turned = ds.explain(agent, episode_seed=4, changes={1: "cvar(0.05)", 2: "mean"})
    plain = ds.explain(agent, episode_seed=4, checks=0)
    cautious = ds.explain(dial.at("cvar(0.05)"), episode_seed=4, checks=0)
    steps = turned.steps
    assert len(steps) == len(plain.steps) == 4
    # The same noise and the same first action: what was earned when the measure changes is kept.
    assert steps[1].accumulated == plain.steps[1].accumulated
    assert steps[0].words == plain.steps[0].words
    assert "the measure changes from mean to cvar(0.05)" in steps[1].words
    assert "A total below" in steps[1].words
    assert "There is no line any more" in steps[2].words
    # From there on it is the other policy, in the state that the first one has left behind.
    np.testing.assert_allclose(steps[1].risk.start_levels, cautious.steps[1].risk.start_levels)
    assert "then cvar(0.05) from step 1, mean from step 2" in turned.label
    with pytest.raises(ValueError, match=r"`changes` must have whole numbers >= 1 as steps, got 0"):
        ds.explain(agent, changes={0: "mean"})


def test_long_episodes_are_refused():
    with pytest.raises(ValueError, match=r"`longest_episode` must be at least 9 for a dial"):
        ds.PGSRM(
            MeanReversion(periods=9, continuous=True),
            risk="dial",
            longest_episode=4,
            segment_steps=2,
            **TINY,
        ).learn()


def test_targets_are_those_of_the_policy(dial, tmp_path):
    agent = ds.load(dial.at("cvar(0.2)").save(tmp_path / "dial"), ENV)
    assert "cvar(0.2)" in agent.targets
    agent.resume()  # there is nothing left to do
    assert "cvar(0.2)" in agent.targets
    agent.learn()
    assert not agent.targets
    assert agent.risk == ds.CVaR(0.2)


def test_it_says_where_it_stands(dial):
    assert "risk='cvar(0.2)' of dial(0.01, 1)" in repr(dial.at("cvar(0.2)"))
