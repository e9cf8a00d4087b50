"""Two writers of one folder: the second is told who has it, or waits, and nothing is mixed up."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import downside as ds
from downside import _locks, cli
from downside._locks import LOCK, FolderLockedError, lock, tidy
from downside.runs import keep_run, train_run, value_run

from ..studies.tiny import SPEED, as_toml, study
from ..test_cli import ENV, SMALL
from ..train.tiny import TWO, make, same

TRAIN = ["train", *ENV, "--risk", "cvar(0.5)", "--steps", "64", "--episodes", "50", *SMALL]
HOLD = """
import sys, time
from downside._locks import lock
with lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def held(tmp_path):
    """A folder that another process writes, and its number."""
    folder = tmp_path / "mine"
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        yield folder, other
        other.kill()


COMMANDS = {
    "train": [*TRAIN, "--out", "mine"],
    "resume": ["resume", "mine"],
    "frontier": ["frontier", *ENV, "--points", "2", "--seeds", "0", "--out", "mine", *SMALL],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_second_writer_is_told_who_has_the_folder(held, command, monkeypatch, capsys):
    folder, other = held
    monkeypatch.chdir(folder.parent)
    (folder / "run.json").write_text("{}")  # for `resume`, which wants to see a run
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(SystemExit) as stop:
        cli.main(COMMANDS[command])
    assert stop.value.code == 1
    printed = capsys.readouterr().err
    assert f"mine is being written by process {other.pid} on " in printed
    assert "Wait until it is done, stop it, or take another folder" in printed
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.slow
def test_from_python_it_is_the_same(held):
    folder, _ = held
    agent = make().learn(TWO)
    for write in (
        lambda: train_run(make(), folder, total_timesteps=TWO),
        lambda: keep_run(agent, folder, episodes=20),
        lambda: value_run(agent, folder, 20),
    ):
        with pytest.raises(FolderLockedError, match=r"mine is being written by process \d+"):
            write()


def test_the_lock_of_a_process_that_was_killed_is_no_lock(held):
    folder, other = held
    other.kill()
    other.wait()
    assert (folder / LOCK).exists()
    with lock(folder):
        assert json.loads((folder / LOCK).read_text())["process"] == os.getpid()
    assert not (folder / LOCK).exists()


def test_a_thread_may_take_its_lock_again_and_another_may_not(tmp_path):
    caught = []

    def other():
        try:
            with lock(tmp_path):
                pass
        except FolderLockedError as error:
            caught.append(str(error))

    with lock(tmp_path):
        with lock(tmp_path):
            assert (tmp_path / LOCK).exists()
        assert (tmp_path / LOCK).exists()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "by another thread of this program" in caught[0]
    assert not (tmp_path / LOCK).exists()


def test_who_waits_gets_the_lock_when_it_is_free(tmp_path):
    events = []

    def other():
        with lock(tmp_path, wait=True):
            events.append("other")

    thread = threading.Thread(target=other)
    with lock(tmp_path):
        thread.start()
        time.sleep(0.15)
        events.append("first")
    thread.join()
    assert events == ["first", "other"]


FORK = """
import os, signal, sys, time
from downside._locks import lock
with lock(sys.argv[1]):
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(600)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_process_does_not_keep_the_lock_of_a_parent_that_was_killed(tmp_path):
    # As a worker of an asynchronous vector environment, which may outlive its parent.
    with subprocess.Popen([sys.executable, "-c", FORK, tmp_path], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            assert parent.wait() == -signal.SIGKILL
            os.kill(child, 0)  # it is there
            with lock(tmp_path):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_disk_without_locks_is_a_warning_or_an_error(tmp_path, monkeypatch):
    def none(*_):
        raise OSError("not supported")

    assert _locks.fcntl is not None
    monkeypatch.setattr(_locks.fcntl, "flock", none)
    with pytest.warns(UserWarning, match=r"without file locks \(not supported\)"), lock(tmp_path):
        pass
    refused = lock(tmp_path, required=True)
    with pytest.raises(OSError, match=r"without file locks .*NFS has locks from version 4"):
        refused.__enter__()


# --- both at once, in earnest -----------------------------------------------------------------


def both(*commands, cwd):
    """Runs commands side by side; their exit codes, and what they said."""
    program = [sys.executable, "-m", "downside"]
    started = [
        subprocess.Popen(
            [*program, *command],
            cwd=cwd,
            # Compiled as in this process: only then are runs equal bit for bit.
            env={**os.environ, **SPEED},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    printed = [process.communicate(timeout=300) for process in started]
    return [process.returncode for process in started], [out + err for out, err in printed]


@pytest.mark.long
def test_two_trainings_in_one_folder_are_one_run_and_one_message(tmp_path):
    # Long enough that the second starts while the first is at it.
    arguments = [*TRAIN, "--steps", "6400", "--out", "mine"]
    codes, printed = both([*arguments, "--seeds", "0"], [*arguments, "--seeds", "1"], cwd=tmp_path)
    assert sorted(codes) == [0, 1]
    refused = printed[codes.index(1)]
    assert "is being written by process" in refused or "There is a run in mine already" in refused
    seed = codes.index(0)
    agent = ds.load(tmp_path / "mine")
    assert json.loads((tmp_path / "mine" / "run.json").read_text())["seed"] == agent.seed == seed


@pytest.mark.long
def test_two_that_resume_write_the_log_once(tmp_path):
    from downside.train.driver import Driver

    folder, chunks = tmp_path / "mine", Driver.chunks

    def first_step(self):
        yield next(chunks(self))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "chunks", first_step)
        with pytest.raises(KeyboardInterrupt):
            train_run(make(), folder, total_timesteps=100 * TWO, episodes=50)
    codes, _ = both(["resume", "mine"], ["resume", "mine"], cwd=tmp_path)
    assert 0 in codes
    (path,) = folder.glob("log_*/progress.jsonl")
    steps = [json.loads(line)["timesteps"] for line in path.read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert same(ds.load(folder), make().learn(100 * TWO))


@pytest.mark.long
def test_two_sweeps_of_one_study_share_its_runs(tmp_path):
    (tmp_path / "study.toml").write_text(as_toml(study(seeds=4)))
    command = ["sweep", "study.toml", "--folder", "here", "--workers", "1"]
    codes, printed = both(command, command, cwd=tmp_path)
    assert codes == [0, 0], printed
    result = ds.sweep(study(seeds=4), folder=tmp_path / "here")
    assert result.groups[0].finished == 4
    for run in result.study.runs:
        events = [
            json.loads(line)["what"]
            for line in (tmp_path / "here" / run.name / "attempts.jsonl").read_text().splitlines()
        ]
        assert events == ["began", "finished"]


@pytest.mark.long
def test_two_frontiers_two_plans_and_two_reports_leave_whole_files(tmp_path):
    frontier = ["frontier", *ENV, "--points", "2", "--seeds", "0", "--steps", "64", "--no-exact"]
    more = ["--episodes", "50", "--checks", "10", "--explained-episodes", "1", "--out", "f"]
    codes, printed = both([*frontier, *more, *SMALL], [*frontier, *more, *SMALL], cwd=tmp_path)
    assert 0 in codes, printed
    assert all(
        code == 0 or "is being written by" in text
        for code, text in zip(codes, printed, strict=True)
    )
    assert json.loads((tmp_path / "f" / "frontier.json").read_text())["points"]
    solve = ["solve", "downside/AmericanPut-v0", "--episodes", "100", "--out", "p", "--risk"]
    codes, printed = both([*solve, "mean"], [*solve, "cvar(0.6)"], cwd=tmp_path)
    assert codes == [0, 0], printed
    assert json.loads((tmp_path / "p" / "plan.json").read_text())["value"] > 0
    make().learn(TWO).save(tmp_path / "agent")
    report = [
        "report",
        "agent.safetensors",
        "--episodes",
        "50",
        "--checks",
        "10",
        "--out",
        "r.html",
    ]
    codes, printed = both([*report, "--title", "a"], [*report, "--title", "b"], cwd=tmp_path)
    assert codes == [0, 0], printed
    assert (tmp_path / "r.html").read_text().rstrip().endswith("</html>")
    left = [path.name for path in tmp_path.rglob(".*")]
    assert left == []


def test_a_lock_that_a_killed_process_left_in_a_finished_folder_is_removed(tmp_path):
    (tmp_path / ".lock").write_text('{"process": 1, "host": "elsewhere"}')
    tidy(tmp_path)
    assert not (tmp_path / ".lock").exists()


def test_the_lock_of_a_process_that_writes_stays(tmp_path):
    holding = threading.Event(), threading.Event()

    def hold():
        with lock(tmp_path):
            holding[0].set()
            holding[1].wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding[0].wait(10)
    tidy(tmp_path)
    assert (tmp_path / ".lock").exists()
    holding[1].set()
    thread.join()
    assert not (tmp_path / ".lock").exists()
