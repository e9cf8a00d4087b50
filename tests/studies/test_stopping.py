"""Failures, claims of several drivers, signals, and how far a study is."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import downside as ds
from downside.runs import is_valued
from downside.studies import driver, read_study
from downside.studies.engines import Report
from downside.studies.engines.local import LocalEngine
from downside.studies.progress import SweepProgress, last_record
from downside.studies.storage import ERROR, attempts, failure, lock, state
from downside.studies.work import work

from ..train.tiny import CHUNK
from .tiny import study

# --- failures ---------------------------------------------------------------------------------

BROKEN = """
import os
import gymnasium as gym
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv


class Broken(FrozenLakeEnv):
    def __init__(self, flag, **more):
        super().__init__(**more)
        if os.path.exists(flag):
            raise OSError("the <simulator> is gone")


gym.register("Broken-v0", Broken)
"""


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other_and_is_tried_again(tmp_path, monkeypatch, inline):
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    flag, table = tmp_path / "flag", study(seeds=1)
    table["environments"] = [{"id": "broken:Broken-v0", "flag": str(flag)}]
    table["agents"] = [
        {
            "name": "qrdqn",
            "hidden_sizes": [8],
            "quantiles": 4,
            "num_envs": 2,
            "batch_size": 4,
            "buffer_size": 64,
            "warmup_steps": 16,
            "outer_interval": 8,
        }
    ]
    table["study"].update(total_timesteps=32, episodes=4)
    inline.fate = lambda key, task: flag.touch()  # between the check and the work
    result = ds.sweep(table, folder=tmp_path / "runs")
    (cell,) = result.study.runs
    run_folder = tmp_path / "runs" / cell.name
    assert "OSError: the <simulator> is gone" in result.failed[cell.name]
    assert "OSError: the <simulator> is gone" in (run_folder / ERROR).read_text()
    assert result.groups[0].failed == 1
    page = result.report.read_text()
    assert "the &lt;simulator&gt; is gone" in page
    assert "the <simulator>" not in page
    assert "0 of 1" in page
    flag.unlink()
    inline.fate = lambda key, task: None
    result = ds.sweep(table, folder=tmp_path / "runs")
    assert not result.failed
    assert not (run_folder / ERROR).exists()
    assert [one["what"] for one in attempts(run_folder)] == ["began", "failed", "began", "finished"]


@pytest.mark.slow
def test_a_run_whose_process_dies_goes_on_and_fails_only_if_it_gets_no_further(tmp_path, inline):
    keys = [one.key for one in read_study(study()).runs]

    def fate(key, task):
        if key == keys[0] and inline.submitted.count(key) < driver.MAX_DEATHS:
            return Report(key, "died", "The process was killed by signal 9.")
        return Report(key, "died", "out of memory") if key == keys[1] else None

    inline.fate = fate
    result = ds.sweep(study(), folder=tmp_path)
    assert [inline.submitted.count(key) for key in keys] == [driver.MAX_DEATHS] * 2
    (error,) = result.failed.values()
    assert "Its process died 5 times without progress. out of memory" in error
    assert result.groups[0].finished == 1


def test_a_folder_that_a_machine_does_not_have_is_told(tmp_path):
    cell = read_study(study()).runs[0]
    answer = work(str(tmp_path / "gone" / cell.name), dataclasses.asdict(cell), 60.0)
    assert answer["outcome"] == "failed"
    assert "must share the folder of the study" in answer["error"]


def test_a_disk_that_takes_nothing_is_told_and_stops_no_other(tmp_path, inline, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("downside.studies.work.lock", full)
    cell = read_study(study()).runs[0]
    answer = work(str(tmp_path / cell.name), dataclasses.asdict(cell), 60.0)
    assert answer == {"outcome": "failed", "error": "OSError: No space left on device"}
    (tmp_path / cell.name).mkdir()
    (tmp_path / cell.name / ERROR).write_text("what happened the last time")
    monkeypatch.setattr(driver, "write_text", full)
    inline.fate = lambda key, task: Report(key, **work(**task))
    result = ds.sweep(study(), folder=tmp_path)
    assert set(result.failed.values()) == {"OSError: No space left on device"}
    assert result.groups[0].failed == len(result.failed) == 2
    assert "No space left on device" in result.report.read_text()


def test_a_measure_with_a_long_text_has_a_folder_with_a_short_name():
    long = " + ".join(f"0.025*cvar({share}%)" for share in range(1, 41))
    first, second = read_study(study(risks=[long])).runs
    assert len(first.name) < 255
    assert first.name.endswith(first.key)
    assert first.name != second.name


def test_an_error_of_the_driver_lets_the_workers_save(tmp_path, inline):
    def fate(key, task):
        raise RuntimeError("the engine broke")

    inline.fate = fate
    with pytest.raises(RuntimeError, match="the engine broke"):
        ds.sweep(study(), folder=tmp_path)
    assert inline.stopped


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"`engine` must be one of local, ray, got 'rya'\. Did"):
        ds.sweep(study(), engine="rya", folder=tmp_path)
    with pytest.raises(ValueError, match='are for the engine "ray"'):
        ds.sweep(study(), address="auto", folder=tmp_path)
    with pytest.raises(ValueError, match="`workers` must be a whole number of at least 1, got 0"):
        ds.sweep(study(), workers=0, folder=tmp_path)
    assert not list(tmp_path.iterdir())


# --- claims -----------------------------------------------------------------------------------

HOLD = """
import sys, time
from downside.studies.storage import lock
with lock(sys.argv[1]) as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_claim_is_for_one_process_and_dies_with_it(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        with lock(tmp_path) as mine:
            assert not mine
        cell = read_study(study()).runs[0]
        assert work(str(tmp_path), dataclasses.asdict(cell), 60.0) == {"outcome": "busy"}
        assert attempts(tmp_path) == []
        other.kill()
    with lock(tmp_path) as mine:
        assert mine
    with lock(tmp_path) as mine:
        assert mine


def test_a_run_that_another_driver_has_is_waited_for(tmp_path, inline, monkeypatch):
    monkeypatch.setattr(driver, "_RETRY", 0.05)
    first = read_study(study()).runs[0]
    busy = []

    def fate(key, task):
        if key == first.key and len(busy) < 3:
            busy.append(time.monotonic())
            if len(busy) == 3:  # the other one is done with it
                assert work(**task) == {"outcome": "finished"}
            return Report(key, "busy")
        return None

    inline.fate = fate
    result = ds.sweep(study(), folder=tmp_path)
    assert result.groups[0].finished == 2
    assert inline.submitted.count(first.key) == 3
    assert [one["what"] for one in attempts(tmp_path / first.name)] == ["began", "finished"]


def test_a_run_that_failed_under_another_driver_has_failed(tmp_path, inline, monkeypatch):
    monkeypatch.setattr(driver, "_RETRY", 0.0)

    def fate(key, task):
        run_folder = Path(task["folder"])
        run_folder.mkdir()
        (run_folder / ERROR).write_text("Traceback\nValueError: too bad\n")
        return Report(key, "busy")

    inline.fate = fate
    result = ds.sweep(study(seeds=1), folder=tmp_path)
    assert list(result.failed.values()) == ["Traceback\nValueError: too bad"]
    assert len(inline.submitted) == 1


def test_an_error_that_is_gone_again_is_none(tmp_path):
    assert failure(tmp_path) is None


# --- stopping and progress --------------------------------------------------------------------


def test_a_signal_lets_the_workers_save_and_says_how_to_go_on(tmp_path, inline):
    def fate(key, task):
        os.kill(os.getpid(), signal.SIGINT)

    inline.fate = fate
    with pytest.raises(KeyboardInterrupt, match=r"stopped; 1 of 2 runs .* The same command"):
        ds.sweep(study(), folder=tmp_path)
    assert inline.stopped
    assert len(inline.submitted) == 1
    assert len((tmp_path / "summary.csv").read_text().splitlines()) > 1
    assert "1 of 2" in (tmp_path / "report.html").read_text()


def test_a_second_signal_says_how_to_go_on_too(tmp_path, inline, monkeypatch):
    def stop(patience=None):
        os.kill(os.getpid(), signal.SIGINT)

    inline.fate = lambda key, task: (stop(), Report(key, "stopped"))[1]
    monkeypatch.setattr(inline, "stop", stop)
    with pytest.raises(KeyboardInterrupt, match=r"stopped; 0 of 2 runs .* The same command"):
        ds.sweep(study(), folder=tmp_path)
    assert (tmp_path / "report.html").exists()


def test_a_signal_while_the_page_is_written_says_how_to_go_on(done, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "write_page", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"stopped; 4 of 4 runs .* The same command"):
        ds.sweep(study(risks=["cvar(0.5)", "cvar(0.2)"]), folder=done.folder)


def test_progress_is_told_in_plain_lines_where_there_is_no_terminal(tmp_path, inline, capfd):
    keys = [one.key for one in read_study(study()).runs]
    inline.fate = lambda key, task: (
        Report(key, "failed", "ValueError: too bad\nand more") if key == keys[1] else None
    )
    result = ds.sweep(study(), folder=tmp_path, progress_bar=True)
    assert list(result.failed.values()) == ["ValueError: too bad\nand more"]
    output = capfd.readouterr().err.splitlines()
    assert output[0].startswith("[0/2] 2 runs in ")
    assert re.match(
        r"\[1/2\] finished  MeanReversion-v0, qrsrm, cvar\(0\.5\), seed 0  -?[\d.]+  \(", output[1]
    )
    assert (
        output[2]
        == "[2/2] FAILED    MeanReversion-v0, qrsrm, cvar(0.5), seed 1: ValueError: too bad"
    )


def test_how_far_a_run_is_comes_from_its_log(done, tmp_path):
    steps, best = last_record(done.folder / done.study.runs[0].name)
    assert steps == 2 * CHUNK
    assert best is not None
    assert last_record(tmp_path) == (0, None)


@pytest.mark.slow
def test_the_local_engine_tells_when_a_worker_dies_and_what_it_said():
    engine = LocalEngine(1, 1)
    with engine:
        engine.submit("key", {"nonsense": 1})  # work() takes no such argument
        assert engine.room == 0
        reports, deadline = [], time.monotonic() + 60
        while not reports and time.monotonic() < deadline:
            reports = engine.poll(1.0)
        assert engine.room == 1
    (report,) = reports
    assert report.outcome == "died"
    assert "unexpected keyword argument 'nonsense'" in report.error


def test_a_finished_run_has_returns_and_values(done):
    run_folder = done.folder / done.study.runs[0].name
    assert is_valued(run_folder, 100)
    assert not is_valued(run_folder, 99)
    assert state(run_folder, 99) == "unfinished"
    assert state(run_folder / "nothing") == "new"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"timesteps": 99, "best": -Infinity}', (99, None)),
        ('{"timesteps": 99, "best": NaN}', (99, None)),
        ('{"timesteps": Infinity}', (0, None)),
        ('{"timesteps": 99, "best": 0.5}', (99, 0.5)),
    ],
)
def test_the_progress_of_a_run_never_passes_its_end(tmp_path, line, expected):
    run = read_study(study()).runs[0]
    folder = tmp_path / run.name
    (folder / "log_1").mkdir(parents=True)
    (folder / "attempts.jsonl").write_text('{"what": "began"}\n')
    (folder / "log_1" / "progress.jsonl").write_text(line + "\n")
    assert last_record(folder) == expected
    progress = SweepProgress(tmp_path, [run], [run], disable=False)
    progress._live = True
    progress.began(run)
    progress.update([run])
    shown = progress._bars.tasks[-1]
    assert shown.completed <= run.total_timesteps == shown.total == 64
    assert "inf" not in shown.fields["status"]
