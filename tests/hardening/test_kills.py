"""kill -9 at random points of training, of a study and of writing a report: what was saved goes on
to the same end, no line of the log is lost, and nothing is left lying about."""

import json
import os
import random
import select
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

import downside as ds
from downside.reporting import make_section
from downside.runs import is_valued, resume_run, run_info, run_returns, train_run
from downside.studies import read_study
from downside.train.monitor import saved_in

from ..studies.tiny import ROOT, SPEED
from ..train.tiny import TWO, make, same
from .faults import debris
from .victim import EPISODES, TRAINED, small_study

CACHE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""Everything that is compiled is kept: most of the time of a victim would go there."""
PATIENCE = 600.0
"""Seconds until a process that says nothing hangs."""


def start(kind, folder, operation=None):
    command = [sys.executable, "-m", "tests.hardening.victim", kind, str(folder)]
    if operation is not None:
        command.append(str(operation))
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **SPEED, **CACHE},
    )


def follow(process, seconds, after):
    """Reads what a process says for so many seconds after it has said so many lines; the lines."""
    text, deadline, left = b"", time.monotonic() + PATIENCE, None
    while True:
        wait = (deadline if left is None else left) - time.monotonic()
        if wait <= 0:
            assert left is not None, "it hangs"
            break
        if select.select([process.stdout], [], [], wait)[0]:
            part = os.read(process.stdout.fileno(), 65536)
            if not part:  # it has ended
                break
            text += part
            if left is None and text.count(b"\n") > after:
                left = time.monotonic() + seconds
    return text.decode().splitlines()


def under_fire(kind, folder, kills, draws, before=lambda: None):
    """Starts a victim again and again and kills it, until it has been killed so often; then lets it
    come to its end. Returns how often it was killed."""
    done = 0
    while True:
        before()
        last = done >= kills
        itself = not last and draws.random() < 0.5
        operation = int(draws.expovariate(1 / 60)) if itself else None
        with start(kind, folder, operation) as process:
            forever = last or itself
            seconds = PATIENCE if forever else draws.expovariate(1 / 0.05)
            lines = follow(process, seconds, 10**9 if forever else draws.randrange(4))
            if "done" not in lines and not forever:
                process.kill()
            _, error = process.communicate()
            if "done" in lines:
                assert process.returncode in (0, -9), error.decode()
                if last or kind != "report":
                    return done
            else:
                assert process.returncode == -9, error.decode()
                done += 1


def lines_of(folder):
    (path,) = folder.glob("log_*/progress.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_log(folder, agent):
    """The log has a line for each entry of the history, and no other."""
    written = lines_of(folder)
    for name in ("timesteps", "value", "seconds"):
        assert [line[name] for line in written] == [record[name] for record in agent.history]


# --- training ---------------------------------------------------------------------------------


def kill_compiled(tmp_path, kills, draws, kind):
    """Where all of a run is in its checkpoints: the end is that of a run that nobody killed."""
    make_agent, steps = TRAINED[kind]
    whole = make_agent().learn(steps)
    train_run(make_agent(), tmp_path / "whole", total_timesteps=steps, episodes=EPISODES)
    returns, total, number = run_returns(tmp_path / "whole").returns, 0, 0
    while total < kills:
        folder = tmp_path / f"{kind}-{number}"
        total += under_fire(kind, folder, kills - total, draws)
        number += 1
        agent = ds.load(folder)
        assert same(agent, whole)
        np.testing.assert_array_equal(run_returns(folder).returns, returns)
        check_log(folder, agent)
        assert run_info(folder).status == "finished"
        assert debris(folder) == []
    return total


def kill_lived(tmp_path, kills, draws, kind):
    """Where episodes are lived through: what follows a checkpoint depends on it alone, so the end
    is that of going on from what was there when it was started for the last time."""
    make_agent, steps = TRAINED[kind]
    total, number = 0, 0
    while total < kills:
        folder, copy = tmp_path / f"{kind}-{number}", tmp_path / "copy"

        def keep(folder=folder, copy=copy):
            shutil.rmtree(copy, ignore_errors=True)
            if folder.exists():
                shutil.copytree(folder, copy)

        total += under_fire(kind, folder, kills - total, draws, keep)
        number += 1
        agent = ds.load(folder)
        assert agent.num_timesteps == steps
        check_log(folder, agent)
        assert debris(folder) == []
        if copy.exists() and saved_in(copy) and not is_valued(copy):
            again, _ = resume_run(copy)
            assert same(agent, again)
        elif not copy.exists() or not saved_in(copy):
            assert same(agent, make_agent().learn(steps))
    return total


# --- a study ----------------------------------------------------------------------------------


def kill_studies(tmp_path, kills, draws, kind):
    runs = read_study(small_study()).runs
    alone = [
        ds.evaluate(run.make_agent().learn(run.total_timesteps), episodes=EPISODES, seed=seed)
        for run, seed in zip(runs, (1_000_000, 1_000_001), strict=True)
    ]
    total, number = 0, 0
    while total < kills:
        folder = tmp_path / f"study-{number}"
        total += under_fire(kind, folder, kills - total, draws)
        number += 1
        for run, evaluation in zip(runs, alone, strict=True):
            own = folder / run.name
            np.testing.assert_array_equal(run_returns(own).returns, evaluation.returns)
            check_log(own, ds.load(own))
        assert (folder / "report.html").exists()
        assert debris(folder) == []
    return total


# --- a report ---------------------------------------------------------------------------------


def kill_reports(tmp_path, kills, draws, kind):
    folder = tmp_path / "report"
    agent = make().learn(TWO)
    agent.save(folder / "agent")
    section = make_section(ds.load(folder / "agent"), episodes=50, explained_episodes=1, checks=10)
    pages = []
    for number in range(2):
        path = ds.report(section, out=tmp_path / "page.html", title=f"report {number}")
        pages.append(path.read_text())
    whole = {len(page) for page in pages}
    total = 0

    def check():
        path = folder / "report.html"
        if path.exists():
            text = path.read_text()
            assert len(text) in whole
            assert text.rstrip().endswith("</html>")

    total += under_fire(kind, folder, kills, draws, check)
    check()
    assert debris(folder) == []
    return total


@pytest.mark.long
def test_killed_once_or_twice_training_in_jax_goes_on_as_if_nothing_had_happened(tmp_path):
    assert kill_compiled(tmp_path, 1, random.Random(1), "jax") == 1


@pytest.mark.slow
def test_killed_once_pg_srm_goes_on_as_if_nothing_had_happened(tmp_path):
    assert kill_compiled(tmp_path, 1, random.Random(3), "actor") == 1


KINDS = {
    "jax": (kill_compiled, 20),
    "actor": (kill_compiled, 20),
    "dial": (kill_compiled, 10),
    "gymnasium": (kill_lived, 20),
    "lived": (kill_lived, 10),
    "study": (kill_studies, 15),
    "report": (kill_reports, 25),
}
"""How, and how often: 120 kills in all."""


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_killed_again_and_again_it_comes_to_the_same_end(tmp_path, kind, capsys):
    kill, count = KINDS[kind]
    kills = kill(tmp_path, count, random.Random(0), kind)
    assert kills == count
    with capsys.disabled():
        print(f"\nkilled {kills} times, {kind}: nothing lost")  # noqa: T201
