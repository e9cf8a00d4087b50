"""Example 3 with an agent that takes a second to train."""

import json
from types import SimpleNamespace

import pytest

import downside as ds
from downside.experiments import example3
from downside.experiments._options import Options
from downside.experiments._rows import read_rows, write_rows

from ..train.tiny import ENV, TINY, TWO


@pytest.fixture(scope="module")
def stories():
    agent = ds.QRSRM(ENV, risk="cvar(0.5)", **TINY).learn(TWO)
    learned = ds.explain(agent, episode_seed=6, checks=0, returns="learned")
    return learned, ds.explain(agent, episode_seed=6, checks=0, returns="simulated")


@pytest.mark.slow
def test_the_table_has_the_rows_of_the_paper_and_the_true_level(stories):
    rows = example3.rows(example3.table(*stories))
    assert [row[0] for row in rows] == list(example3.COLUMNS)
    by_name = {row[0].split()[-1]: row[1:] for row in rows}
    assert by_name["P"][0] == "1.000"
    assert by_name["c"] == ("1.000", "0.990", "0.980", "0.970")
    assert by_name["learned"][0] == "0.500"
    assert by_name["a"][-1] == by_name["r"][-1] == ""
    # What is held next is what was held and what was traded.
    held, traded = ([float(x) for x in by_name[name] if x] for name in ("q", "a"))
    assert held[1] == pytest.approx(held[0] + traded[0])


@pytest.mark.parametrize(
    ("name", "amount"), [("buy 0.4", 0.4), ("sell 2", -2.0), ("do nothing", 0.0), ("", None)]
)
def test_a_trade_is_a_number(name, amount):
    assert example3._amount(name) == amount


def test_every_step_is_written_with_its_true_level(stories, tmp_path):
    learned, true = stories
    write_rows(tmp_path / "rows.csv", example3.table(learned, true))
    rows = read_rows(tmp_path / "rows.csv")
    assert [float(row["true_level"]) for row in rows] == [step.level for step in true.steps]
    assert [float(row["level"]) for row in rows] == [step.level for step in learned.steps]


def test_an_example_that_failed_its_checks_still_fails_when_it_is_there(monkeypatch, tmp_path):
    options = Options(results=tmp_path, preset="default")
    settings = example3._study(options, "default").runs[0].group_key
    for checks, fine in (("does not hold", False), ("nearly holds", True)):
        write_rows(tmp_path / "example3-default.csv", [{"level": 0.5}])
        about = {"checks": checks, "settings": settings, "seeds": [0]}
        (tmp_path / "example3-default.json").write_text(json.dumps(about))
        assert example3.main(options) == fine
    about = {"checks": "holds", "settings": "0badcafe", "seeds": [0]}
    about["kept_settings"] = ["0badcafe"]
    (tmp_path / "example3-default.json").write_text(json.dumps(about))
    assert example3.main(options)
    # Made with other settings or another seed, it does not count.
    monkeypatch.setattr(example3, "sweep", _interrupted)
    for other in ({"settings": "0badcafe"}, {"seeds": [3]}):
        about = {"checks": "holds", "settings": settings, "seeds": [0], **other}
        (tmp_path / "example3-default.json").write_text(json.dumps(about))
        with pytest.raises(KeyboardInterrupt):
            example3.main(options)


def test_the_episode_that_is_shown_is_the_first_that_goes_both_ways(monkeypatch):
    levels = {0: [0.5, 0.7, 0.3], 1: [0.5, 0.1, 0.3], 2: [0.5, 0.7, 0.1, 0.0], 3: [0.7, 0.1]}

    def story(agent, episode_seed, checks, returns):
        assert returns == "learned"
        # The last step is the end, where there is nothing left to risk.
        return SimpleNamespace(
            steps=[SimpleNamespace(level=x) for x in [*levels[episode_seed % 4], 0.0]]
        )

    monkeypatch.setattr(example3, "explain", story)
    agent = ds.QRSRM(ENV, risk="cvar(0.5)", **TINY)
    assert example3.telling_episode(agent) == 2
    levels[2] = levels[3] = [0.5]
    assert example3.telling_episode(agent) == 0


def _interrupted(*arguments, **named):
    raise KeyboardInterrupt
