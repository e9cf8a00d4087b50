"""Each algorithm's augmentation, score and outer step, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.agents import DQN, SRM, Aim, ICVaR, Measured, Settings, StaticCVaR
from downside.agents.algorithm import start_distribution
from downside.agents.qrsrm import refined_maximum
from downside.risk import CVaR, Exponential, Tabulated, Utility, parse

from ..envs.scripted import GO_ON, Scripted

SETTINGS = Settings(gamma=0.5, quantiles=4, shifts=3, shift_span=0.4)
NO_GOAL = jnp.zeros(())
ENV = "downside/MeanReversion-v0"


def number(value):
    return jnp.asarray(value, float)


def srm(risk):
    return SRM.make(parse(risk), SETTINGS)


def aim(knots, drops, location, linear=0.0):
    utility = Utility(jnp.asarray(knots), jnp.asarray(drops), linear=number(linear))
    return Aim(utility, number(location))


# --- augmentation -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "goal", "expected"),
    [
        # Rewards 1 and 2, gamma = 0.5: s = 1 + 0.5 * 2 and c = 0.25; b = ((3 - 1)/0.5 - 2)/0.5.
        (srm("cvar(0.5)"), aim([0.0], [2.0], 7.0), [2.0, 0.25]),
        (StaticCVaR.make(CVaR(0.5), SETTINGS), number(3.0), [4.0]),
        (DQN.make(ds.Mean(), SETTINGS), NO_GOAL, []),
        (ICVaR.make(CVaR(0.5), SETTINGS), NO_GOAL, []),
    ],
    ids=["QR-SRM", "QR-CVaR", "QR-DQN", "QR-iCVaR"],
)
def test_what_is_remembered_is_what_the_wrapped_environment_shows(algorithm, goal, expected):
    env = algorithm.wrap(Scripted(), goal)
    state = env.initial_state(jax.random.key(0))
    for _ in range(2):
        state = env.transition(state, GO_ON, jnp.zeros(())).state
    observation = env.observe(state)
    assert observation.shape == env.observation_space.shape
    np.testing.assert_allclose(observation[1:], expected)
    remembered = algorithm.remembered(number(2.0), number(0.25), goal)
    np.testing.assert_allclose(remembered, expected)


def test_relabelling_moves_the_accumulated_reward_before_and_after():
    observation, after = srm("mean").relabel(
        jnp.array([9.0, 1.0, 0.5]), jnp.array([[[8.0, 2.0, 0.25]]]), number(0.75)
    )
    np.testing.assert_allclose(observation, [9, 1.75, 0.5])
    np.testing.assert_allclose(after, [[[8, 2.75, 0.25]]])


def test_relabelling_moves_the_target_and_its_discounted_successor():
    # b' = (b - r) / gamma: 0.75 more of b is 1.5 more of b'.
    observation, after = StaticCVaR.make(CVaR(0.5), SETTINGS).relabel(
        jnp.array([9.0, 1.0]), jnp.array([[[8.0, 2.0]]]), number(0.75)
    )
    np.testing.assert_allclose(observation, [9, 1.75])
    np.testing.assert_allclose(after, [[[8, 3.5]]])


def test_a_discreet_agent_shows_its_memory_once_h_bends():
    discreet = SRM.make(CVaR(0.5), dataclasses.replace(SETTINGS, discreet=True))
    seen = jnp.array([9.0, 1.0, 0.5])
    line, bent = discreet.first_goal(jnp.zeros(2)), aim([0.0], [2.0], 7.0)
    np.testing.assert_allclose(discreet.view(seen, line), [9, 0, 0])
    np.testing.assert_allclose(discreet.view(seen, bent), [9, -6, 0.5])
    assert (discreet.hidden_at_first, srm("cvar(0.5)").hidden_at_first) == (2, 0)
    np.testing.assert_allclose(srm("cvar(0.5)").view(seen, line), [9, 1, 0.5])
    # For the mean h stays a line, so that nothing is ever shown.
    mean = SRM.make(ds.Mean(), dataclasses.replace(SETTINGS, discreet=True))
    after = mean.learned_outer_step(line, jnp.arange(4.0), lambda goal: jnp.zeros(()), 1.0)
    np.testing.assert_allclose(mean.view(seen, after), [9, 0, 0])


def test_a_little_of_the_mean_breaks_ties():
    # CVaR at 0.5 of 0, 1, 2, 3: h(z) = 1 + 2 min(z - 1, 0) in the quantile 1 (or any up to 2). A
    # tenth of it is replaced by z: slopes 0.9 * 2 + 0.1 below and 0.1 above.
    algorithm = SRM.make(CVaR(0.5), dataclasses.replace(SETTINGS, tie_break=0.1))
    goal = algorithm.first_goal(jnp.zeros(2))
    after = algorithm.learned_outer_step(goal, jnp.arange(4.0), lambda one: jnp.zeros(()), 1.0)
    h = after.absolute()
    knot = float(h.knots[0])
    assert 1.0 <= knot <= 2.0
    points = jnp.array([knot - 2.0, knot - 1.0, knot, knot + 1.0, knot + 2.0])
    np.testing.assert_allclose(jnp.diff(h(points)), [1.9, 1.9, 0.1, 0.1], rtol=1e-5)
    np.testing.assert_allclose(h(jnp.array(knot)), knot, rtol=1e-5)
    # Of the mean there is nothing to replace, and no rounding in it.
    mean = SRM.make(ds.Mean(), dataclasses.replace(SETTINGS, tie_break=0.1))
    goal = mean.first_goal(jnp.zeros(2))
    after = mean.learned_outer_step(goal, jnp.arange(4.0), lambda one: jnp.zeros(()), 1.0)
    assert float(after.utility.linear) == 1.0


def test_without_memory_there_is_nothing_to_relabel():
    before, after = jnp.array([9.0, 1.0]), jnp.array([[[8.0, 2.0]]])
    same = DQN.make(ds.Mean(), SETTINGS).relabel(before, after, number(0.75))
    assert same[0] is before
    assert same[1] is after


def test_networks_see_the_accumulated_reward_relative_to_the_place_of_h():
    observation, goal = jnp.array([9.0, 1.0, 0.5]), aim([0.0], [2.0], 3.0)
    np.testing.assert_allclose(srm("cvar(0.5)").view(observation, goal), [9, -2, 0.5])
    static = StaticCVaR.make(CVaR(0.5), SETTINGS)
    np.testing.assert_array_equal(static.view(observation, number(3.0)), observation)


# --- score ------------------------------------------------------------------------------------

QUANTILES = jnp.array([[4.0, -2.0, 0.0, 2.0], [1.0, 1.0, 1.0, 0.0]])


def test_quantiles_are_scored_by_the_expected_utility():
    # u(z) = 2 min(z, 0) and l = 3; s = 2, c = 0.5: z = s - l + c theta = -1 + 0.5 theta:
    # (1, -2, -1, 0) -> (0, -4, -2, 0) / 4; (-0.5, -0.5, -0.5, -1) -> (-1, -1, -1, -2) / 4.
    observation = jnp.array([9.0, 2.0, 0.5])
    scores = srm("cvar(0.5)").quantile_scores(QUANTILES, observation, aim([0.0], [2.0], 3.0))
    np.testing.assert_allclose(scores, [-1.5, -1.25])


def test_quantiles_are_scored_by_the_shortfall():
    # b = 1: (0, 3, 1, 0) / 4 and (0, 0, 0, 1) / 4 are missing, in units of alpha = 0.5.
    scores = StaticCVaR.make(CVaR(0.5), SETTINGS).quantile_scores(
        QUANTILES, jnp.array([9.0, 1.0]), number(77.0)
    )
    np.testing.assert_allclose(scores, [-2.0, -0.5])


def test_quantiles_are_scored_by_the_mean_and_by_the_measure():
    observation = jnp.array([9.0])
    mean = DQN.make(ds.Mean(), SETTINGS).quantile_scores(QUANTILES, observation, NO_GOAL)
    np.testing.assert_allclose(mean, [1.0, 0.75])
    # The worst half: (-2 + 0) / 2 and (0 + 1) / 2.
    cvar = ICVaR.make(CVaR(0.5), SETTINGS).quantile_scores(QUANTILES, observation, NO_GOAL)
    np.testing.assert_allclose(cvar, [-1.0, 0.5])


def test_the_expected_utility_is_handed_back_and_the_utility_paid_at_the_end():
    # l = 3, s' = 2.5: u(-0.5) = -1.
    algorithm, goal = srm("cvar(0.5)"), aim([0.0], [2.0], 3.0)
    after, score = jnp.array([9.0, 2.5, 0.5]), number(0.25)
    assert algorithm.critic_target(after, score, jnp.array(False), 0.5, goal) == 0.25
    assert algorithm.critic_target(after, score, jnp.array(True), 0.5, goal) == -1.0


def test_the_shortfall_is_discounted_and_what_is_missing_counts_at_the_end():
    # gamma = 0.5: 0.5 * -4 on the way, -0.5 * 3 / 0.5 at the end.
    algorithm = StaticCVaR.make(CVaR(0.5), SETTINGS)
    after, score = jnp.array([9.0, 3.0]), number(-4.0)
    assert algorithm.critic_target(after, score, jnp.array(False), 0.5, number(77.0)) == -2.0
    assert algorithm.critic_target(after, score, jnp.array(True), 0.5, number(77.0)) == -3.0


def test_an_anchored_score_is_that_of_an_episode_that_is_over_and_what_the_actions_add():
    # l = 3, s = 2.5, c = 0.25: u(-0.5) = -1, and a quarter of (4, -8).
    observation, added = jnp.array([9.0, 2.5, 0.25]), jnp.array([4.0, -8.0])
    got = srm("cvar(0.5)").anchored(added, observation, aim([0.0], [2.0], 3.0))
    np.testing.assert_allclose(got, [0.0, -3.0])
    # b = 3 is missing: -3 / 0.5; nothing is missing where b = -3.
    static = StaticCVaR.make(CVaR(0.5), SETTINGS)
    for missing, expected in ((3.0, [-2.0, -14.0]), (-3.0, [4.0, -8.0])):
        got = static.anchored(added, jnp.array([9.0, missing]), number(77.0))
        np.testing.assert_allclose(got, expected)
    plain = DQN.make(ds.Mean(), SETTINGS)
    np.testing.assert_allclose(plain.anchored(added, observation, NO_GOAL), added)


@pytest.mark.parametrize("algorithm", [DQN, ICVaR])
def test_a_score_without_a_recursion_says_so(algorithm):
    made = algorithm.make(ds.Mean(), SETTINGS)
    with pytest.raises(TypeError, match=r"QR-.* obeys no recursion: use critic='quantiles'"):
        made.critic_target(jnp.zeros(1), NO_GOAL, jnp.array(False), 0.5, NO_GOAL)


def test_a_score_at_the_start_stands_for_a_value():
    # l + score; b + score = 3 - 0.5, whatever alpha is: it is in the score; the score itself.
    assert srm("cvar(0.5)").predicted_value(number(-0.5), aim([0.0], [2.0], 3.0)) == 2.5
    static = StaticCVaR.make(CVaR(0.25), SETTINGS)
    assert static.predicted_value(number(-0.5), number(3.0)) == 2.5
    neutral = StaticCVaR.make(CVaR(1.0), SETTINGS, levels=2)
    assert neutral.predicted_value(number(-0.5), number(3.0)) == 2.5
    assert DQN.make(ds.Mean(), SETTINGS).predicted_value(number(-0.5), NO_GOAL) == -0.5


# --- the aim ----------------------------------------------------------------------------------


def test_an_aim_is_a_shape_at_a_place():
    # h(z) = l + u(z - l) with l = 3, u(z) = 0.5 z + 2 min(z + 1, 0): h(1) = 3 - 1 - 2 = 0.
    goal = aim([-1.0], [2.0], 3.0, linear=0.5)
    h, z = goal.absolute(), jnp.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(h(z), [0.0, 2.5, 4.0])
    np.testing.assert_allclose(h(z), goal.location + goal.utility(z - goal.location))


@pytest.mark.parametrize("risk", ["0.3*cvar(0.25) + 0.5*cvar(0.6) + 0.2*mean", "exponential(4)"])
def test_shape_and_place_of_a_measures_utility_give_it_back(risk):
    # The measure is translation-invariant: h of (returns - l) is h(. + l) - l.
    returns = np.array([-3.0, -1.0, 0.5, 2.0, 7.0])
    made = parse(risk).utility(jnp.asarray(returns - 1.5))
    z = np.linspace(-5.0, 9.0, 31)
    got = Aim(made, number(1.5)).absolute()(jnp.asarray(z))
    np.testing.assert_allclose(got, parse(risk).utility(returns)(z), rtol=1e-4, atol=1e-5)


# --- the outer step ---------------------------------------------------------------------------

RETURNS = jnp.array([[-9.0, -9.0, -9.0, -9.0], [0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 7.0]])
FIRST, LATER = jnp.array(True), jnp.array(False)


def unused(goal):
    raise AssertionError("the networks need not be asked")


def measured_at(goal, places, values, returns=RETURNS):
    goals = jax.vmap(lambda place: Aim(goal.utility, place))(jnp.asarray(places))
    return Measured(goals, jnp.asarray(values), returns)


def test_the_first_aim_is_the_mean():
    goal = srm("0.5*cvar(0.25) + 0.5*cvar(0.5)").first_goal(jnp.array([1.0, 5.0]))
    assert goal.utility.knots.shape == (2,)
    np.testing.assert_allclose(goal.absolute()(jnp.array([-5.0, 3.0])), [-5, 3])


def test_candidates_of_an_aim_keep_its_shape_around_its_place():
    # 0.4 spreads of 2 to either side.
    goal = aim([-1.0, 2.0], [2.0, 1.0], 3.0)
    found = srm("cvar(0.5)").candidates(goal, number(2.0), SETTINGS, unused)
    np.testing.assert_allclose(found.location, [2.2, 3.0, 3.8], rtol=1e-6)
    np.testing.assert_allclose(found.utility.knots, [[-1.0, 2.0]] * 3)


def test_a_single_cvar_moves_towards_the_best_place_and_keeps_its_shape():
    goal = srm("cvar(0.5)").outer_step(
        aim([0.0], [2.0], 1.0),
        measured_at(aim([0.0], [2.0], 1.0), [0.0, 1.0, 2.0], [0.0, 3.0, 4.0]),
        0.25,
        LATER,
    )
    # The best is the last: a quarter of the way from 1 to 2.
    np.testing.assert_allclose(goal.location, 1.25)
    np.testing.assert_allclose(goal.utility.knots, [0.0])
    np.testing.assert_allclose(goal.utility(jnp.array([-1.0, 1.0])), [-2.0, 0.0])


def test_the_first_outer_step_goes_all_the_way_to_the_returns_of_the_best():
    # Levels 1/4 and 1/2 of (0, 1, 2, 7): knots 1 and 2, with drops 0.5/0.25 = 2 and 0.5/0.5 = 1.
    # Their place is (2 * 1 + 1 * 2) / 3 = 4/3; relative to it they are -1/3 and 2/3.
    algorithm = srm("0.5*cvar(0.25) + 0.5*cvar(0.5)")
    first = algorithm.first_goal(jnp.zeros(2))
    measured = measured_at(first, [-1.0, 0.0, 1.0], [0.0, 3.0, 4.0])
    goal = algorithm.outer_step(first, measured, 0.25, FIRST)
    np.testing.assert_allclose(goal.location, 4 / 3, rtol=1e-6)
    np.testing.assert_allclose(goal.utility.knots, [-1 / 3, 2 / 3], rtol=1e-5)
    # Afterwards the shape moves by the rate: from (0, 0) a quarter of the way.
    goal = algorithm.outer_step(aim([0.0, 0.0], [2.0, 1.0], 0.0), measured, 0.25, LATER)
    np.testing.assert_allclose(goal.utility.knots, [-1 / 12, 1 / 6], rtol=1e-5)


def test_the_mean_stays_the_mean():
    algorithm = srm("mean")
    first = algorithm.first_goal(jnp.zeros(2))
    measured = measured_at(first, [-1.0, 0.0, 1.0], [2.0, 2.0, 2.0])
    for is_first in (FIRST, LATER):
        goal = algorithm.outer_step(first, measured, 0.5, is_first)
        np.testing.assert_allclose(goal.absolute()(jnp.array([-4.0, 9.0])), [-4, 9])


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


def test_where_all_are_as_good_the_middle_stays():
    assert refined_maximum(jnp.array([1.0, 3.0, 5.0]), jnp.full(3, 2.0)) == 3.0
    assert refined_maximum(jnp.array([1.0]), jnp.array([2.0])) == 1.0


@pytest.mark.parametrize("risk", ["0.3*cvar(0.25) + 0.5*cvar(0.6) + 0.2*mean", "cvar(0.3)"])
def test_the_papers_outer_step_is_the_utility_of_the_return_at_the_start(risk):
    start = np.array([-3.0, -1.0, 0.0, 0.5, 2.0, 2.0, 3.0, 4.0, 6.0, 7.0])
    algorithm = srm(risk)
    goal = algorithm.learned_outer_step(
        algorithm.first_goal(jnp.zeros(2)), jnp.asarray(start), unused, 1.0
    )
    z = np.linspace(-5.0, 9.0, 31)
    expected = parse(risk).utility(start)(z)
    np.testing.assert_allclose(goal.absolute()(jnp.asarray(z)), expected, rtol=1e-5, atol=1e-5)


def test_the_first_target_is_out_of_reach():
    # The largest is 5; the standard deviation of 1 and 5 is 2.
    assert StaticCVaR.make(CVaR(0.5), SETTINGS).first_goal(jnp.array([1.0, 5.0])) == 7.0


def test_targets_are_tried_around_the_present_one_and_the_best_is_approached():
    algorithm = StaticCVaR.make(CVaR(0.5), SETTINGS)
    goals = algorithm.candidates(number(3.0), number(2.0), SETTINGS, unused)
    np.testing.assert_allclose(goals, [2.2, 3.0, 3.8], rtol=1e-6)
    # The parabola through (2.2, 1), (3, 2), (3.8, 1) has its top at 3; through 1, 2, 2 at 3.4.
    measured = Measured(goals, jnp.array([1.0, 2.0, 2.0]), RETURNS)
    np.testing.assert_allclose(
        algorithm.outer_step(number(3.0), measured, 0.5, LATER), 3.2, rtol=1e-6
    )


def test_the_first_target_in_earnest_is_the_quantile():
    # Half of (0, 1, 2, 7), the returns of the best candidate, lies below 2.
    algorithm = StaticCVaR.make(CVaR(0.5), SETTINGS)
    measured = Measured(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0, 2.0]), RETURNS)
    assert algorithm.outer_step(number(9.0), measured, 0.5, FIRST) == 2.0


def test_the_papers_search_finds_the_best_target():
    # b + score = -(b - 1.1)^2 for score = -((b - 1.1)^2 + b). Targets are tried from -0.4 to 4.4 in
    # 64 steps of 0.075: 1.1 is one of them.
    algorithm = StaticCVaR.make(CVaR(0.25), SETTINGS)
    start = jnp.array([0.0, 1.0, 4.0])
    for rate, expected in ((1.0, 1.1), (0.5, 2.1)):
        goal = algorithm.learned_outer_step(
            number(3.1), start, lambda b: -((b - 1.1) ** 2 + b), rate
        )
        np.testing.assert_allclose(goal, expected, rtol=1e-4)


def test_without_an_outer_variable_nothing_moves():
    algorithm = DQN.make(ds.Mean(), SETTINGS)
    assert algorithm.candidates(number(3.0), number(2.0), SETTINGS, unused).shape == (1,)
    measured = Measured(jnp.array([3.0]), jnp.array([1.0]), RETURNS[:1])
    assert algorithm.outer_step(number(3.0), measured, 0.5, LATER) == 3.0
    assert algorithm.learned_outer_step(number(3.0), RETURNS[2], unused, 0.5) == 3.0


def test_the_return_at_the_start_is_the_mixture_of_the_best_legal_actions():
    # CVaR(0.5) of two quantiles is the lower one.
    # State 0: (0, 5) is worth 0 and (1, 2) is worth 1: the second. State 1: the first is illegal.
    quantiles = jnp.array([[[5.0, 0.0], [1.0, 2.0]], [[9.0, 8.0], [4.0, -1.0]]])
    masks = jnp.array([[True, True], [False, True]])
    got = start_distribution(Tabulated.of(CVaR(0.5)), quantiles, masks)
    np.testing.assert_allclose(got, [-1, 1, 2, 4])


# --- what they can optimise -------------------------------------------------------------------


def test_qr_cvar_takes_a_single_cvar_only():
    with pytest.raises(ValueError, match=r"a single CVaR for QR-CVaR, .* got exponential\(4\)"):
        StaticCVaR.make(Exponential(4.0), SETTINGS)
    with pytest.raises(ValueError, match="a single CVaR for QR-CVaR"):
        ds.QRCVaR(ENV, risk="0.5*mean + 0.5*cvar(0.5)")


def test_qr_dqn_takes_the_mean_only():
    with pytest.raises(ValueError, match=r"the mean for QR-DQN, got cvar\(0\.5\)\. Leave it out"):
        ds.QRDQN(ENV, risk="cvar(0.5)")


def test_more_levels_than_needed_change_nothing():
    plain, padded = (SRM.make(CVaR(0.5), SETTINGS, levels) for levels in (None, 4))
    assert padded.objective.levels.shape == (4,)
    start = jnp.array([0.0, 1.0, 2.0, 7.0])
    z = jnp.linspace(-5.0, 9.0, 31)
    goals = [
        one.learned_outer_step(one.first_goal(start), start, unused, 1.0) for one in (plain, padded)
    ]
    np.testing.assert_allclose(goals[1].absolute()(z), goals[0].absolute()(z), rtol=1e-6)


def test_the_outer_step_from_episodes_moves_shape_and_place():
    algorithm = srm("0.5*cvar(0.5)+0.5*cvar(0.25)")
    returns = jnp.array([0.0, 4.0, 8.0, 12.0])
    goal = aim([-3.0, 3.0], algorithm.objective.drops, 1.0)
    # The quantiles at 0.25 and 0.5 are 4 and 8. Slopes lost there: 0.5/0.25 and 0.5/0.5, so that
    # the place is (2 * 4 + 8) / 3.
    place = 16 / 3
    found = algorithm.lived_outer_step(goal, returns, 1.0)
    np.testing.assert_allclose(found.location, place, rtol=1e-6)
    np.testing.assert_allclose(found.absolute().knots, [4, 8], rtol=1e-6)
    half = algorithm.lived_outer_step(goal, returns, 0.5)
    np.testing.assert_allclose(half.location, (1 + place) / 2, rtol=1e-6)
    np.testing.assert_allclose(
        half.utility.knots, [(-3 + 4 - place) / 2, (3 + 8 - place) / 2], rtol=1e-5
    )


def test_the_target_from_episodes_is_their_quantile():
    algorithm = StaticCVaR.make(CVaR(0.5), SETTINGS)
    returns = jnp.array([0.0, 4.0, 8.0, 12.0])
    assert algorithm.lived_outer_step(number(2.0), returns, 1.0) == 8.0
    assert algorithm.lived_outer_step(number(2.0), returns, 0.5) == 5.0
    dqn = DQN.make(ds.Mean(), SETTINGS)
    assert dqn.lived_outer_step(NO_GOAL, returns, 1.0) == NO_GOAL
