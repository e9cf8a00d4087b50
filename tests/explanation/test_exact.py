"""On exact plans the explanation is Theorem 2 itself: compared with all paths."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import downside as ds
from downside.exact import FiniteProblem
from downside.explanation.calibration import FAILS, HOLDS, NEARLY, UNKNOWN, _verdict
from downside.explanation.explain import make_source

from ..exact.enumeration import all_paths, mdps
from ..risk.strategies import weighted_cvars
from .paths import conditional, dual

PAPER = "0.7*cvar(0.4) + 0.3*cvar(0.8)"


def example1():
    """The Markov process of Example 1: x0, x1¹, x1², then states that pay 4, 8, 16 and 20."""
    probabilities = np.zeros((7, 1, 7))
    probabilities[0, 0, [1, 2]] = 0.6, 0.4
    probabilities[1, 0, [3, 5, 6]] = 0.5, 0.3, 0.2
    probabilities[2, 0, [3, 4, 6]] = 0.4, 0.3, 0.3
    probabilities[[3, 4, 5, 6], 0, 0] = 1.0
    rewards = np.array([[2.0], [4.0], [6.0], [4.0], [8.0], [16.0], [20.0]])
    return ds.FiniteMDP(probabilities, rewards, gamma=0.5, horizon=3)


@pytest.fixture(scope="module")
def paper_explanation():
    return ds.explain(ds.solve(example1(), PAPER, episodes=10), episodes=12, checks=50)


def test_example_1_of_the_paper_has_the_levels_and_weights_of_the_paper(paper_explanation):
    # Section 5: at x1¹ the levels are 0.5 and 0.867 with weights 0.729 and 0.271.
    second = [episode.steps[1] for episode in paper_explanation.episodes]
    risks = {int(step.observation[0]): step.risk for step in second}
    np.testing.assert_allclose(risks[1].levels, [0.5, 0.52 / 0.6], rtol=1e-9)
    # ξ is 0.5 / 0.4 = 1.25 and 0.867 / 0.8 = 1.083, in all 0.7 * 1.25 + 0.3 * 1.083 = 1.2.
    np.testing.assert_allclose(risks[1].weights, [0.875 / 1.2, 0.325 / 1.2], rtol=1e-9)
    # By hand: the worst 40% are 5 (0.30) and 10 of the 16% that return 6, and x1² has all of 6:
    # 0.10 of its 0.4; of the worst 80% it has 6, 7 (0.12) and 8... = 0.28 of 0.4.
    np.testing.assert_allclose(risks[2].levels, [0.25, 0.7], rtol=1e-9)
    for episode in paper_explanation.episodes:
        np.testing.assert_allclose(episode.steps[0].risk.levels, [0.4, 0.8], rtol=1e-9)


@pytest.mark.slow
@hypothesis.given(mdps(), weighted_cvars(), st.integers(0, 2**16))
@hypothesis.settings(max_examples=20)
def test_the_explanation_is_the_mean_of_xi_over_all_paths(mdp, risk, seed):
    plan = ds.solve(mdp, risk, episodes=2)
    explanation = ds.explain(plan, episode_seed=seed, episodes=2, checks=0)
    paths = all_paths(mdp, plan.policy)
    levels = np.asarray(explanation.steps[0].risk.start_levels)
    duals = [dual(paths, alpha) for alpha in levels]
    for episode in explanation.episodes:
        prefix = [(int(step.observation[0]), step.accumulated) for step in episode.steps]
        for step in episode.steps:
            wanted = [conditional(paths, xi, step.time, prefix) for xi in duals]
            np.testing.assert_allclose(step.risk.xi_per_level, wanted, atol=1e-9)
            np.testing.assert_allclose(step.risk.levels, levels * wanted, atol=1e-9)


@pytest.mark.slow
@hypothesis.given(mdps(horizons=(2, 3)), weighted_cvars())
@hypothesis.settings(max_examples=10)
def test_the_parts_of_an_exact_plan_add_up_to_the_whole(mdp, risk):
    plan = ds.solve(mdp, risk, episodes=2)
    assert isinstance(plan.problem, FiniteProblem)
    source = make_source(plan)
    start = source.start_returns([])
    whole = plan.risk(np.asarray(start.values), weights=np.asarray(start.probabilities))
    for time in range(plan.problem.horizon):
        later = plan.problem.later_returns(plan.policy, time)
        over = 1.0 - sum(state.probability for state in later)
        if over > 1e-12:
            continue  # those episodes count with their end; the next test has them
        total = 0.0
        for state in later:
            s, c = state.accumulated, state.discount_so_far
            here = ds.conditional_risk(risk, start, state.returns, s=s, c=c)
            total += state.probability * float(here.xi * (s + c * here.value))
        np.testing.assert_allclose(total, whole, atol=1e-9)


def test_the_plan_takes_the_action_that_its_own_conditional_measure_ranks_first():
    mdp = ds.FiniteMDP(
        [[[0.5, 0.5], [1.0, 0.0]], [[0.3, 0.7], [0.0, 1.0]]],
        [[[3.0, -2.0], [0.4, 0.4]], [[1.0, -1.0], [0.1, 0.1]]],
        gamma=0.9,
        horizon=3,
    )
    explanation = ds.explain(
        ds.solve(mdp, "0.5*mean + 0.5*cvar(0.4)", episodes=2), episodes=8, checks=0
    )
    for episode in explanation.episodes:
        for step in episode.steps[:-1]:
            assert step.best_action == step.action
            taken = step.action_values[step.actions.index(step.action)]
            np.testing.assert_allclose(taken, float(step.risk.value), atol=1e-9)


def test_an_exact_plan_is_calibrated_within_the_error_of_its_sample(paper_explanation):
    checks = paper_explanation.calibration
    assert paper_explanation.kind == "exact"
    assert checks.verdict == HOLDS
    assert checks.resolution == 0.0
    np.testing.assert_allclose(checks.xi[0], [1.0, 1.0], rtol=1e-12)
    assert "can be relied on" in checks.words
    # After the end the parts are what the episodes returned.
    assert checks.times[-1] == 3
    assert checks.running.tolist() == [1.0, 1.0, 1.0, 0.0]


def test_a_start_state_is_news_where_there_are_several():
    # From state 0 the return is surely 1, from state 1 it is -1 or 3: the worst half of all
    # outcomes is all of the -1 (1/4) and half of the ones (1/2): levels 0.5 and 0.5.
    mdp = ds.FiniteMDP(
        [[[1.0, 0.0]], [[0.5, 0.5]]],
        [[[1.0, 1.0]], [[-1.0, 3.0]]],
        start=[0.5, 0.5],
        gamma=1.0,
        horizon=1,
    )
    explanation = ds.explain(ds.solve(mdp, "cvar(0.5)", episodes=2), episodes=10, checks=0)
    for episode in explanation.episodes:
        np.testing.assert_allclose(episode.steps[0].risk.levels, [0.5])
    # The worst quarter is all of the -1: nothing of it can happen from state 0.
    explanation = ds.explain(ds.solve(mdp, "cvar(0.25)", episodes=2), episodes=10, checks=0)
    for episode in explanation.episodes:
        wanted = 0.0 if episode.steps[0].observation[0] == 0 else 0.5
        np.testing.assert_allclose(episode.steps[0].risk.levels, [wanted])


@pytest.mark.parametrize(
    ("gap", "allowed", "verdict"),
    [
        (0.05, 0.2, HOLDS),  # small, and chance could have made it
        (0.29, 0.4, HOLDS),
        (0.31, 0.4, UNKNOWN),  # chance could have made it, but it is large
        (0.08, 0.01, NEARLY),
        (0.28, 0.20, NEARLY),  # a little more than chance would
        (0.40, 0.30, UNKNOWN),
        (0.50, 0.30, FAILS),
        (0.20, 0.01, FAILS),
    ],
)
def test_few_episodes_do_not_make_a_large_gap_hold(gap, allowed, verdict):
    assert _verdict(gap, allowed, nearly=0.1) == verdict
