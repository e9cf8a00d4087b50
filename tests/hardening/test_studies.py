"""One bad run stops no study: it is reported with its file and the reason, and made again."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import downside as ds
from downside import cli
from downside.runs import evaluation_problem, list_runs, listing, read_run, run_info, run_returns
from downside.studies import StudyError, read_study
from downside.studies.engines import Report
from downside.studies.storage import attempts, state
from downside.train.monitor import saved_in

from ..studies.conftest import copied, done, inline  # noqa: F401
from ..studies.tiny import SPEED, as_toml, study

pytestmark = pytest.mark.slow  # the fixtures train agents, or studies run

TWO_RISKS = {"risks": ["cvar(0.5)", "cvar(0.2)"]}


def truncated(name):
    def damage(folder):
        path = folder / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def flipped(folder):
    path = folder / "returns.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def other_value(folder):
    path = folder / "evaluation.json"
    about = json.loads(path.read_text())
    about["values"][0]["value"] += 1.0
    path.write_text(json.dumps(about))


def as_folder(folder):
    (folder / "evaluation.json").unlink()
    (folder / "evaluation.json").mkdir()


def deleted(folder):
    shutil.rmtree(folder)


def without_returns(folder):
    (folder / "returns.npy").unlink()


DAMAGE = {
    "evaluation.json cut short": (truncated("evaluation.json"), r"evaluation\.json is no JSON"),
    "evaluation.json changed": (other_value, r"evaluation\.json was changed after it was written"),
    "evaluation.json a folder": (as_folder, r"must be a regular file, got a folder"),
    "returns.npy cut short": (truncated("returns.npy"), r"returns\.npy was changed"),
    "returns.npy changed": (flipped, r"returns\.npy was changed after it was written"),
    "returns.npy deleted": (without_returns, None),
    "the whole folder deleted": (deleted, None),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_run_is_reported_and_made_again(copied, inline, kind, capfd):  # noqa: F811
    damage, reason = DAMAGE[kind]
    first = read_study(study(**TWO_RISKS)).runs[0]
    run_folder = copied / first.name
    before = np.load(run_folder / "returns.npy")
    damage(run_folder)
    assert state(run_folder, first.episodes) != "finished"
    if reason is not None:
        with pytest.raises(ValueError, match=reason):
            run_returns(run_folder)
        assert run_info(run_folder).status == "damaged"
    result = ds.sweep(study(**TWO_RISKS), folder=copied, progress_bar=True)
    assert inline.submitted == [first.key]
    assert not result.failed
    np.testing.assert_array_equal(np.load(run_folder / "returns.npy"), before)
    printed = " ".join(capfd.readouterr().err.split())
    if kind == "evaluation.json a folder":
        # Nobody but the user removes a folder.
        assert (run_folder / "evaluation.json.aside-1").is_dir()
    elif reason is not None:
        assert "again" in printed
        assert "digest" in printed or "no JSON" in printed


def as_file(folder):
    shutil.rmtree(folder)
    folder.write_text("")


def error_as_folder(folder):
    (folder / "evaluation.json").unlink()
    (folder / "error.txt").mkdir()


def lock_as_link(folder):
    (folder / "evaluation.json").unlink()
    (folder.parent / "precious").write_text("of the user")
    (folder / ".lock").symlink_to(folder.parent / "precious")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (as_file, "could not be made: there is a file of that name"),
        (error_as_folder, r"error.txt must be a regular file, got a folder"),
        (lock_as_link, r"\.lock must be a file, got a link or a folder"),
    ],
)
def test_what_cannot_be_made_again_is_named_and_the_others_go_on(
    copied,  # noqa: F811
    inline,  # noqa: F811
    damage,
    reason,
):
    first, second = read_study(study(**TWO_RISKS)).runs[:2]
    damage(copied / first.name)
    (copied / second.name / "evaluation.json").unlink()
    result = ds.sweep(study(**TWO_RISKS), folder=copied)
    (error,) = result.failed.values()
    assert re.search(reason, error)
    assert [group.finished for group in result.groups] == [1, 2]
    if damage is lock_as_link:
        assert (copied / "precious").read_text() == "of the user"


def test_a_pipe_for_a_log_blocks_nobody(copied, inline):  # noqa: F811
    run_folder = copied / read_study(study(**TWO_RISKS)).runs[0].name
    (run_folder / "evaluation.json").unlink()
    for path in (run_folder / "attempts.jsonl", run_folder / "log_1" / "progress.jsonl"):
        path.unlink()
        os.mkfifo(path)
    assert not ds.sweep(study(**TWO_RISKS), folder=copied).failed


def unsigned(path, change):
    """Changes a JSON file and drops its digest, as an older version wrote it."""
    about = json.loads(path.read_text())
    del about["sha256"]
    change(about)
    path.write_text(json.dumps(about))


@pytest.mark.parametrize("value", [10**400, True, None, "x", float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_damage(copied, value, capsys):  # noqa: F811
    run_folder = copied / read_study(study(**TWO_RISKS)).runs[0].name
    unsigned(run_folder / "evaluation.json", lambda about: about["values"][0].update(value=value))
    assert "has a value that is none" in str(run_info(run_folder).problem)
    cli.main(["runs", str(copied)])
    assert "damaged" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", ['{"timesteps": Infinity}', '{"timesteps": 5, "simulated_steps": 1' + "0" * 400 + "}"]
)
def test_a_line_of_the_log_that_says_nothing_is_passed_over(copied, line):  # noqa: F811
    run_folder = copied / read_study(study(**TWO_RISKS)).runs[0].name
    (run_folder / "log_1" / "progress.jsonl").write_text(line + "\n")
    assert run_info(run_folder).simulated_steps == 0


def test_files_that_vanish_while_a_run_is_listed_stop_no_list(
    copied,  # noqa: F811
    monkeypatch,
):
    folder = copied / read_study(study(**TWO_RISKS)).runs[0].name
    assert run_info(folder).status == "finished"

    def deleted_meanwhile(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(listing, "read_lines", deleted_meanwhile)
    assert (run_info(folder).status, run_info(folder).simulated_steps) == ("finished", 0)
    monkeypatch.setattr(listing, "read_evaluation", deleted_meanwhile)
    assert run_info(folder).status == "unfinished"


def test_a_folder_that_is_deleted_while_its_run_trains_is_whole_in_the_end(
    tmp_path,
    inline,  # noqa: F811
    monkeypatch,
):
    from downside.train.monitor import Checkpoints

    first = read_study(study(seeds=1)).runs[0]
    run_folder, plain = tmp_path / first.name, Checkpoints.on_step

    def gone(self, agent):
        plain(self, agent)
        shutil.rmtree(run_folder, ignore_errors=True)

    monkeypatch.setattr(Checkpoints, "on_step", gone)
    result = ds.sweep(study(seeds=1), folder=tmp_path)
    assert not result.failed
    assert read_run(run_folder)["seed"] == first.seed
    assert run_info(run_folder).status == "finished"
    assert result.groups[0].finished == 1


def test_a_run_that_cannot_be_read_in_the_end_is_left_out_and_named(
    copied,  # noqa: F811
    monkeypatch,
):
    from downside.studies import summary

    runs = read_study(study(**TWO_RISKS)).runs

    def read(folder):
        if folder.name == runs[0].name:
            truncated("returns.npy")(folder)
        return run_returns(folder)

    monkeypatch.setattr(summary, "run_returns", read)
    result = ds.sweep(study(**TWO_RISKS), folder=copied)
    (name,) = result.failed
    assert name == runs[0].name
    assert "returns.npy was changed" in result.failed[name]
    assert [group.finished for group in result.groups] == [1, 2]
    assert "returns.npy was changed" in result.report.read_text()


def test_checkpoints_of_which_none_can_be_read_are_set_aside(copied, inline):  # noqa: F811
    first = read_study(study(**TWO_RISKS)).runs[0]
    run_folder = copied / first.name
    before = np.load(run_folder / "returns.npy")
    (run_folder / "evaluation.json").unlink()
    (path,) = saved_in(run_folder)
    truncated(path.name)(run_folder)
    result = ds.sweep(study(**TWO_RISKS), folder=copied)
    assert not result.failed
    np.testing.assert_array_equal(np.load(run_folder / "returns.npy"), before)
    assert "damaged" in [event["what"] for event in attempts(run_folder)]
    assert list(run_folder.glob("*.aside-1"))


@pytest.mark.parametrize("text", ["{}", "[]", "", "{", '{"agent": 3}', "\xff"])
def test_a_run_json_that_says_nothing_is_listed_and_made_again(
    copied,  # noqa: F811
    text,
    capsys,
):
    first = read_study(study(**TWO_RISKS)).runs[0]
    run_folder = copied / first.name
    (run_folder / "run.json").write_bytes(text.encode("latin-1"))
    cli.main(["runs", str(copied), "--json"])
    rows = {Path(row["folder"]).name: row for row in json.loads(capsys.readouterr().out)}
    assert rows[first.name]["status"] == "damaged"
    assert "run.json" in rows[first.name]["problem"]
    assert [row["status"] for row in rows.values()].count("finished") == 3
    cli.main(["runs", str(copied)])
    assert "run.json" in capsys.readouterr().out
    if text == "{}":
        with pytest.warns(UserWarning, match=r"does not say `agent`.* made again from the check"):
            cli.main(["resume", str(run_folder), "--json"])
        assert run_info(run_folder).status == "finished"
        assert read_run(run_folder)["total_timesteps"] == first.total_timesteps


def test_a_path_in_square_brackets_is_printed_as_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    cli.main(["runs", "[/b]"])
    assert "There are no runs in [/b]." in capsys.readouterr().out
    solve = ["solve", "downside/AmericanPut-v0", "--risk", "mean", "--episodes", "100"]
    cli.main([*solve, "--out", "x[/b][red]"])
    assert "x[/b][red]/plan.json" in capsys.readouterr().out


# --- what hangs -------------------------------------------------------------------------------


def test_a_run_that_takes_too_long_is_asked_to_end_then_ended_and_has_failed(
    tmp_path,
    inline,  # noqa: F811
    monkeypatch,
):
    from downside.studies import driver

    monkeypatch.setattr(driver, "_GRACE", 0.05)
    ended = []
    slow = read_study(study()).runs[0].key

    class Slow(type(inline)):
        def submit(self, key, task):
            if key != slow:
                super().submit(key, task)

        def end(self, key, *, at_once):
            ended.append((key, at_once))
            if at_once:
                self.reports.append(Report(key, "died", "The process was killed by signal 9."))

    monkeypatch.setattr(driver, "make_engine", lambda *_, **__: Slow())
    result = ds.sweep(study(), folder=tmp_path, timeout=0.2)
    assert ended == [(slow, False), (slow, True)]
    (error,) = result.failed.values()
    assert "It took longer than `timeout`, 0.2 seconds" in error
    assert "goes on from the beginning" in error
    assert result.groups[0].finished == 1
    with pytest.raises(ValueError, match="`timeout` must be a number of seconds > 0, or None"):
        ds.sweep(study(), folder=tmp_path, timeout=0)


HANGS = """
import time
import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class Hangs(CartPoleEnv):
    steps = 0

    def step(self, action):
        Hangs.steps += 1
        while Hangs.steps > 100:
            time.sleep(0.1)
        return super().step(action)


gym.register("Hangs-v0", Hangs, max_episode_steps=10)
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["timeout", "SIGTERM"])
def test_a_study_with_a_run_that_hangs_ends_within_seconds(tmp_path, how):
    (tmp_path / "hangs.py").write_text(HANGS)
    table = study(seeds=1)
    table["environments"] = [{"id": "hangs:Hangs-v0"}]
    table["agents"] = [{"name": "qrdqn", "hidden_sizes": [8], "warmup_steps": 20, "num_envs": 2}]
    (tmp_path / "study.toml").write_text(as_toml(table))
    more = ["--timeout", "20"] if how == "timeout" else []
    with subprocess.Popen(
        [sys.executable, "-m", "downside", "sweep", "study.toml", "--folder", "here", *more],
        cwd=tmp_path,
        env={**os.environ, **SPEED},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if how == "SIGTERM":
            time.sleep(30)
            process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        _, printed = process.communicate(timeout=120)
    seconds = time.monotonic() - begin
    if how == "SIGTERM":
        assert process.returncode == 143, printed
        assert seconds < 20
    else:
        assert process.returncode == 1
        assert "took longer than `timeout`, 20 seconds" in printed
        assert seconds < 60


# --- studies that are none ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "the study is no TOML"),
        ("a = " + "9" * 5000, "the study is no TOML"),
        ("[study]\nname = 'a'\nseeds = " + "9" * 400, r"study\.seeds: Numbers must be in"),
        ("[[agents]]\nname = 'qrsrm'\nquantiles = 1" + "0" * 30, r"agents\[0\]\.quantiles: Numb"),
        ("[study]\nname = 'a'\nseeds = 2_000_000", r"`seeds` must be how many.* <= 1,000,000"),
        ("a = " + "[" * 40 + "]" * 40, "nested at most 20 deep"),
    ],
)
def test_a_file_without_end_is_refused(tmp_path, text, message):
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=message):
        read_study(path)


def test_a_hundred_thousand_seeds_are_checked_in_seconds():
    begin = time.process_time()
    runs = read_study(study(seeds=100_000)).runs
    assert len({run.name for run in runs}) == 100_000
    assert time.process_time() - begin < 13.0  # half of what it took to check them one by one
    # The key is that of a run that was written by hand.
    for run in (runs[0], runs[-1]):
        assert dataclasses.replace(run).key == run.key


def test_what_is_wrong_with_an_evaluation_is_told(done):  # noqa: F811
    run_folder = done.folder / done.study.runs[0].name
    assert evaluation_problem(run_folder, 100) is None
    assert evaluation_problem(run_folder, 99) == ""
    assert evaluation_problem(run_folder / "nowhere") == ""
    assert len(list_runs(done.folder)) == 4
