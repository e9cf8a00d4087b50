"""Stories of learned agents: the walk, the distributions, and checks that a bad agent fails."""

import gymnasium as gym
import numpy as np
import pytest
from matplotlib.figure import Figure

import downside as ds
from downside.envs import GymnasiumFace
from downside.explanation.calibration import FAILS, HOLDS
from downside.explanation.moments import walk
from downside.explanation.sources import NOT_STATIC
from downside.explanation.tell import make_source

from ..envs.scripted import GO_ON, TERMINATE, TRUNCATE, Scripted
from ..train.test_hosted import SMALL
from ..train.tiny import COMMON, ENV, TINY, TWO

MIXED = "0.5*mean + 0.5*cvar(0.4)"


@pytest.fixture(scope="module")
def agent():
    return ds.QRSRM(ENV, risk=MIXED, **TINY).learn(TWO)


@pytest.fixture(scope="module")
def story(agent):
    return ds.explain(agent, episode_seed=6, episodes=3, checks=100)


def test_the_story_is_theorem_2_on_the_learned_quantiles(agent, story):
    env = agent.wrap()
    seen, info = env.reset(seed=6)
    s, c, start = 0.0, 1.0, None
    for step in story.steps[:-1]:
        action, _ = agent.predict(seen, action_masks=info["action_mask"])
        assert step.action == action
        theta = agent.return_distribution(seen)[action]
        start = theta if start is None else start
        wanted = ds.conditional_risk(MIXED, start, theta, s=s, c=c)
        np.testing.assert_allclose(step.risk.levels, wanted.levels, atol=1e-6)
        np.testing.assert_allclose(step.risk.weights, wanted.weights, atol=1e-6)
        np.testing.assert_allclose(float(step.risk.value), float(wanted.value), atol=1e-6)
        np.testing.assert_allclose(step.observation, seen[:-2], rtol=1e-6)
        seen, reward, _, _, info = env.step(action)
        assert step.reward == pytest.approx(reward)
        s, c = s + c * reward, c * agent.settings.gamma
    assert story.episodes[0].total == pytest.approx(s)
    assert story.steps[-1].action is None
    assert story.steps[-1].actions == ()


def test_the_level_at_the_start_is_the_level_that_was_asked_for(story):
    np.testing.assert_allclose(story.steps[0].risk.levels, [0.4, 1.0])
    np.testing.assert_allclose(story.steps[0].risk.weights, [0.5, 0.5])


def test_only_actions_that_are_allowed_are_told(story):
    for episode in story.episodes:
        for step in episode.steps[:-1]:
            held = step.seen["inventory"]
            trades = [float(ENV.trades[action]) for action in step.actions]
            assert all(abs(held + trade) <= 2.0 + 1e-5 for trade in trades)
            assert step.action in step.actions
            assert step.alternatives is not None
            assert step.alternatives.values.shape == (len(step.actions), 5)


def test_the_action_that_is_taken_has_the_value_of_the_step(story):
    for step in story.steps[:-1]:
        taken = step.action_values[step.actions.index(step.action)]
        np.testing.assert_allclose(taken, float(step.risk.value), rtol=1e-6)


def test_an_agent_that_hardly_learned_looks_bad(story):
    checks = story.calibration
    assert checks.verdict == FAILS
    assert "Do not rely on this explanation" in checks.words
    assert checks.episodes == 100


def test_what_the_same_agent_can_really_expect_holds(agent):
    simulated = ds.explain(agent, episode_seed=6, checks=300, returns="simulated")
    assert simulated.kind == "simulated"
    assert simulated.calibration is not None
    assert simulated.calibration.verdict == HOLDS
    # The price moves by the noise of the seed alone.
    learned = ds.explain(agent, episode_seed=6, checks=0)
    for one, other in zip(simulated.steps, learned.steps, strict=True):
        assert one.seen["price"] == pytest.approx(other.seen["price"])
        assert one.action == other.action
        assert one.accumulated == pytest.approx(other.accumulated, rel=1e-5)


def test_a_simulated_level_is_the_share_of_futures_below_the_line(agent):
    story = ds.explain(agent, episode_seed=6, checks=0, returns="simulated")
    step = story.steps[1]
    line = float(np.asarray(step.risk.thresholds)[0])
    share = float(np.mean(np.asarray(step.total.values) < line))
    assert float(np.asarray(step.risk.levels)[0]) == pytest.approx(share, abs=2e-3)


def test_any_gymnasium_environment_can_be_walked_through(agent, story):
    # A face without a spec cannot be copied: its episodes are walked one after another.
    other = ds.explain(agent, env=GymnasiumFace(core=ENV), episode_seed=6, episodes=3, checks=0)
    for one, two in zip(story.episodes, other.episodes, strict=True):
        assert one.total == pytest.approx(two.total)
        assert [step.action for step in one.steps] == [step.action for step in two.steps]
    made = gym.make("downside/MeanReversion-v0", periods=3, num_trades=5, inventory_limit=2.0)
    other = ds.explain(agent, env=made, episode_seed=6, checks=0)
    assert other.episodes[0].total == pytest.approx(story.episodes[0].total)


@pytest.mark.long
def test_target_aware_and_memoryless_agents_have_stories_too():
    target = ds.QRCVaR(ENV, risk="cvar(0.5)", **TINY).learn(TWO)
    story = ds.explain(target, checks=20)
    assert len(story.steps) == 4
    assert list(story.steps[0].seen) == ["price", "inventory"]
    assert story.note == ""
    iterated = ds.QRiCVaR(ENV, risk="cvar(0.5)", **COMMON).learn(TWO)
    assert ds.explain(iterated, checks=0).note == NOT_STATIC
    mean = ds.QRDQN(ENV, **COMMON).learn(TWO)
    told = ds.explain(mean, checks=20)
    assert [float(np.asarray(step.risk.levels)[0]) for step in told.steps] == [1.0] * 4
    assert "nothing about that changes" in told.steps[1].words


@pytest.mark.long
def test_a_spectrum_has_a_level_for_each_quantile_and_bands_in_the_picture():
    agent = ds.QRSRM(
        ENV,
        risk="exponential(2)",
        **TINY,
    ).learn(TWO)
    story = ds.explain(agent, checks=20)
    for step in story.steps:
        np.testing.assert_allclose(np.sum(step.risk.weights), 1.0, rtol=1e-6)
    assert isinstance(story.plot(), Figure)


def test_a_truncated_episode_still_has_a_future_and_a_terminated_one_has_none():
    core = Scripted()
    ends = {TERMINATE: None, TRUNCATE: GO_ON}
    for last, at_the_end in ends.items():
        plan = iter([GO_ON, last, GO_ON, GO_ON])
        (episode,) = walk(
            [GymnasiumFace(core=core)],
            lambda _, plan=plan: np.array([next(plan)]),
            lambda env, seen: seen,
            [0],
            gamma=0.5,
            memory=0,
        )
        # Action a at time t pays t + 1 + 10 a.
        wanted = [1.0, 2.0 + 10.0 * last, None]
        assert [one.reward for one in episode] == wanted
        assert [one.discount_so_far for one in episode] == [1.0, 0.5, 0.25]
        assert episode[-1].accumulated == 1.0 + 0.5 * (2.0 + 10.0 * last)
        assert episode[-1].action == at_the_end


def test_the_picture_has_the_two_cdf_figures_the_level_and_the_weights(story):
    figure = story.plot(episode=1)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == [
        "Return still to come, $G_t$",
        "Total of the episode, $s_t + c_t G_t$",
        "Share of outcomes that matters from here",
        "What it weighs",
    ]


def test_rows_and_table_say_the_same(story):
    rows = story.rows()
    assert [row["t"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["price"] == 1.0
    assert len(list(story.table().columns)) == 9
    assert "3 episodes" in repr(story)
    assert rows[0]["words"] in story.words


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
    call = make_source if "subject" in arguments else ds.explain  # beartype refuses 3 on its own
    with pytest.raises((TypeError, ValueError), match=message):
        call(**given)


def test_an_untrained_agent_has_no_story():
    with pytest.raises(RuntimeError, match="has not learned anything yet"):
        ds.explain(ds.QRSRM(ENV, risk="cvar(0.5)", **TINY))


def test_plans_on_a_grid_are_explained_by_simulation():
    plan = ds.solve("downside/AmericanPut-v0", "cvar(0.6)", gamma=1.0, refine=0.25, episodes=20_000)
    story = ds.explain(plan, episode_seed=1, checks=100)
    assert story.kind == "simulated"
    assert story.calibration is not None
    assert story.calibration.verdict == HOLDS
    assert {step.action_name for step in story.steps[:-1]} <= {"hold", "exercise"}
    with pytest.raises(ValueError, match="`env` must be left out for a plan"):
        ds.explain(plan, env="downside/AmericanPut-v0")


def test_an_agent_of_a_foreign_environment_has_a_story_and_a_chapter():
    from downside.reporting import make_chapter

    agent = ds.QRSRM("CartPole-v1", risk="cvar(0.5)", num_envs=4, **SMALL)
    agent.learn(200)
    chapter = make_chapter(agent, told=1, checks=8, episodes=8, episode_seed=2)
    story = chapter.story
    assert story.kind == "learned"
    assert story.steps[0].actions == (0, 1)
    assert story.steps[0].seen["observation 3"] == pytest.approx(story.steps[0].observation[3])
    assert len(story.steps[0].observation) == 4  # not what the agent appends to it
    gamma = agent.settings.gamma
    earned = [gamma**step.time * (step.reward or 0.0) for step in story.steps]
    assert story.episodes[0].total == pytest.approx(sum(earned))
    assert chapter.about.startswith("CartPole-v1; QR-SRM")
    with pytest.raises(ValueError, match="only in an environment written in JAX"):
        ds.explain(agent, returns="simulated")
