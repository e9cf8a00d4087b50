"""Each write, flush, rename and removal fails in turn: what is there is the state before or after,
never between, and the message names the file."""

import json
import random
import shutil

import numpy as np
import pytest

import downside as ds
from downside.reporting import make_section
from downside.runs import is_valued, resume_run, run_info, train_run
from downside.studies.storage import attempts
from downside.train.monitor import saved_in

from ..studies.conftest import inline  # noqa: F401
from ..studies.tiny import study
from ..train.tiny import CHUNK, TWO, make, same
from .faults import FaultyFiles, debris

FEW = 6
"""Faults that are tried each time; `make test-long` tries all."""
pytestmark = pytest.mark.filterwarnings("ignore:.*Taking the one before it")


def points(operations, every):
    """The numbers of the operations that fail: all, or a few of different kinds and files."""
    if every:
        return list(range(len(operations)))
    first = {}
    for number, (kind, name) in enumerate(operations):
        first.setdefault((kind, file_of(name)), number)
    return sorted(random.Random(0).sample(sorted(first.values()), FEW))


def file_of(name):
    """The file that an operation is about, also if it is a temporary or a numbered one."""
    return name.rpartition("-")[2] if name.startswith(".tmp-") else name.partition(".out")[0]


def outcome(action, *arguments, layer):
    """The error of an action under a layer of faults; None if it went well all the same."""
    try:
        with layer:
            action(*arguments)
    except OSError as error:
        return str(error)
    return None


def lines(folder):
    """The steps in the log of a run; that it is one log is part of what is tested."""
    (path,) = folder.glob("log_*/progress.jsonl")
    return [json.loads(line)["timesteps"] for line in path.read_text().splitlines()]


# --- save -------------------------------------------------------------------------------------


def test_a_save_that_fails_anywhere_leaves_the_old_file_or_the_new_one(tmp_path):
    old, new = make().learn(CHUNK), make(seed=1).learn(TWO)
    path = old.save(tmp_path / "a" / "agent")
    with FaultyFiles(tmp_path) as counted:
        new.save(path)
    assert {kind for kind, _ in counted.operations} >= {"open", "write", "fsync", "rename"}
    states = set()
    for number in range(len(counted.operations)):
        old.save(path)
        layer = FaultyFiles(tmp_path, number)
        error = outcome(new.save, path, layer=layer)
        assert error is not None
        assert "agent.safetensors could not be written" in error
        assert "No space left on device" in error
        loaded = ds.load(path)
        assert same(loaded, old) or same(loaded, new)
        states.add((layer.failed[0], same(loaded, new)))
        assert debris(tmp_path) == []
    # Only once the file has its name is it the new one: when the folder cannot be flushed.
    assert states == {("open", False), ("write", False), ("fsync", False), ("rename", False)} | {
        ("fsync", True)
    }


# --- a run, with its log and checkpoints ------------------------------------------------------


def run(folder):
    train_run(make(), folder, total_timesteps=TWO, episodes=20, every_seconds=0)


def go_on(folder):
    """What a user does after a fault: resume, or train where there is nothing to resume."""
    if saved_in(folder):
        resume_run(folder, every_seconds=0)
    else:
        run(folder)


def check_runs(tmp_path, every):
    whole = make().learn(TWO)
    with FaultyFiles(tmp_path / "whole") as counted:
        run(tmp_path / "whole")
    returns = np.load(tmp_path / "whole" / "returns.npy")
    names = {name for _, name in counted.operations}
    assert {"run.json", "evaluation.json", "returns.npy", "progress.jsonl"} <= names
    tried = points(counted.operations, every)
    for number in tried:
        folder = tmp_path / str(number)
        layer = FaultyFiles(folder, number)
        error = outcome(run, folder, layer=layer)
        kind, name = layer.failed
        if error is None:  # an old file that could not be removed
            assert kind == "unlink", name
        else:
            assert str(folder) in error, (error, name)
        latest = ds.load(folder).num_timesteps if saved_in(folder) else 0
        if not is_valued(folder):
            go_on(folder)
        assert ds.load(folder).num_timesteps == TWO >= latest
        assert same(ds.load(folder), whole), (kind, name)
        np.testing.assert_array_equal(np.load(folder / "returns.npy"), returns)
        assert lines(folder) == [CHUNK, TWO], (kind, name)
        assert run_info(folder).status == "finished"
        assert debris(folder) == [".lock"] * ((kind, name) == ("unlink", ".lock")), (kind, name)
        shutil.rmtree(folder)
    return len(tried), len(counted.operations)


@pytest.mark.slow
def test_a_run_whose_files_fail_goes_on_to_the_same_end(tmp_path):
    check_runs(tmp_path, every=False)


@pytest.mark.long
def test_every_single_fault_of_a_run(tmp_path, capsys):
    tried, there = check_runs(tmp_path, every=True)
    assert tried == there
    with capsys.disabled():
        print(f"\n{tried} faults in a run: nothing lost")  # noqa: T201


# --- a study ----------------------------------------------------------------------------------


def check_studies(tmp_path, every):
    table = study(seeds=1)
    with FaultyFiles(tmp_path / "whole") as counted:
        result = ds.sweep(table, folder=tmp_path / "whole")
    (spec,) = result.study.runs
    returns = np.load(tmp_path / "whole" / spec.name / "returns.npy")
    tried = points(counted.operations, every)
    for number in tried:
        folder = tmp_path / str(number)
        layer = FaultyFiles(folder, number)
        failed = {}

        def action(folder=folder, failed=failed):
            failed.update(ds.sweep(table, folder=folder, every_seconds=0).failed)

        error = outcome(action, layer=layer)
        kind, name = layer.failed
        if error is not None:
            assert str(folder) in error, (error, kind, name)
        for text in failed.values():
            assert str(folder) in text, (text, kind, name)
        result = ds.sweep(table, folder=folder)
        assert not result.failed, (kind, name)
        run_folder = folder / spec.name
        np.testing.assert_array_equal(np.load(run_folder / "returns.npy"), returns)
        assert lines(run_folder) == [CHUNK, TWO], (kind, name)
        assert result.report.exists()
        assert debris(folder) == [], (kind, name)
        assert [event["what"] for event in attempts(run_folder)].count("finished") <= 2
        shutil.rmtree(folder)
    return len(tried), len(counted.operations)


@pytest.mark.slow
def test_a_study_whose_files_fail_comes_to_the_same_end(tmp_path, inline):  # noqa: F811
    check_studies(tmp_path, every=False)


@pytest.mark.long
def test_every_single_fault_of_a_study(tmp_path, inline, capsys):  # noqa: F811
    tried, there = check_studies(tmp_path, every=True)
    assert tried == there
    with capsys.disabled():
        print(f"\n{tried} faults in a study: nothing lost")  # noqa: T201


# --- a report ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_that_fails_anywhere_is_the_old_page_or_the_new_one(tmp_path):
    section = make_section(make().learn(TWO), episodes=50, explained_episodes=1, checks=20)
    path = tmp_path / "a" / "report.html"
    ds.report(section, out=path, title="old")
    old = path.read_text()
    with FaultyFiles(tmp_path) as counted:
        ds.report(section, out=path, title="new")
    new = path.read_text()
    assert old != new
    for number in range(len(counted.operations)):
        path.write_text(old)
        layer = FaultyFiles(tmp_path, number)

        def action():
            ds.report(section, out=path, title="new")

        error = outcome(action, layer=layer)
        assert error is not None
        assert "report.html could not be written: No space left" in error
        assert path.read_text() in (old, new)
        assert debris(tmp_path) == []
