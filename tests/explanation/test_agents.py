"""Explanations of learned agents: episodes, distributions, and checks that a bad agent fails."""

import gymnasium as gym
import numpy as np
import pytest

import downside as ds
from downside.envs import GymnasiumEnv
from downside.explanation.calibration import FAILS, HOLDS
from downside.explanation.explain import make_source
from downside.explanation.sources import NOT_STATIC
from downside.reporting import make_section

from ..train.tiny import COMMON, ENV, SMALL, TINY, TWO

pytestmark = pytest.mark.slow  # the fixtures train agents, or studies run

MIXED = "0.5*mean + 0.5*cvar(0.4)"


@pytest.fixture(scope="module")
def agent():
    return ds.QRSRM(ENV, risk=MIXED, **TINY).learn(TWO)


@pytest.fixture(scope="module")
def explanation(agent):
    return ds.explain(agent, episode_seed=6, episodes=3, checks=100, returns="learned")


def test_an_explanation_is_theorem_2_on_the_learned_quantiles(agent, explanation):
    env = agent.wrap()
    observation, info = env.reset(seed=6)
    s, c, start = 0.0, 1.0, None
    for step in explanation.steps[:-1]:
        action, _ = agent.predict(observation, action_masks=info["action_mask"])
        assert step.action == action
        theta = agent.return_distribution(observation)[action]
        start = theta if start is None else start
        wanted = ds.conditional_risk(MIXED, start, theta, s=s, c=c)
        np.testing.assert_allclose(step.risk.levels, wanted.levels, atol=1e-6)
        np.testing.assert_allclose(step.risk.weights, wanted.weights, atol=1e-6)
        np.testing.assert_allclose(float(step.risk.value), float(wanted.value), atol=1e-6)
        np.testing.assert_allclose(step.observation, observation[:-2], rtol=1e-6)
        observation, reward, _, _, info = env.step(action)
        assert step.reward == pytest.approx(reward)
        s, c = s + c * reward, c * agent.settings.gamma
    assert explanation.episodes[0].total == pytest.approx(s)
    assert explanation.steps[-1].action is None
    assert explanation.steps[-1].actions == ()


def test_the_level_at_the_start_is_the_level_that_was_asked_for(explanation):
    np.testing.assert_allclose(explanation.steps[0].risk.levels, [0.4, 1.0])
    np.testing.assert_allclose(explanation.steps[0].risk.weights, [0.5, 0.5])


def test_only_actions_that_are_allowed_are_explained(explanation):
    for episode in explanation.episodes:
        for step in episode.steps[:-1]:
            held = step.named_observation["inventory"]
            trades = [float(ENV.trades[action]) for action in step.actions]
            assert all(abs(held + trade) <= 2.0 + 1e-5 for trade in trades)
            assert step.action in step.actions
            assert step.alternatives is not None
            assert step.alternatives.values.shape == (len(step.actions), 5)


def test_the_action_that_is_taken_has_the_value_of_the_step(explanation):
    for step in explanation.steps[:-1]:
        taken = step.action_values[step.actions.index(step.action)]
        np.testing.assert_allclose(taken, float(step.risk.value), rtol=1e-6)


def test_an_agent_that_hardly_learned_looks_bad(explanation):
    checks = explanation.calibration
    assert checks.verdict == FAILS
    assert "Do not rely on this explanation" in checks.words
    assert checks.episodes == 100


def test_simulated_distributions_of_the_same_agent_hold_and_its_choices_do_not(agent):
    simulated = ds.explain(agent, episode_seed=6, checks=300)
    assert simulated.kind == "simulated"
    checks = simulated.calibration
    assert checks is not None
    distributions = [checks.verdicts[name] for name in ("levels", "parts", "promise")]
    assert distributions == [HOLDS] * 3
    assert checks.verdicts["choices"] == FAILS
    assert "the agent does something else" in checks.words
    assert checks.predicted is not None
    assert "Its networks expect" in checks.words
    # The price moves by the noise of the seed alone.
    learned = ds.explain(agent, episode_seed=6, checks=0, returns="learned")
    for step, other in zip(simulated.steps, learned.steps, strict=True):
        price = other.named_observation["price"]
        assert step.named_observation["price"] == pytest.approx(price)
        assert step.action == other.action
        assert step.accumulated == pytest.approx(other.accumulated, rel=1e-5)


def test_a_simulated_level_is_the_share_of_futures_below_the_line(agent):
    explanation = ds.explain(agent, episode_seed=6, checks=0, returns="simulated")
    step = explanation.steps[1]
    line = float(np.asarray(step.risk.thresholds)[0])
    share = float(np.mean(np.asarray(step.total.values) < line))
    assert float(np.asarray(step.risk.levels)[0]) == pytest.approx(share, abs=2e-3)


def test_episodes_can_be_played_in_any_gymnasium_environment(agent, explanation):
    # Without a spec it cannot be copied: its episodes are played one after another.
    other = ds.explain(agent, env=GymnasiumEnv(core=ENV), episode_seed=6, episodes=3, checks=0)
    for episode, again in zip(explanation.episodes, other.episodes, strict=True):
        assert episode.total == pytest.approx(again.total)
        assert [step.action for step in episode.steps] == [step.action for step in again.steps]
    made = gym.make("downside/MeanReversion-v0", periods=3, num_trades=5, inventory_limit=2.0)
    other = ds.explain(agent, env=made, episode_seed=6, checks=0)
    assert other.episodes[0].total == pytest.approx(explanation.episodes[0].total)


@pytest.mark.long
def test_target_aware_and_memoryless_agents_are_explained_too():
    target = ds.QRCVaR(ENV, risk="cvar(0.5)", **TINY).learn(TWO)
    explanation = ds.explain(target, checks=20)
    assert len(explanation.steps) == 4
    assert list(explanation.steps[0].named_observation) == ["price", "inventory"]
    assert explanation.note == ""
    iterated = ds.QRiCVaR(ENV, risk="cvar(0.5)", **COMMON).learn(TWO)
    assert ds.explain(iterated, checks=0).note == NOT_STATIC
    mean = ds.QRDQN(ENV, **COMMON).learn(TWO)
    neutral = ds.explain(mean, checks=20)
    assert [float(np.asarray(step.risk.levels)[0]) for step in neutral.steps] == [1.0] * 4
    assert "nothing about that changes" in neutral.steps[1].words


def test_a_spectrum_has_many_levels_whose_weights_sum_to_1_and_bands_in_the_figure():
    mdp = ds.FiniteMDP(
        [[[0.5, 0.5]], [[0.4, 0.6]]], [[[3.0, -2.0]], [[1.0, -1.0]]], gamma=0.9, horizon=3
    )
    explanation = ds.explain(ds.solve(mdp, "exponential(2)", episodes=2), checks=0)
    for step in explanation.steps:
        np.testing.assert_allclose(np.sum(step.risk.weights), 1.0, rtol=1e-6)
    _, labels = explanation.plot().axes[3].get_legend_handles_labels()
    assert labels == ["worst 5%", "worst 5-20%", "worst 20-50%", "worst 50-100%", "the average"]


def test_the_figure_has_the_two_cdf_figures_the_level_and_the_weights(explanation):
    figure = explanation.plot(episode=1)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == [
        "Return still to come, $G_t$",
        "Total of the episode, $s_t + c_t G_t$",
        "Share of outcomes that matters from here",
        "What it weighs",
    ]


def test_rows_and_table_say_the_same(explanation):
    rows = explanation.rows()
    assert [row["t"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["price"] == 1.0
    assert len(list(explanation.table().columns)) == 9
    assert "3 episodes" in repr(explanation)
    assert rows[0]["words"] in explanation.words


def test_simulated_steps_are_shown_beside_lived_ones(agent, explanation):
    assert (explanation.timesteps, explanation.simulated_steps) == (TWO, agent.simulated_steps)
    text = f"It has learned from 64 environment steps and {agent.simulated_steps:,} simulated ones."
    assert explanation.experience == text
    assert text in explanation.words
    plan = ds.solve(ds.FiniteMDP([[[1.0]]], [[[1.0]]], gamma=1.0, horizon=1), "mean", episodes=2)
    assert ds.explain(plan, checks=0).experience == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"subject": 3}, "`subject` must be an agent or a plan, got 3"),
        ({"returns": "exact"}, '`returns` must be "learned" or "simulated" for an agent'),
        ({"episodes": 0}, "`episodes` must be a whole number of at least 1"),
        ({"checks": -1}, "`checks` must be a whole number of at least 0"),
    ],
)
def test_what_cannot_be_explained_is_refused(agent, arguments, message):
    given = {"subject": agent, **arguments}
    call = make_source if "subject" in arguments else ds.explain  # beartype refuses 3 before
    with pytest.raises((TypeError, ValueError), match=message):
        call(**given)


def test_an_untrained_agent_cannot_be_explained():
    with pytest.raises(RuntimeError, match="has not learned anything yet"):
        ds.explain(ds.QRSRM(ENV, risk="cvar(0.5)", **TINY))


def test_plans_on_a_grid_are_explained_by_simulation():
    plan = ds.solve("downside/AmericanPut-v0", "cvar(0.6)", gamma=1.0, refine=0.25, episodes=20_000)
    explanation = ds.explain(plan, episode_seed=1, checks=100)
    assert explanation.kind == "simulated"
    assert explanation.calibration is not None
    assert explanation.calibration.verdict == HOLDS
    assert {step.action_name for step in explanation.steps[:-1]} <= {"hold", "exercise"}
    with pytest.raises(ValueError, match="`env` must be left out for a plan"):
        ds.explain(plan, env="downside/AmericanPut-v0")


def test_an_agent_of_a_gymnasium_environment_has_an_explanation_and_a_section():
    agent = ds.QRSRM("CartPole-v1", risk="cvar(0.5)", num_envs=4, **SMALL)
    agent.learn(200)
    section = make_section(agent, explained_episodes=1, checks=8, episodes=8, episode_seed=2)
    explanation = section.explanation
    assert explanation.kind == "learned"
    assert explanation.steps[0].actions == (0, 1)
    assert explanation.steps[0].named_observation["observation 3"] == pytest.approx(
        explanation.steps[0].observation[3]
    )
    assert len(explanation.steps[0].observation) == 4  # not what the agent appends to it
    gamma = agent.settings.gamma
    earned = [gamma**step.time * (step.reward or 0.0) for step in explanation.steps]
    assert explanation.episodes[0].total == pytest.approx(sum(earned))
    assert section.about.startswith(
        "CartPole-v1; QR-SRM, learned from 200 environment steps and 0 simulated ones, seed 0"
    )
    with pytest.raises(ValueError, match="only in an environment written in JAX"):
        ds.explain(agent, returns="simulated")
