"""Each algorithm's memory, score and outer step, by hand."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents import (
    DQN,
    SRM,
    BranchedTransition,
    CandidateReturns,
    GymnasiumSettings,
    ICVaR,
    ShiftedUtility,
    SimulatorSettings,
    StaticCVaR,
)
from downside.agents.algorithm import start_distribution
from downside.agents.qrsrm import refined_maximum
from downside.envs import Memory, MemoryAware
from downside.risk import CVaR, CVaRMixture, Exponential, Utility, parse

from ..envs.scripted import GO_ON, Scripted

SETTINGS = SimulatorSettings(gamma=0.5, quantiles=4, shifts=3, shift_span=0.4)
HIDING = GymnasiumSettings(gamma=0.5, quantiles=4, hide_memory_until_risk=True, critic="quantiles")
NOTHING = jnp.zeros(())
QUANTILES = jnp.array([[4.0, -2.0, 0.0, 2.0], [1.0, 1.0, 1.0, 0.0]])


def number(value):
    return jnp.asarray(value, float)


def memory(accumulated, discount_so_far):
    return Memory(number(accumulated), number(discount_so_far))


def srm(risk) -> Any:
    return SRM.make(parse(risk), SETTINGS)


def shifted(knots, drops, location, linear=0.0):
    utility = Utility(jnp.asarray(knots), jnp.asarray(drops), linear=number(linear))
    return ShiftedUtility(utility, number(location))


def unused(outer):
    raise AssertionError("the networks need not be asked")


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "outer", "expected"),
    [
        # Rewards 1 and 2, gamma = 0.5: s = 1 + 0.5 * 2 and c = 0.25; b = ((3 - 1)/0.5 - 2)/0.5.
        (srm("cvar(0.5)"), shifted([0.0], [2.0], 7.0), [2.0, 0.25]),
        (StaticCVaR.make(CVaR(0.5), SETTINGS), number(3.0), [4.0]),
        (DQN.make(ds.Mean(), SETTINGS), NOTHING, []),
        (ICVaR.make(CVaR(0.5), SETTINGS), NOTHING, []),
    ],
    ids=["QR-SRM", "QR-CVaR", "QR-DQN", "QR-iCVaR"],
)
def test_the_wrapped_environment_shows_the_memory_input(algorithm, outer, expected):
    inputs = algorithm.memory_input(outer)
    env: Any = MemoryAware(Scripted(), inputs, algorithm.gamma)
    state = env.initial_state(jax.random.key(0))
    for _ in range(2):
        state = env.transition(state, GO_ON, jnp.zeros(())).state
    observation = env.observe(state)
    assert observation.shape == env.observation_space.shape
    np.testing.assert_allclose(observation[1:], expected)
    np.testing.assert_allclose(np.ravel(inputs.show(memory(2.0, 0.25))), expected)


@pytest.mark.parametrize(
    ("algorithm", "outer", "before", "after"),
    [
        # s = 1 and s' = 2, with 0.75 more of both; relative to l = 7.
        (srm("cvar(0.5)"), shifted([0.0], [2.0], 7.0), [9, -5.25, 0.5], [8, -4.25, 0.25]),
        # b = (3 - 1.75) / 0.5 and b' = (3 - 2.75) / 0.25.
        (StaticCVaR.make(CVaR(0.5), SETTINGS), number(3.0), [9, 2.5], [8, 1]),
        (DQN.make(ds.Mean(), SETTINGS), NOTHING, [9], [8]),
    ],
    ids=["QR-SRM", "QR-CVaR", "QR-DQN"],
)
def test_relabelling_a_transition_moves_what_the_networks_see_before_and_after(
    algorithm, outer, before, after
):
    transition = BranchedTransition(
        observation=jnp.array([9.0]),
        memory=memory(1.0, 0.5),
        actions=jnp.array([0]),
        weights=jnp.ones(1),
        rewards=jnp.array([[2.0]]),
        next_observations=jnp.array([[[8.0]]]),
        next_memory=Memory(jnp.array([[2.0]]), jnp.array([[0.25]])),
        next_masks=jnp.ones((1, 1, 2), bool),
        terminated=jnp.zeros((1, 1), bool),
        discounts=jnp.full((1, 1), 0.5),
    ).relabel(number(0.75))
    got = algorithm.network_input(transition.observation, transition.memory, outer)
    np.testing.assert_allclose(got, before)
    later = Memory(*(numbers[0, 0] for numbers in transition.next_memory))
    got = algorithm.network_input(transition.next_observations[0, 0], later, outer)
    np.testing.assert_allclose(got, after)


def test_a_hidden_memory_is_shown_once_h_bends():
    hiding = SRM.make(CVaR(0.5), HIDING)
    observation, remembered = jnp.array([9.0]), memory(1.0, 0.5)
    line, bent = hiding.initial_outer(jnp.zeros(2)), shifted([0.0], [2.0], 7.0)
    np.testing.assert_allclose(hiding.network_input(observation, remembered, line), [9, 0, 0])
    np.testing.assert_allclose(hiding.network_input(observation, remembered, bent), [9, -6, 0.5])
    open_book = srm("cvar(0.5)")
    assert (hiding.inputs_hidden_at_first, open_book.inputs_hidden_at_first) == (2, 0)
    np.testing.assert_allclose(open_book.network_input(observation, remembered, line), [9, 1, 0.5])
    # For the mean h stays a line, so that nothing is ever shown.
    mean = SRM.make(ds.Mean(), HIDING)
    after = mean.learned_outer_step(line, jnp.arange(4.0), unused, 1.0)
    np.testing.assert_allclose(mean.network_input(observation, remembered, after), [9, 0, 0])


def test_while_its_memory_is_hidden_an_agent_scores_by_the_mean():
    hiding: Any = SRM.make(CVaR(0.5), HIDING)
    remembered = memory(2.0, 0.5)
    line, bent = hiding.initial_outer(jnp.zeros(2)), shifted([0.0], [2.0], 3.0)
    np.testing.assert_allclose(hiding.quantile_scores(QUANTILES, remembered, line), [1.0, 0.75])
    expected = srm("cvar(0.5)").quantile_scores(QUANTILES, remembered, bent)
    np.testing.assert_allclose(hiding.quantile_scores(QUANTILES, remembered, bent), expected)


def test_a_little_of_the_mean_breaks_ties():
    # CVaR at 0.5 of 0, 1, 2, 3: h(z) = 1 + 2 min(z - 1, 0) in the quantile 1 (or any up to 2). A
    # tenth of it is replaced by z: slopes 0.9 * 2 + 0.1 below and 0.1 above.
    settings = dataclasses.replace(SETTINGS, mean_weight=0.1)
    algorithm = SRM.make(CVaR(0.5), settings)
    outer = algorithm.initial_outer(jnp.zeros(2))
    after = algorithm.learned_outer_step(outer, jnp.arange(4.0), unused, 1.0)
    h = after.absolute()
    knot = float(h.knots[0])
    assert 1.0 <= knot <= 2.0
    points = jnp.array([knot - 2.0, knot - 1.0, knot, knot + 1.0, knot + 2.0])
    np.testing.assert_allclose(jnp.diff(h(points)), [1.9, 1.9, 0.1, 0.1], rtol=1e-5)
    np.testing.assert_allclose(h(jnp.array(knot)), knot, rtol=1e-5)
    # Of the mean there is nothing to replace, and no rounding in it.
    mean = SRM.make(ds.Mean(), settings)
    outer = mean.initial_outer(jnp.zeros(2))
    after = mean.learned_outer_step(outer, jnp.arange(4.0), unused, 1.0)
    assert float(after.utility.linear) == 1.0


# --- score ------------------------------------------------------------------------------------


def test_quantiles_are_scored_by_the_expected_utility():
    # u(z) = 2 min(z, 0) and l = 3; s = 2, c = 0.5: z = s - l + c theta = -1 + 0.5 theta:
    # (1, -2, -1, 0) -> (0, -4, -2, 0) / 4; (-0.5, -0.5, -0.5, -1) -> (-1, -1, -1, -2) / 4.
    outer = shifted([0.0], [2.0], 3.0)
    scores = srm("cvar(0.5)").quantile_scores(QUANTILES, memory(2.0, 0.5), outer)
    np.testing.assert_allclose(scores, [-1.5, -1.25])


def test_quantiles_are_scored_by_the_shortfall():
    # b = (2.5 - 2)/0.5 = 1: (0, 3, 1, 0) / 4 and (0, 0, 0, 1) / 4 are missing, in units of
    # alpha = 0.5.
    algorithm: Any = StaticCVaR.make(CVaR(0.5), SETTINGS)
    scores = algorithm.quantile_scores(QUANTILES, memory(2.0, 0.5), number(2.5))
    np.testing.assert_allclose(scores, [-2.0, -0.5])


def test_quantiles_are_scored_by_the_mean_and_by_the_measure():
    remembered = memory(9.0, 0.25)  # it makes no difference
    neutral: Any = DQN.make(ds.Mean(), SETTINGS)
    mean = neutral.quantile_scores(QUANTILES, remembered, NOTHING)
    np.testing.assert_allclose(mean, [1.0, 0.75])
    # The worst half: (-2 + 0) / 2 and (0 + 1) / 2.
    cvar = ICVaR.make(CVaR(0.5), SETTINGS).quantile_scores(QUANTILES, remembered, NOTHING)
    np.testing.assert_allclose(cvar, [-1.0, 0.5])


def test_the_expected_utility_is_handed_back_and_the_utility_paid_at_the_end():
    # l = 3, s' = 2.5: u(-0.5) = -1.
    algorithm, outer = srm("cvar(0.5)"), shifted([0.0], [2.0], 3.0)
    after, score = memory(2.5, 0.5), number(0.25)
    assert algorithm.critic_target(after, score, jnp.array(False), 0.5, outer) == 0.25
    assert algorithm.critic_target(after, score, jnp.array(True), 0.5, outer) == -1.0


def test_the_shortfall_is_discounted_and_what_is_missing_counts_at_the_end():
    # gamma = 0.5: 0.5 * -4 on the way; at the end b' = (2 - 1.25)/0.25 = 3, -0.5 * 3 / 0.5.
    algorithm: Any = StaticCVaR.make(CVaR(0.5), SETTINGS)
    after, score, outer = memory(1.25, 0.25), number(-4.0), number(2.0)
    assert algorithm.critic_target(after, score, jnp.array(False), 0.5, outer) == -2.0
    assert algorithm.critic_target(after, score, jnp.array(True), 0.5, outer) == -3.0


def test_an_anchored_score_is_that_of_an_episode_that_is_over_and_what_the_actions_add():
    # l = 3, s = 2.5, c = 0.25: u(-0.5) = -1, and a quarter of (4, -8).
    remembered, added = memory(2.5, 0.25), jnp.array([4.0, -8.0])
    got = srm("cvar(0.5)").anchored(added, remembered, shifted([0.0], [2.0], 3.0))
    np.testing.assert_allclose(got, [0.0, -3.0])
    # b = (3.25 - 2.5)/0.25 = 3 is missing: -3 / 0.5; nothing is missing where b = -3.
    static: Any = StaticCVaR.make(CVaR(0.5), SETTINGS)
    for target, expected in ((3.25, [-2.0, -14.0]), (1.75, [4.0, -8.0])):
        np.testing.assert_allclose(static.anchored(added, remembered, number(target)), expected)
    plain: Any = DQN.make(ds.Mean(), SETTINGS)
    np.testing.assert_allclose(plain.anchored(added, remembered, NOTHING), added)


@pytest.mark.parametrize("algorithm", [DQN, ICVaR])
def test_a_score_without_a_recursion_says_so(algorithm):
    made = algorithm.make(ds.Mean(), SETTINGS)
    with pytest.raises(TypeError, match=r"QR-.* obeys no recursion: use critic='quantiles'"):
        made.critic_target(memory(0.0, 1.0), number(0.0), jnp.array(False), 0.5, NOTHING)


def test_a_score_at_the_start_stands_for_a_value():
    # l + score; b + score = 3 - 0.5, whatever alpha is: it is in the score; the score itself.
    assert srm("cvar(0.5)").predicted_value(number(-0.5), shifted([0.0], [2.0], 3.0)) == 2.5
    static: Any = StaticCVaR.make(CVaR(0.25), SETTINGS)
    assert static.predicted_value(number(-0.5), number(3.0)) == 2.5
    neutral: Any = StaticCVaR.make(CVaR(1.0), SETTINGS, levels=2)
    assert neutral.predicted_value(number(-0.5), number(3.0)) == 2.5
    plain: Any = DQN.make(ds.Mean(), SETTINGS)
    assert plain.predicted_value(number(-0.5), NOTHING) == -0.5


# --- the shifted utility ----------------------------------------------------------------------


def test_a_shifted_utility_is_a_shape_at_a_location():
    # h(z) = l + u(z - l) with l = 3, u(z) = 0.5 z + 2 min(z + 1, 0): h(1) = 3 - 1 - 2 = 0.
    outer = shifted([-1.0], [2.0], 3.0, linear=0.5)
    h, z = outer.absolute(), jnp.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(h(z), [0.0, 2.5, 4.0])
    np.testing.assert_allclose(h(z), outer.location + outer.utility(z - outer.location))


@pytest.mark.slow
@pytest.mark.parametrize("risk", ["0.3*cvar(0.25) + 0.5*cvar(0.6) + 0.2*mean", "exponential(4)"])
def test_shape_and_location_of_a_measures_utility_give_it_back(risk):
    # The measure is translation-invariant: h of (returns - l) is h(. + l) - l.
    returns = np.array([-3.0, -1.0, 0.5, 2.0, 7.0])
    made = parse(risk).utility(jnp.asarray(returns - 1.5))
    z = np.linspace(-5.0, 9.0, 31)
    got = ShiftedUtility(made, number(1.5)).absolute()(jnp.asarray(z))
    np.testing.assert_allclose(got, parse(risk).utility(returns)(z), rtol=1e-4, atol=1e-5)


# --- the outer step ---------------------------------------------------------------------------

RETURNS = jnp.array([[-9.0, -9.0, -9.0, -9.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 7.0]])
FIRST, LATER = jnp.array(True), jnp.array(False)


def measured_at(outer, locations, values, returns=RETURNS):
    move = jax.vmap(lambda location: ShiftedUtility(outer.utility, location))
    return CandidateReturns(move(jnp.asarray(locations)), jnp.asarray(values), returns)


def test_the_first_utility_is_the_mean():
    outer = srm("0.5*cvar(0.25) + 0.5*cvar(0.5)").initial_outer(jnp.array([1.0, 5.0]))
    assert outer.utility.knots.shape == (2,)
    np.testing.assert_allclose(outer.absolute()(jnp.array([-5.0, 3.0])), [-5, 3])


def test_candidates_keep_the_shape_of_h_around_its_location():
    # 0.4 spreads of 2 to either side.
    outer = shifted([-1.0, 2.0], [2.0, 1.0], 3.0)
    candidates = srm("cvar(0.5)").candidates(outer, number(2.0), SETTINGS)
    np.testing.assert_allclose(candidates.location, [2.2, 3.0, 3.8], rtol=1e-6)
    np.testing.assert_allclose(candidates.utility.knots, [[-1.0, 2.0]] * 3)


def test_a_single_cvar_moves_towards_the_best_location_and_keeps_its_shape():
    outer = srm("cvar(0.5)").outer_step(
        shifted([0.0], [2.0], 1.0),
        measured_at(shifted([0.0], [2.0], 1.0), [0.0, 1.0, 2.0], [0.0, 3.0, 4.0]),
        0.25,
        LATER,
    )
    # The best is the last: a quarter of the way from 1 to 2.
    np.testing.assert_allclose(outer.location, 1.25)
    np.testing.assert_allclose(outer.utility.knots, [0.0])
    np.testing.assert_allclose(outer.utility(jnp.array([-1.0, 1.0])), [-2.0, 0.0])


def test_the_first_outer_step_goes_all_the_way_to_the_returns_of_the_best():
    # Levels 1/4 and 1/2 of (0, 1, 2, 7): knots 1 and 2, with drops 0.5/0.25 = 2 and 0.5/0.5 = 1.
    # Their location is (2 * 1 + 1 * 2) / 3 = 4/3; relative to it they are -1/3 and 2/3.
    algorithm = srm("0.5*cvar(0.25) + 0.5*cvar(0.5)")
    first = algorithm.initial_outer(jnp.zeros(2))
    measured = measured_at(first, [-1.0, 0.0, 1.0], [0.0, 3.0, 4.0])
    outer = algorithm.outer_step(first, measured, 0.25, FIRST)
    np.testing.assert_allclose(outer.location, 4 / 3, rtol=1e-6)
    np.testing.assert_allclose(outer.utility.knots, [-1 / 3, 2 / 3], rtol=1e-5)
    # Afterwards the shape moves by the rate: from (0, 0) a quarter of the way.
    outer = algorithm.outer_step(shifted([0.0, 0.0], [2.0, 1.0], 0.0), measured, 0.25, LATER)
    np.testing.assert_allclose(outer.utility.knots, [-1 / 12, 1 / 6], rtol=1e-5)


def test_the_mean_stays_the_mean():
    algorithm = srm("mean")
    first = algorithm.initial_outer(jnp.zeros(2))
    measured = measured_at(first, [-1.0, 0.0, 1.0], [2.0, 2.0, 2.0])
    for is_first in (FIRST, LATER):
        outer = algorithm.outer_step(first, measured, 0.5, is_first)
        np.testing.assert_allclose(outer.absolute()(jnp.array([-4.0, 9.0])), [-4, 9])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # The top of -(x - 3.6)^2 at the points 1, 3, 5, 7.
        ([-6.76, -0.36, -1.96, -11.56], 3.6),
        ([4.0, 3.0, 2.0, 1.0], 1.0),
        ([1.0, 2.0, 3.0, 9.0], 7.0),
        ([0.0, 2.0, 2.0, 0.0], 4.0),  # two as good: the parabola's top is half-way
    ],
)
def test_the_maximum_is_the_top_of_a_parabola_or_an_end(values, expected):
    got = refined_maximum(jnp.array([1.0, 3.0, 5.0, 7.0]), jnp.array(values))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.slow
def test_where_all_are_as_good_the_middle_stays():
    assert refined_maximum(jnp.array([1.0, 3.0, 5.0]), jnp.full(3, 2.0)) == 3.0
    assert refined_maximum(jnp.array([1.0]), jnp.array([2.0])) == 1.0


@pytest.mark.parametrize("risk", ["0.3*cvar(0.25) + 0.5*cvar(0.6) + 0.2*mean", "cvar(0.3)"])
def test_the_papers_outer_step_is_the_utility_of_the_return_at_the_start(risk):
    start = np.array([-3.0, -1.0, 0.0, 0.5, 2.0, 2.0, 3.0, 4.0, 6.0, 7.0])
    algorithm = srm(risk)
    outer = algorithm.learned_outer_step(
        algorithm.initial_outer(jnp.zeros(2)), jnp.asarray(start), unused, 1.0
    )
    z = np.linspace(-5.0, 9.0, 31)
    expected = parse(risk).utility(start)(z)
    np.testing.assert_allclose(outer.absolute()(jnp.asarray(z)), expected, rtol=1e-5, atol=1e-5)


def test_the_first_target_is_out_of_reach():
    # The largest is 5; the standard deviation of 1 and 5 is 2.
    assert StaticCVaR.make(CVaR(0.5), SETTINGS).initial_outer(jnp.array([1.0, 5.0])) == 7.0


def test_targets_are_tried_around_the_present_one_and_the_best_is_approached():
    algorithm = StaticCVaR.make(CVaR(0.5), SETTINGS)
    candidates = algorithm.candidates(number(3.0), number(2.0), SETTINGS)
    np.testing.assert_allclose(candidates, [2.2, 3.0, 3.8], rtol=1e-6)
    # The parabola through (2.2, 1), (3, 2), (3.8, 1) has its top at 3; through 1, 2, 2 at 3.4.
    measured = CandidateReturns(candidates, jnp.array([1.0, 2.0, 2.0]), RETURNS)
    np.testing.assert_allclose(
        algorithm.outer_step(number(3.0), measured, 0.5, LATER), 3.2, rtol=1e-6
    )


def test_the_first_target_in_earnest_is_the_quantile():
    # Half of (0, 1, 2, 7), the returns of the best candidate, lies below 2.
    algorithm = StaticCVaR.make(CVaR(0.5), SETTINGS)
    measured = CandidateReturns(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0, 2.0]), RETURNS)
    assert algorithm.outer_step(number(9.0), measured, 0.5, FIRST) == 2.0


def test_the_papers_search_finds_the_best_target():
    # Targets are tried from -0.4 to 4.4 in 64 steps of 0.075: 1.1 is one of them.
    algorithm = StaticCVaR.make(CVaR(0.25), SETTINGS)
    start = jnp.array([0.0, 1.0, 4.0])
    for rate, expected in ((1.0, 1.1), (0.5, 2.1)):
        outer = algorithm.learned_outer_step(number(3.1), start, lambda b: -((b - 1.1) ** 2), rate)
        np.testing.assert_allclose(outer, expected, rtol=1e-4)


def test_without_an_outer_variable_nothing_moves():
    algorithm = DQN.make(ds.Mean(), SETTINGS)
    assert algorithm.candidates(number(3.0), number(2.0), SETTINGS).shape == (1,)
    measured = CandidateReturns(jnp.array([3.0]), jnp.array([1.0]), RETURNS[:1])
    assert algorithm.outer_step(number(3.0), measured, 0.5, LATER) == 3.0
    assert algorithm.learned_outer_step(number(3.0), RETURNS[2], unused, 0.5) == 3.0


@pytest.mark.slow
def test_the_return_at_the_start_is_the_mixture_of_the_best_legal_actions():
    # CVaR(0.5) of two quantiles is the lower one.
    # State 0: (0, 5) is worth 0 and (1, 2) is worth 1: the second. State 1: the first is illegal.
    quantiles = jnp.array([[[5.0, 0.0], [1.0, 2.0]], [[9.0, 8.0], [4.0, -1.0]]])
    masks = jnp.array([[True, True], [False, True]])
    got = start_distribution(CVaRMixture.of(CVaR(0.5)), quantiles, masks)
    np.testing.assert_allclose(got, [-1, 1, 2, 4])


# --- what they can optimise -------------------------------------------------------------------


def test_qr_cvar_takes_a_single_cvar_only():
    with pytest.raises(ValueError, match=r"a single CVaR for QR-CVaR, .* got exponential\(4\)"):
        StaticCVaR.make(Exponential(4.0), SETTINGS)
    with pytest.raises(ValueError, match="a single CVaR for QR-CVaR"):
        StaticCVaR.make(parse("0.5*mean + 0.5*cvar(0.5)"), SETTINGS)


def test_qr_dqn_takes_the_mean_only():
    with pytest.raises(ValueError, match=r"the mean for QR-DQN, got cvar\(0\.5\)\. Leave it out"):
        DQN.make(CVaR(0.5), SETTINGS)


def test_more_levels_than_needed_change_nothing():
    plain, padded = (SRM.make(CVaR(0.5), SETTINGS, levels) for levels in (None, 4))
    assert padded.objective.levels.shape == (4,)
    start = jnp.array([0.0, 1.0, 2.0, 7.0])
    z = jnp.linspace(-5.0, 9.0, 31)
    expected, got = (
        algorithm.learned_outer_step(algorithm.initial_outer(start), start, unused, 1.0)
        for algorithm in (plain, padded)
    )
    np.testing.assert_allclose(got.absolute()(z), expected.absolute()(z), rtol=1e-6)
