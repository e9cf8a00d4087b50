"""`ds.sweep`: every run once, bit for bit what it would be alone, whatever else fails."""

import json

import numpy as np
import pytest

import downside as ds
from downside import cli
from downside.runs import EVALUATION_SEED, evaluation, is_valued, list_runs, value_run
from downside.studies import read_study
from downside.studies.engines import Report
from downside.studies.storage import attempts

from ..train.tiny import CHUNK
from .tiny import as_toml, study

# --- results ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_run_is_bit_for_bit_what_it_would_be_alone(done):
    assert len(done.study.runs) == 4
    for cell in done.study.runs[1:3]:
        agent = cell.make_agent().learn(cell.total_timesteps)
        evaluation = ds.evaluate(agent, episodes=100, seed=EVALUATION_SEED + cell.seed)
        there = np.load(done.folder / cell.name / "returns.npy")
        np.testing.assert_array_equal(there, evaluation.returns)
        again = ds.load(done.folder / cell.name)
        np.testing.assert_array_equal(
            again.simulate_returns(20, seed=3), agent.simulate_returns(20, seed=3)
        )


def test_a_run_is_a_run_folder_like_any_other(done):
    runs = list_runs(done.folder)
    assert {one.folder for one in runs} == {str(done.folder / c.name) for c in done.study.runs}
    assert {(one.status, one.timesteps) for one in runs} == {("finished", 2 * CHUNK)}


def test_what_is_finished_is_not_run_again(done, inline):
    again = ds.sweep(study(risks=["cvar(0.5)", "cvar(0.2)"]), folder=done.folder)
    assert inline.submitted == []
    assert again.groups == done.groups
    assert [one["what"] for one in attempts(done.folder / done.study.runs[0].name)] == [
        "began",
        "finished",
    ]


def test_a_study_that_grows_runs_only_what_is_new(copied, inline):
    more = ds.sweep(study(risks=["cvar(0.5)", "cvar(0.2)"], seeds=3), folder=copied)
    assert sorted(inline.submitted) == sorted(one.key for one in more.study.runs if one.seed == 2)
    assert [one.finished for one in more.groups] == [3, 3]


@pytest.mark.slow
def test_other_episodes_need_no_training(copied, inline, monkeypatch):
    def trained(*_, **__):
        raise AssertionError("it was trained again")

    monkeypatch.setattr("downside.train.driver.Driver.chunks", trained)
    result = ds.sweep(study(episodes=50), folder=copied)
    folder = copied / result.study.runs[0].name
    assert len(np.load(folder / "returns.npy")) == 50
    assert not result.failed
    ds.sweep(study(), folder=copied)
    assert len(np.load(folder / "returns.npy")) == 100


@pytest.mark.slow
def test_a_study_that_says_no_episodes_has_one_number_of_them(copied, inline, monkeypatch):
    # What was valued in 100 episodes is not taken for what is to be valued in the default number.
    monkeypatch.setattr("downside.train.backends.jax.backend.JaxBackend.default_episodes", 150)
    table = study(seeds=3)
    del table["study"]["episodes"]
    result = ds.sweep(table, folder=copied)
    lengths = [len(np.load(copied / one.name / "returns.npy")) for one in result.study.runs]
    assert lengths == [150] * 3


def test_a_run_that_goes_on_is_valued_once(copied, inline, monkeypatch):
    cell = read_study(study(seeds=1)).runs[0]
    (copied / cell.name / "evaluation.json").unlink()
    played = []
    before = evaluation.evaluate

    def evaluate(agent, *, episodes, seed):
        played.append(episodes)
        return before(agent, episodes=episodes, seed=seed)

    monkeypatch.setattr(evaluation, "evaluate", evaluate)
    ds.sweep(study(seeds=1, episodes=50), folder=copied)
    assert played == [50]


def test_new_returns_do_not_stand_beside_the_values_of_others(copied, monkeypatch):
    run_folder = copied / read_study(study()).runs[0].name

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(evaluation, "write_json", full)
    with pytest.raises(OSError, match="No space left"):
        value_run(ds.load(run_folder), run_folder, 50)
    assert not is_valued(run_folder)


# --- the command ------------------------------------------------------------------------------


def test_the_command_prints_the_table_and_the_dry_run_only_lists(
    done, tmp_path, capsys, inline, monkeypatch
):
    path = tmp_path / "study.toml"
    path.write_text(as_toml(study(risks=["cvar(0.5)", "cvar(0.2)"])))
    cli.main(["sweep", str(path), "--folder", str(done.folder)])
    output = capsys.readouterr().out
    assert "cvar(0.5)" in output
    assert "report.html" in output
    cli.main(["sweep", str(path), "--folder", str(done.folder), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert [one["risk"] for one in shown["groups"]] == ["cvar(0.5)", "cvar(0.2)"]
    monkeypatch.chdir(tmp_path)
    cli.main(["sweep", str(path), "--dry-run"])
    output = capsys.readouterr().out
    assert output.count("new  ") == 4
    assert "4 runs in studies/tiny, 4 to do." in output
    assert not (tmp_path / "studies").exists()
    inline.fate = lambda key, task: Report(key, "died", "no luck")
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", str(path)])
    assert stop.value.code == 1
    assert "4 of 4 runs failed; the first: studies/tiny/Mean" in capsys.readouterr().err


def test_the_command_reports_all_errors_of_a_study(tmp_path, capsys):
    path = tmp_path / "study.toml"
    path.write_text('[study]\nnme = "a"\n[[environments]]\nid = "CartPole-v2"\n')
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", str(path)])
    assert stop.value.code == 1
    output = capsys.readouterr().err
    assert "study.toml: study.nme: [study] has no `nme`. Did you mean 'name'?" in output
    assert (
        "study.toml: environments[0].id: `env` must be the id of a registered environment" in output
    )
    assert "A study needs at least one [[agents]]" in output
