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


@pytest.mark.slow
def test_explain_prints_the_table_the_words_and_the_verdict_and_writes_the_page(run, capsys):
    cli.main(["explain", str(run), "--checks", "50", "--learned"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "policy, cvar(0.5), episode 0" in printed
    assert "At the start the agent cares about the worst 50% of outcomes." in printed
    assert "Do not rely on this explanation" in printed
    assert "It has learned from 64 environment steps and " in printed
    assert "explain.html" in printed
    assert (run.parent / "explain.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_explain_speaks_json(run, capsys, tmp_path):
    out = tmp_path / "page.html"
    cli.main(["explain", str(run), "--checks", "0", "--json", "--out", str(out), "--episodes", "2"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["risk"] == "cvar(0.5)"
    assert printed["timesteps"] == 64
    assert printed["simulated_steps"] > 64
    assert [len(rows) for rows in printed["episodes"]] == [4, 4]
    assert printed["episodes"][0][0]["levels"] == pytest.approx([0.5], abs=0.05)
    assert out.exists()


@pytest.mark.slow
def test_report_writes_one_page_for_several_runs(run, capsys, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setenv("COLUMNS", "160")
    out = tmp_path / "both.html"
    runs = [str(run), str(run)]
    more = ["--episodes", "200", "--checks", "100", "--explained-episodes", "1", "--open"]
    cli.main(["report", *runs, "--out", str(out), *more])
    printed = capsys.readouterr().out
    assert printed.count("policy") >= 2
    # Each was trained for 64 steps, and simulated more.
    assert printed.count(" 64 + ") == 2
    assert printed.count("does not hold") == 2
    assert opened == [out.as_uri()]


def test_a_run_that_is_not_there_is_an_error_of_one_line(capsys, tmp_path):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["explain", str(tmp_path / "nothing")])
    assert exit_info.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1
