"""`downside explain` and `downside report`."""

import json

import pytest

import downside as ds
from downside import cli

from ..train.tiny import ENV, TINY, TWO


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "careful"
    folder.mkdir()
    agent = ds.QRSRM(ENV, risk="cvar(0.5)", **TINY).learn(TWO)
    agent.save(folder / "policy")
    return folder / "policy"


def test_explain_prints_the_table_the_words_and_the_verdict_and_writes_the_page(run, capsys):
    cli.main(["explain", str(run), "--checks", "50"])
    said = " ".join(capsys.readouterr().out.split())
    assert "policy, cvar(0.5), episode 0" in said
    assert "At the start the agent cares about the worst 50% of outcomes." in said
    assert "Do not rely on this explanation" in said
    assert "explain.html" in said
    assert (run.parent / "explain.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_explain_speaks_json(run, capsys, tmp_path):
    out = tmp_path / "page.html"
    cli.main(["explain", str(run), "--checks", "0", "--json", "--out", str(out), "--episodes", "2"])
    told = json.loads(capsys.readouterr().out)
    assert told["risk"] == "cvar(0.5)"
    assert [len(rows) for rows in told["episodes"]] == [4, 4]
    assert told["episodes"][0][0]["levels"] == pytest.approx([0.5])
    assert out.exists()


def test_report_writes_one_page_for_several_runs(run, capsys, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    out = tmp_path / "both.html"
    runs = [str(run), str(run)]
    more = ["--episodes", "200", "--checks", "20", "--told", "1", "--open"]
    cli.main(["report", *runs, "--out", str(out), *more])
    said = capsys.readouterr().out
    assert said.count("policy") >= 2
    assert "does not" in said  # a narrow terminal breaks the line there
    assert opened == [out.as_uri()]


def test_a_run_that_is_not_there_is_said_in_one_line(capsys, tmp_path):
    with pytest.raises(SystemExit) as left:
        cli.main(["explain", str(tmp_path / "nothing")])
    assert left.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1
