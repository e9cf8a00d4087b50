import numpy as np
import pytest

from downside.evaluation import Difference, compare, evaluate
from downside.evaluation.seeds import difference_interval

from ..untyped import answers
from .samples import RISKS, Coin, draws, plain


@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_pairs_narrow_the_interval_where_the_noise_is_shared(risk):
    noise = draws(4, 1000)
    fields = {"seed": 1, "aligned": True}
    first, second = plain(noise + 0.05, **fields), plain(noise + 0.1 * draws(5, 1000), **fields)
    paired = compare(first, second, risk, resamples=500)
    alone = compare(first, plain(second.returns, seed=2, aligned=True), risk, resamples=500)
    assert (paired.method, alone.method) == ("paired episodes", "independent episodes")
    assert paired.value == alone.value == first.value(risk) - second.value(risk)
    assert paired.high - paired.low < 0.5 * (alone.high - alone.low)


def test_a_policy_that_is_better_by_the_same_amount_in_each_pair_is_so_for_sure():
    noise = draws(6, 200)
    first, second = plain(noise + 0.5, seed=1, aligned=True), plain(noise, seed=1, aligned=True)
    difference = compare(first, second, "cvar(0.1)")
    assert (difference.low, difference.high) == pytest.approx((0.5, 0.5))
    assert difference.significant
    assert not compare(first, first, "cvar(0.1)").significant


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"seed": 1, "aligned": True}, {"seed": 2, "aligned": True}),
        ({"seed": 1, "aligned": True}, {"seed": 1, "aligned": False}),
        ({"seed": None, "aligned": True}, {"seed": None, "aligned": True}),
    ],
)
def test_episodes_are_not_paired_unless_their_noise_is_known_to_be_shared(ours, theirs):
    first, second = plain(draws(1, 50), **ours), plain(draws(1, 50), **theirs)
    assert compare(first, second, "mean").method == "independent episodes"


def test_evaluations_of_different_lengths_are_resampled_on_their_own():
    first, second = evaluate(Coin(3.0), episodes=900), evaluate(Coin(), episodes=400)
    difference = compare(first, second, "mean")
    assert difference.method == "independent episodes"
    # Standard errors 2 / 30 and 1 / 20, about 0.083 together.
    assert difference.high - difference.low == pytest.approx(2 * 1.96 * 0.0833, rel=0.1)
    assert difference.significant


def test_algorithms_are_compared_by_resampling_their_seeds():
    first = [plain([value, value]) for value in (1.0, 2.0, 6.0)]
    second = [plain([value, value]) for value in (0.5, 1.5)]
    difference = compare(first, second, "cvar(0.3)")
    assert difference.method == "seeds"
    assert difference.value == pytest.approx(2.0)  # means 3 and 1
    # What that interval is, tests/evaluation/test_seeds.py says.
    ends = difference_interval(np.array([1.0, 2.0, 6.0]), np.array([0.5, 1.5]), 0.95, 2000)
    assert (difference.low, difference.high) == pytest.approx(ends, rel=0.05)
    assert not difference.significant


def test_seeds_are_paired_only_on_demand():
    first = [plain([value + 1.0]) for value in (0.0, 10.0, 20.0)]
    second = [plain([value]) for value in (0.0, 10.0, 20.0)]
    paired = compare(first, second, "mean", paired_seeds=True)
    assert (paired.value, paired.low, paired.high) == pytest.approx((1.0, 1.0, 1.0))
    assert not compare(first, second, "mean").significant


def test_comparisons_are_the_same_every_time():
    first, second = plain(draws(1, 100)), plain(draws(2, 100))
    assert compare(first, second, "mean") == compare(first, second, "mean")
    assert compare(first, second, "mean") != compare(first, second, "mean", seed=1)


def test_a_difference_reads_as_a_sentence():
    fields = {"method": "seeds", "risk": "cvar(0.2)", "confidence": 0.975}
    assert (
        str(Difference(value=0.25, low=-0.125, high=0.5, **fields))
        == "+0.2500 in cvar(0.2) (97.5% interval -0.1250 to +0.5000, seeds; not significant)"
    )
    assert "not significant" not in str(Difference(value=-1.0, low=-2.0, high=-0.5, **fields))


# --- errors -------------------------------------------------------------------------------------


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
        compare(evaluation, evaluation, **options)


def test_one_episode_cannot_be_compared():
    with pytest.raises(ValueError, match="`second` must hold at least 2 episodes for an interval"):
        compare(plain([1.0, 2.0]), plain([3.0]), "mean")


def test_seeds_that_cannot_be_compared_are_refused():
    single, many = plain([1.0, 2.0]), [plain([1.0]), plain([2.0])]
    with pytest.raises(ValueError, match="`second` must hold the evaluations of at least 2 train"):
        compare(many, [single], "mean")
    with pytest.raises(TypeError, match="or two lists with an evaluation for each training seed"):
        compare(many, single, "mean")
    with pytest.raises(ValueError, match="as many seeds in `first` as in `second`, got 2 and 3"):
        compare(many, [*many, single], "mean", paired_seeds=True)
    with pytest.raises(ValueError, match="`paired_seeds` must be False for two single evaluations"):
        compare(single, single, "mean", paired_seeds=True)


WRONG_TYPES = {
    "compare([1.0, 2.0], [3.0, 4.0], 'mean')": "got [1.0, 2.0] as `first`. Make them with",
    "compare('a', 'b', 'mean')": "got 'a' as `first`",
}


def test_wrong_types_are_refused_in_words():
    messages = answers("from downside.evaluation import *", list(WRONG_TYPES))
    for case, message in WRONG_TYPES.items():
        assert message in messages[case]
