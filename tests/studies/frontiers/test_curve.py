import dataclasses
import io
import json

import pytest
from rich.console import Console

from downside.evaluation.seeds import estimate_value

from .by_hand import evaluation, frontier

ROUND = [(1.0, -1.0), (0.9, -0.4), (0.7, -0.1), (0.0, 0.0)]
"""A curve that bends: the second point keeps 0.9 of the mean and gains 0.6 of the tail."""


def test_the_knee_lies_farthest_beyond_the_chord_in_units_of_the_ranges():
    curve = frontier(*ROUND)
    # (0.9 + 0.6 - 1) / sqrt(2) and (0.7 + 0.9 - 1) / sqrt(2): the third point.
    beyond = [curve.beyond_chord(point) for point in curve.points]
    assert beyond == pytest.approx([0.0, 0.353553, 0.424264, 0.0], abs=1e-6)
    assert curve.knee is curve.points[2]


def test_a_knee_that_the_seeds_do_not_agree_on_is_none():
    def seeds(*values):
        return estimate_value([evaluation(v, v - 1) for v in values], "mean", resamples=None)

    sure = frontier((1.0, -1.0), (0.8, -0.2), (0.0, 0.0))
    assert sure.knee is sure.points[1]
    middle = dataclasses.replace(sure.points[1], by_start=seeds(0.2, 0.8, 1.4))
    doubtful = dataclasses.replace(sure, points=(sure.points[0], middle, sure.points[2]))
    assert doubtful.beyond_chord(middle) == pytest.approx(sure.beyond_chord(sure.points[1]))
    assert doubtful.knee is None
    first = dataclasses.replace(sure.points[0], by_start=seeds(-1.0, 1.0, 3.0))
    assert dataclasses.replace(sure, points=(first, *sure.points[1:])).knee is None


def test_the_knee_does_not_depend_on_the_units():
    wide = frontier(*((1000 * mean, tail) for mean, tail in ROUND))
    assert wide.knee is wide.points[2]


@pytest.mark.parametrize(
    "points",
    [
        [(1.0, -1.0), (0.5, -0.5), (0.0, 0.0)],  # on the chord
        [(1.0, -1.0), (0.3, -0.8), (0.0, 0.0)],  # short of it
        [(1.0, -1.0), (0.509, -0.5), (0.0, 0.0)],  # hardly beyond it
        [(0.5, -1.0), (0.9, -0.1), (0.7, 0.0)],  # the start is worse by its own measure
        [(1.0, -1.0), (0.0, 0.0)],  # nothing between the ends
    ],
)
def test_where_nothing_bends_there_is_no_knee(points):
    assert frontier(*points).knee is None


def test_a_point_is_dominated_if_another_is_better_by_both():
    curve = frontier((1.0, -1.0), (0.6, -0.7), (0.8, -0.3), (0.0, 0.0))
    assert curve.dominated == (curve.points[1],)
    assert curve.note(curve.points[1]) == "dominated"
    assert curve.knee is curve.points[2]


def test_a_dominated_point_is_no_knee_even_if_it_is_far_out():
    # Beyond the end by both measures lies the third; the second is far out, yet worse than it.
    curve = frontier((1.0, -1.0), (0.9, -0.2), (0.95, -0.1), (0.0, 0.0))
    assert curve.points[1] in curve.dominated
    assert curve.knee is curve.points[2]


def test_equal_by_one_and_better_by_the_other_dominates_and_equal_by_both_does_not():
    curve = frontier((1.0, -1.0), (1.0, -0.5), (1.0, -0.5), (0.0, 0.0))
    assert curve.dominated == (curve.points[0],)


def test_what_lies_within_the_intervals_is_not_dominated():
    sure = frontier((1.0, -1.0), (0.6, -0.7), (0.8, -0.3), (0.0, 0.0))
    shaky = frontier((1.0, -1.0), (0.6, -0.7), (0.8, -0.3), (0.0, 0.0), spread=0.4)
    # Seeds of one point differ by 0.4 each, those of the other by nothing: t-interval +-0.99.
    points = [sure.points[0], sure.points[1], shaky.points[2], sure.points[3]]
    mixed = dataclasses.replace(sure, points=tuple(points))
    low, high = mixed.difference(points[2], points[1], "start")
    assert low < 0 < high
    assert high - low == pytest.approx(2 * 4.302653 * 0.4 / 3**0.5, rel=1e-5)
    assert points[1] not in mixed.dominated
    assert mixed.monotone


def test_monotone_means_that_no_step_goes_the_wrong_way_beyond_doubt():
    assert frontier(*ROUND).monotone
    assert not frontier((1.0, -1.0), (0.6, -0.7), (0.8, -0.3), (0.0, 0.0)).monotone
    assert not frontier((1.0, -1.0), (0.9, -1.1), (0.0, 0.0)).monotone


def test_the_gap_is_to_the_optimum_of_the_points_own_measure():
    # Half mean, half tail of (0.9, -0.4): 0.25. The optimum of that mixture is 0.3.
    optima = [(1.0, 1.0, -1.0), (0.3, 0.9, -0.3), (0.0, 0.0, 0.0)]
    curve = frontier((1.0, -1.0), (0.9, -0.4), (0.0, 0.0), optima=optima)
    assert [point.gap for point in curve.points] == pytest.approx([0.0, 0.05, 0.0])
    assert frontier(*ROUND).points[0].gap is None


def test_the_typical_agent_is_the_one_in_the_middle():
    curve = frontier(*ROUND, spread=0.1, seeds=3)
    assert curve.points[1].typical.seed == 1
    assert frontier(*ROUND, spread=0.1, seeds=4).points[1].typical.seed == 1


def test_the_table_and_the_numbers_say_the_same():
    curve = frontier(*ROUND, spread=0.01)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(curve.table())
    output = console.export_text()
    assert "knee" in output
    assert "0.7100 ± 0.0248" in output  # 4.3027 * 0.01 / sqrt(3)
    summary = json.loads(json.dumps(curve.summary(), allow_nan=False))
    assert summary["knee"] == "0.333333*mean + 0.666667*cvar(0.5)"
    assert [row["start"] for row in summary["points"]] == pytest.approx([1.01, 0.91, 0.71, 0.01])
    assert summary["seeds"] == [0, 1, 2]


def test_the_picture_has_the_exact_curve_only_where_it_is_known():
    optima = [(0.0, mean + 0.1, tail + 0.1) for mean, tail in ROUND]
    for given, wanted in [(None, False), (optima, True)]:
        (axis,) = frontier(*ROUND, optima=given).plot().axes
        legend = axis.get_legend()
        assert legend is not None
        output = [text.get_text() for text in legend.get_texts()]
        assert ("exact optimum" in output) == wanted
