import io
import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from rich.console import Console

from downside import CVaR, Exponential, FiniteMDP, solve
from downside.evaluation import Evaluation, Interval, Simulated, compare, evaluate

from ..untyped import answers
from .samples import RISKS, Coin, draws, plain


class Broken:
    def __init__(self, returns):
        self.returns = returns

    def simulate_returns(self, episodes, seed):
        return self.returns


# --- values -------------------------------------------------------------------------------------


def test_a_value_splits_the_episode_that_straddles_the_level():
    # Worst 37.5% of four episodes: all of -10, half of 0 -> -2.5 / 0.375.
    assert plain([20, -10, 0, 5]).value("cvar(0.375)") == pytest.approx(-20 / 3)


@pytest.mark.parametrize("risk", RISKS, ids=str)
@pytest.mark.parametrize("episodes", [1, 2, 7, 500])
def test_a_value_is_the_measure_of_the_returns(risk, episodes):
    returns = 3.0 + 100.0 * draws(episodes, episodes) ** 3
    expected = float(risk(returns))
    assert plain(returns).value(risk) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_mean_and_quantiles_are_those_of_the_returns():
    evaluation = plain([4, 1, 3, 12])
    assert evaluation.mean == 5.0
    # Middle ranks 1/4 and 3/4: the smallest values with F >= 0.25 and F >= 0.75.
    np.testing.assert_array_equal(evaluation.quantiles(2), [1.0, 4.0])
    np.testing.assert_array_equal(evaluation.quantiles(4), [1.0, 3.0, 4.0, 12.0])


def test_the_standard_error_of_the_mean_is_the_textbook_one():
    # 1, 2, 6: variance (4 + 1 + 9) / 2 = 7.
    assert plain([1, 2, 6]).standard_error("mean") == pytest.approx(math.sqrt(7 / 3))


def test_the_tail_holds_the_episodes_up_to_the_smallest_level():
    evaluation = plain(np.arange(100))
    assert evaluation.tail_count("mean") == 100
    assert evaluation.tail_count("cvar(0.07)") == 7  # in floats 0.07 * 100 is above 7
    assert evaluation.tail_count("cvar(0.071)") == 8
    assert evaluation.tail_count("cvar(0.0001)") == 1
    assert evaluation.tail_count("0.9*mean + 0.1*cvar(0.25)") == 25


def test_the_tail_of_a_continuum_of_levels_is_its_effective_number_of_episodes():
    # Dual power 2 weighs four episodes 7, 5, 3, 1 sixteenths: 256 / (49 + 25 + 9 + 1) = 3.05.
    assert plain([1, 2, 3, 4]).tail_count("dual_power(2)") == 3
    # Of many, the share 1 / ∫ 4 (1 - u)² du = 3/4.
    assert plain(np.arange(10_000)).tail_count("dual_power(2)") == 7500
    assert plain(np.arange(100)).tail_count(Exponential(1e-9)) == 100


def test_a_representation_leaves_the_returns_out():
    text = repr(Evaluation(np.arange(1000.0), seed=3, label="hold"))
    assert text == "Evaluation('hold': 1,000 episodes, mean 499.5, seed 3)"


def test_returns_cannot_be_changed_afterwards():
    returns = np.array([1.0, 2.0])
    evaluation = Evaluation(returns)
    returns[0] = 7.0
    assert evaluation.mean == 1.5
    with pytest.raises(ValueError, match="read-only"):
        evaluation.returns[0] = 7.0


# --- intervals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("risk", "middle"),
    [
        ("mean", 3.0),
        ("cvar(0.5)", 2.0),
        ("dual_power(2)", 2.5),
        ("0.5*mean + 0.5*cvar(0.8)", 2.875),
    ],
)
def test_two_episodes_have_three_resamples(risk, middle):
    # (2, 2), (2, 4), (4, 4) with probability 1/4, 1/2, 1/4: the central 40% is (2, 4) alone, whose
    # better half weighs 1/2 to the mean, 0, (1 - 1/2)² = 1/4, and (1/2 + 3/8) / 2 = 7/16.
    evaluation = plain([4, 2])
    assert evaluation.interval(risk, confidence=0.4) == pytest.approx((middle, middle))
    assert evaluation.interval(risk, confidence=0.9) == Interval(2.0, 4.0)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.2, 1.0])
def test_intervals_hold_the_truth_as_often_as_they_say(level):
    # CVaR of a standard normal: minus the density at its quantile over the level.
    normal = NormalDist()
    truth = 0.0 if level == 1.0 else -normal.pdf(normal.inv_cdf(level)) / level
    samples = draws(7, 200, 300)
    intervals = [
        plain(sample).interval(CVaR(level), seed=repeat) for repeat, sample in enumerate(samples)
    ]
    assert 0.90 <= np.mean([low <= truth <= high for low, high in intervals]) <= 0.99


@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_intervals_are_as_wide_as_the_standard_error_says(risk):
    evaluation = plain(draws(1, 5000))
    low, high = evaluation.interval(risk, resamples=2000)
    assert high - low == pytest.approx(2 * 1.96 * evaluation.standard_error(risk), rel=0.1)
    assert low < evaluation.value(risk) < high


@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_constant_returns_leave_no_doubt(risk):
    evaluation = plain(np.full(50, 0.1))
    assert evaluation.interval(risk) == Interval(0.1, 0.1)
    assert evaluation.value(risk) == 0.1


def test_intervals_depend_on_their_seed_and_not_on_the_order_of_episodes():
    returns = draws(2, 400)
    here, there = plain(returns), plain(returns[::-1])
    assert here.interval("cvar(0.1)") == there.interval("cvar(0.1)")
    assert here.interval("cvar(0.1)", seed=0) != here.interval("cvar(0.1)", seed=1)


def test_resampling_leaves_the_global_generator_alone():
    before = np.random.get_state(legacy=True)  # noqa: NPY002
    plain(draws(0, 20)).interval("mean")
    after = np.random.get_state(legacy=True)  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


# --- summaries ----------------------------------------------------------------------------------


def test_the_summary_is_plain_data_with_the_same_intervals():
    evaluation = plain(draws(3, 300))
    rows = evaluation.summary(["cvar(0.2)", Exponential(4.0)])
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert [row["risk"] for row in rows] == ["cvar(0.2)", "exponential(4)"]
    for row in rows:
        assert (row["low"], row["high"]) == evaluation.interval(row["risk"])
        assert row["value"] == evaluation.value(row["risk"])
        assert row["episodes"] == 300
        assert row["tail_episodes"] == evaluation.tail_count(row["risk"])
    assert evaluation.summary("cvar(0.2)") == rows[:1]
    assert evaluation.summary([]) == []


def test_the_table_shows_value_interval_and_tail():
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(Evaluation(np.full(1000, -2.5), label="a [bold] plan").table("cvar(0.05)"))
    text = console.export_text()
    assert "a [bold] plan: 1,000 episodes" in text
    row = next(line for line in text.splitlines() if "cvar(0.05)" in line)
    assert row.split() == ["cvar(0.05)", "-2.5000", "-2.5000", "to", "-2.5000", "50"]


# --- running a policy ---------------------------------------------------------------------------


def test_whatever_simulates_its_returns_is_evaluated():
    evaluation = evaluate(Coin(), episodes=1000, seed=5)
    assert isinstance(Coin(), Simulated)
    assert (len(evaluation), evaluation.seed, evaluation.label) == (1000, 5, "Coin")
    assert set(evaluation.returns) == {-1.0, 1.0}
    assert evaluation.aligned
    assert not evaluate(Coin(aligned=False), episodes=10).aligned
    assert evaluate(Coin(), episodes=10, label="heads").label == "heads"


@pytest.mark.slow
def test_plans_on_a_grid_share_the_noise_of_a_seed():
    plans = [
        solve("downside/AmericanPut-v0", risk, gamma=1.0, refine=0.2, episodes=10)
        for risk in ("mean", "cvar(0.5)")
    ]
    hold, early = (evaluate(plan, episodes=2000, seed=3) for plan in plans)
    assert hold.label == "plan for mean"
    assert np.corrcoef(hold.returns, early.returns)[0, 1] > 0.3
    assert compare(early, hold, "cvar(0.5)").method == "paired episodes"
    assert compare(early, hold, "cvar(0.5)").significant
    other = evaluate(plans[0], episodes=2000, seed=4)
    assert compare(early, other, "cvar(0.5)").method == "independent episodes"


def test_plans_of_finite_problems_do_not():
    mdp = FiniteMDP([[[0.5, 0.5]]], [[[1.0, 3.0]]], next_states=[[[0, 0]]], gamma=1.0, horizon=1)
    evaluation = evaluate(solve(mdp, "mean", episodes=10), episodes=400)
    assert evaluation.value("mean") == pytest.approx(2.0, abs=0.2)
    assert not evaluation.aligned
    assert compare(evaluation, evaluation, "mean").method == "independent episodes"


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ([1.0, np.nan], r"`returns` must be finite, got 1 value\(s\) that are not, the first nan"),
        ([np.inf, 1.0], "`returns` must be finite"),
        ([], "`returns` must hold at least one value"),
    ],
)
def test_returns_that_cannot_be_are_refused(returns, message):
    with pytest.raises(ValueError, match=message):
        plain(returns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 95.0}, r"`confidence` must be in \(0, 1\), got 95\.0. For 95% pass conf"),
        ({"confidence": 0.0}, "`confidence` must be in"),
        ({"resamples": 10}, "`resamples` must be a whole number of at least 100, got 10"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0, got -1"),
        ({"risk": "cvr(0.2)"}, "(?i)did you mean"),
    ],
)
def test_bad_options_are_refused_in_words(options, message):
    evaluation, options = plain([1.0, 2.0]), {"risk": "mean", **options}
    with pytest.raises(ValueError, match=message):
        evaluation.interval(**options)


def test_one_episode_has_a_value_but_no_interval():
    single = plain([3.0])
    assert single.value("cvar(0.2)") == 3.0
    with pytest.raises(ValueError, match="`returns` must hold at least 2 episodes for an interval"):
        single.interval("mean")
    with pytest.raises(ValueError, match="`count` must be a whole number of at least 1, got 0"):
        single.quantiles(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 0}, "`episodes` must be a whole number of at least 1, got 0"),
        ({"episodes": True}, "`episodes` must be a whole number of at least 1, got True"),
        ({"seed": -2}, "`seed` must be a whole number of at least 0, got -2"),
    ],
)
def test_runs_that_cannot_be_made_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(Coin(), **options)


def test_a_policy_that_returns_nonsense_is_refused():
    with pytest.raises(ValueError, match=r"each of the 4 episodes, got an array of shape \(3,\)"):
        evaluate(Broken(np.zeros(3)), episodes=4)
    with pytest.raises(ValueError, match="`returns` must be finite"):
        evaluate(Broken(np.array([0.0, np.nan])), episodes=2)


WRONG_TYPES = {
    "evaluate('downside/AmericanPut-v0')": "`subject` must be an agent, a plan, or have a method "
    "`simulate_returns(episodes, seed)`, got 'downside/AmericanPut-v0'. For the optimum",
    "evaluate(None)": "`subject` must be an agent",
    "evaluate([1.0, 2.0])": "make a ds.Evaluation(returns)",
    "evaluate(Simulated)": "`subject` must be an agent",
    "Evaluation([[1.0, 2.0]])": "`returns` must be a vector with one return per episode, got shape "
    "(1, 2). For several training seeds make one Evaluation of each.",
    "Evaluation('abc')": "`returns` must be an array of real numbers",
    "Evaluation([1.0, 2.0]).value(0.2)": "`risk` must be a risk measure or its text",
    "Evaluation([1.0, 2.0]).interval('mean', confidence='high')": "`confidence` must be a real",
}


def test_wrong_types_are_refused_in_words():
    messages = answers("from downside.evaluation import *", list(WRONG_TYPES))
    for case, message in WRONG_TYPES.items():
        assert message in messages[case]
