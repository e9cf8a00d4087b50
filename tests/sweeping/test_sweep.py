"""`ds.sweep`: every run once, bit for bit what it would be alone, whatever else fails."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import downside as ds
from downside import cli, runs
from downside.runs import EVALUATION_SEED, is_valued, list_runs
from downside.sweeping import driver, read_study
from downside.sweeping.cells import ERROR, attempts, failure, state
from downside.sweeping.claims import claim
from downside.sweeping.engines import AbstractEngine, Report
from downside.sweeping.engines.local import LocalEngine
from downside.sweeping.page import nice_ticks
from downside.sweeping.progress import last_record
from downside.sweeping.summary import estimate
from downside.sweeping.work import make_agent, work

from ..reporting.browser import browser, needs_browser, requests, resize
from ..train.tiny import CHUNK
from .studies import SPEED, as_toml, study


class Inline(AbstractEngine):
    """Runs every task at once, in this process, after what `fate` has to say about it."""

    def __init__(self, fate=lambda key, task: None):
        self.fate, self.reports, self.submitted, self.stopped = fate, [], [], False

    @property
    def room(self):
        return 1 - len(self.reports)

    def submit(self, key, task):
        self.submitted.append(key)
        self.reports.append(self.fate(key, task) or Report(key, work(**task)["outcome"]))

    def poll(self, seconds):
        reports, self.reports = self.reports, []
        return reports

    def stop(self):
        self.stopped = True

    def close(self):
        pass


@pytest.fixture
def inline(monkeypatch):
    """`ds.sweep` with an engine that a test can look into."""
    engine = Inline()
    monkeypatch.setattr(driver, "make_engine", lambda *_, **__: engine)
    monkeypatch.setattr(driver, "_TICK", 0.0)
    return engine


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A study of two measures and two seeds, run by two processes."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SPEED.items():
            patch.setenv(name, value)
        return ds.sweep(study(risks=["cvar(0.5)", "cvar(0.2)"]), folder=folder, workers=2)


@pytest.fixture
def copied(done, tmp_path):
    """Its folder again, to change something in."""
    return shutil.copytree(done.folder, tmp_path / "copy")


# --- results ----------------------------------------------------------------------------------


def test_every_run_is_bit_for_bit_what_it_would_be_alone(done):
    assert len(done.study.cells) == 4
    for cell in done.study.cells[1:3]:
        agent = make_agent(cell).learn(cell.total_timesteps)
        found = ds.evaluate(agent, episodes=100, seed=EVALUATION_SEED + cell.seed)
        there = np.load(done.folder / cell.name / "returns.npy")
        np.testing.assert_array_equal(there, found.returns)
        again = ds.load(done.folder / cell.name)
        np.testing.assert_array_equal(
            again.simulate_returns(20, seed=3), agent.simulate_returns(20, seed=3)
        )


def test_a_run_is_a_run_folder_like_any_other(done):
    runs = list_runs(done.folder)
    assert {one.folder for one in runs} == {str(done.folder / c.name) for c in done.study.cells}
    assert {(one.status, one.timesteps) for one in runs} == {("finished", 2 * CHUNK)}


def test_what_is_finished_is_not_run_again(done, inline):
    again = ds.sweep(study(risks=["cvar(0.5)", "cvar(0.2)"]), folder=done.folder)
    assert inline.submitted == []
    assert again.groups == done.groups
    assert [one["what"] for one in attempts(done.folder / done.study.cells[0].name)] == [
        "began",
        "finished",
    ]


def test_a_study_that_grows_runs_only_what_is_new(copied, inline):
    more = ds.sweep(study(risks=["cvar(0.5)", "cvar(0.2)"], seeds=3), folder=copied)
    assert sorted(inline.submitted) == sorted(one.key for one in more.study.cells if one.seed == 2)
    assert [one.finished for one in more.groups] == [3, 3]


def test_other_episodes_need_no_training(copied, inline, monkeypatch):
    def trained(*_, **__):
        raise AssertionError("it was trained again")

    monkeypatch.setattr(ds.Agent, "_steps", trained)
    result = ds.sweep(study(episodes=50), folder=copied)
    folder = copied / result.study.cells[0].name
    assert len(np.load(folder / "returns.npy")) == 50
    assert not result.failed
    ds.sweep(study(), folder=copied)
    assert len(np.load(folder / "returns.npy")) == 100


def test_a_study_that_says_no_episodes_has_one_number_of_them(copied, inline, monkeypatch):
    # What was valued in 100 episodes is not taken for what is to be valued in the default number.
    monkeypatch.setattr("downside.sweeping.study.default_episodes", lambda in_jax: 150)
    table = study(seeds=3)
    del table["study"]["episodes"]
    result = ds.sweep(table, folder=copied)
    lengths = [len(np.load(copied / one.name / "returns.npy")) for one in result.study.cells]
    assert lengths == [150] * 3


def test_a_run_that_goes_on_is_valued_once(copied, inline, monkeypatch):
    cell = read_study(study(seeds=1)).cells[0]
    (copied / cell.name / "evaluation.json").unlink()
    played = []
    before = runs.evaluate

    def evaluate(agent, *, episodes, seed):
        played.append(episodes)
        return before(agent, episodes=episodes, seed=seed)

    monkeypatch.setattr(runs, "evaluate", evaluate)
    ds.sweep(study(seeds=1, episodes=50), folder=copied)
    assert played == [50]


def test_new_returns_do_not_stand_beside_the_values_of_others(copied, monkeypatch):
    own = copied / read_study(study()).cells[0].name

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(runs, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        runs.value_run(ds.load(own), own, 50)
    assert not is_valued(own)


def test_the_summary_is_the_mean_over_seeds(done):
    first = done.groups[0]
    values = [
        ds.CVaR(0.5)(np.load(done.folder / cell.name / "returns.npy")) for cell in first.cells
    ]
    assert first.estimates["cvar(0.5)"].value == pytest.approx(np.mean(values))
    assert first.estimates["cvar(0.5)"].low <= np.mean(values) <= first.estimates["cvar(0.5)"].high
    assert set(first.estimates) == {"cvar(0.5)", "mean", "cvar(0.2)"}
    rows = (done.folder / "summary.csv").read_text().splitlines()
    assert rows[0] == "environment,agent,trained_for,measure,value,low,high,seeds"
    assert len(rows) == 1 + 3 + 2  # the second group was trained for one of the measures
    (table,) = done.tables()
    assert table.row_count == 2


def test_one_seed_has_the_interval_of_its_episodes():
    found = ds.Evaluation(np.array([1.0, 2.0, 3.0, 6.0]))
    one = estimate([found], "mean")
    assert one.value == 3.0
    assert one.high - one.value == pytest.approx(one.value - one.low)
    assert one.high - one.value == pytest.approx(1.959964 * found.standard_error("mean"))


# --- the page ---------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_page_is_whole_in_itself_and_has_the_numbers(done):
    page = done.report.read_text()
    for tag, attributes in Tags(page).found:
        assert tag not in ("script", "iframe", "img")
        assert "style" not in attributes
        assert attributes.get("href", "#").startswith(("#", "data:"))
    assert not re.search(r"url\(|@import|https?://", page)
    assert "4 of 4" in page
    assert f"{done.groups[1].estimates['cvar(0.2)'].value:.4g}" in page
    assert page.count("<polyline") == 2


@needs_browser
def test_the_page_shows_in_a_browser_large_and_small(done):
    with browser() as driver:
        for width in (1280, 390):
            resize(driver, width, 900, mobile=width < 500)
            driver.get_log("browser")
            driver.get(done.report.as_uri())
            wide = driver.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width
            assert driver.get_log("browser") == []
            assert requests(driver) == [done.report.as_uri()]
        fill = "return getComputedStyle(document.querySelector('.dots .mark')).fill"
        assert driver.execute_script(fill) != "rgb(0, 0, 0)"  # the style was let in


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, [0.0, 0.5, 1.0]),
        (-0.31, 0.29, [-0.2, 0.0, 0.2]),
        (995.0, 1012.0, [995, 1000, 1005, 1010]),
    ],
)
def test_ticks_are_round(low, high, ticks):
    assert nice_ticks(low, high) == pytest.approx(ticks)


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


def test_a_run_that_fails_stops_no_other_and_is_tried_again(tmp_path, monkeypatch, inline):
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    flag, table = tmp_path / "flag", study(seeds=1)
    table["environments"] = [{"id": "broken:Broken-v0", "flag": str(flag)}]
    table["agents"] = [
        {
            "name": "qrdqn",
            "hidden": [8],
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
    (cell,) = result.study.cells
    own = tmp_path / "runs" / cell.name
    assert "OSError: the <simulator> is gone" in result.failed[cell.name]
    assert "OSError: the <simulator> is gone" in (own / ERROR).read_text()
    assert result.groups[0].failed == 1
    page = result.report.read_text()
    assert "the &lt;simulator&gt; is gone" in page
    assert "the <simulator>" not in page
    assert "0 of 1" in page
    flag.unlink()
    inline.fate = lambda key, task: None
    result = ds.sweep(table, folder=tmp_path / "runs")
    assert not result.failed
    assert not (own / ERROR).exists()
    assert [one["what"] for one in attempts(own)] == ["began", "failed", "began", "finished"]


def test_a_run_whose_process_dies_goes_on_and_fails_only_if_it_gets_no_further(tmp_path, inline):
    keys = [one.key for one in read_study(study()).cells]

    def fate(key, task):
        if key == keys[0] and inline.submitted.count(key) < driver.MOST_DEATHS:
            return Report(key, "died", "The process was killed by signal 9.")
        return Report(key, "died", "out of memory") if key == keys[1] else None

    inline.fate = fate
    result = ds.sweep(study(), folder=tmp_path)
    assert [inline.submitted.count(key) for key in keys] == [driver.MOST_DEATHS] * 2
    (error,) = result.failed.values()
    assert "Its process died 5 times without getting any further. out of memory" in error
    assert result.groups[0].finished == 1


def test_a_folder_that_a_machine_does_not_have_is_told(tmp_path):
    cell = read_study(study()).cells[0]
    answer = work(str(tmp_path / "gone" / cell.name), dataclasses.asdict(cell), 60.0)
    assert answer["outcome"] == "failed"
    assert "have to share the folder of the study" in answer["error"]


def test_a_disk_that_takes_nothing_is_told_and_stops_no_other(tmp_path, inline, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("downside.sweeping.work.claim", full)
    cell = read_study(study()).cells[0]
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
    first, second = read_study(study(risks=[long])).cells
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
from downside.sweeping.claims import claim
with claim(sys.argv[1]) as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


def test_a_claim_is_for_one_process_and_dies_with_it(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        with claim(tmp_path) as mine:
            assert not mine
        cell = read_study(study()).cells[0]
        assert work(str(tmp_path), dataclasses.asdict(cell), 60.0) == {"outcome": "busy"}
        assert attempts(tmp_path) == []
        other.kill()
    with claim(tmp_path) as mine:
        assert mine
    with claim(tmp_path) as mine:
        assert mine


def test_a_run_that_another_driver_has_is_waited_for(tmp_path, inline, monkeypatch):
    monkeypatch.setattr(driver, "_LATER", 0.05)
    first = read_study(study()).cells[0]
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
    monkeypatch.setattr(driver, "_LATER", 0.0)

    def fate(key, task):
        own = Path(task["folder"])
        own.mkdir()
        (own / ERROR).write_text("Traceback\nValueError: too bad\n")
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
    with pytest.raises(KeyboardInterrupt, match=r"stopped; 1 of 2 runs .* The same command goes"):
        ds.sweep(study(), folder=tmp_path)
    assert inline.stopped
    assert len(inline.submitted) == 1
    assert len((tmp_path / "summary.csv").read_text().splitlines()) > 1
    assert "1 of 2" in (tmp_path / "report.html").read_text()


def test_a_second_signal_says_how_to_go_on_too(tmp_path, inline, monkeypatch):
    def stop():
        os.kill(os.getpid(), signal.SIGINT)

    inline.fate = lambda key, task: (stop(), Report(key, "stopped"))[1]
    monkeypatch.setattr(inline, "stop", stop)
    with pytest.raises(KeyboardInterrupt, match=r"stopped; 0 of 2 runs .* The same command goes"):
        ds.sweep(study(), folder=tmp_path)
    assert (tmp_path / "report.html").exists()


def test_a_signal_while_the_page_is_written_says_how_to_go_on(done, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "write_page", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"stopped; 4 of 4 runs .* The same command goes"):
        ds.sweep(study(risks=["cvar(0.5)", "cvar(0.2)"]), folder=done.folder)


def test_progress_is_told_in_plain_lines_where_there_is_no_terminal(tmp_path, inline, capfd):
    keys = [one.key for one in read_study(study()).cells]
    inline.fate = lambda key, task: (
        Report(key, "failed", "ValueError: too bad\nand more") if key == keys[1] else None
    )
    result = ds.sweep(study(), folder=tmp_path, progress_bar=True)
    assert list(result.failed.values()) == ["ValueError: too bad\nand more"]
    said = capfd.readouterr().err.splitlines()
    assert said[0].startswith("[0/2] 2 runs in ")
    assert re.match(
        r"\[1/2\] finished  MeanReversion-v0, qrsrm, cvar\(0\.5\), seed 0  -?[\d.]+  \(", said[1]
    )
    assert (
        said[2] == "[2/2] FAILED    MeanReversion-v0, qrsrm, cvar(0.5), seed 1: ValueError: too bad"
    )


def test_how_far_a_run_is_comes_from_its_log(done, tmp_path):
    steps, best = last_record(done.folder / done.study.cells[0].name)
    assert steps == 2 * CHUNK
    assert best is not None
    assert last_record(tmp_path) == (0, None)


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
    own = done.folder / done.study.cells[0].name
    assert is_valued(own, 100)
    assert not is_valued(own, 99)
    assert state(own, 99) == "unfinished"
    assert state(own / "nothing") == "new"


# --- the command ------------------------------------------------------------------------------


def test_the_command_prints_the_table_and_the_dry_run_only_lists(
    done, tmp_path, capsys, inline, monkeypatch
):
    path = tmp_path / "study.toml"
    path.write_text(as_toml(study(risks=["cvar(0.5)", "cvar(0.2)"])))
    cli.main(["sweep", str(path), "--folder", str(done.folder)])
    said = capsys.readouterr().out
    assert "cvar(0.5)" in said
    assert "report.html" in said
    cli.main(["sweep", str(path), "--folder", str(done.folder), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert [one["risk"] for one in shown["groups"]] == ["cvar(0.5)", "cvar(0.2)"]
    monkeypatch.chdir(tmp_path)
    cli.main(["sweep", str(path), "--dry-run"])
    said = capsys.readouterr().out
    assert said.count("new  ") == 4
    assert "4 runs in studies/tiny, 4 to do." in said
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
    said = capsys.readouterr().err
    assert "study.toml:2: [study] has no `nme`. Did you mean 'name'?" in said
    assert "study.toml:4: `env` must be the id of a registered environment" in said
    assert "A study needs at least one [[agents]]" in said
