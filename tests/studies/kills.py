"""A study under fire: its workers and its driver are killed, and it is started again."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np

import downside as ds
from downside.runs import EVALUATION_SEED
from downside.studies import read_study
from downside.studies.storage import attempts, state
from downside.train.monitor import saved_in

from .tiny import SPEED


def drive(path, folder, *more):
    """The command, in a process of its own; every outer step is saved."""
    command = [sys.executable, "-m", "downside", "sweep", str(path), "--folder", str(folder)]
    return subprocess.Popen(
        [*command, "--every", "0", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **SPEED},
    )


def begun(folder, cells):
    """The runs that were begun and are not finished, with their process."""
    told = {cell.name: attempts(folder / cell.name) for cell in cells}
    last = {name: run_folder[-1] for name, run_folder in told.items() if run_folder}
    return {name: one["process"] for name, one in last.items() if one["what"] == "began"}


def in_flight(folder, cells):
    """Those of them that have a checkpoint."""
    running = begun(folder, cells).items()
    return {name: process for name, process in running if saved_in(folder / name)}


def under_fire(path, folder, kinds, seed, *more, seconds=300.0):
    """Runs a study to its end with a kill for each of `kinds`: "worker" or "driver".

    Returns:
        The names of the runs that were in flight at each kill.
    """
    draws, hit = random.Random(seed), []
    cells = read_study(path).runs
    left, deadline = list(kinds), time.monotonic() + seconds
    process = drive(path, folder, *more)
    try:
        while True:
            assert time.monotonic() < deadline, "the study does not come to an end"
            time.sleep(0.02)
            if process.poll() is not None:
                output = process.communicate()[0]
                assert process.returncode == 0, output
                return hit
            flying = in_flight(folder, cells)
            if not left or not flying or draws.random() > 0.3:
                continue
            kind = left.pop(0)
            if kind == "driver":
                process.send_signal(signal.SIGKILL)
                process.communicate()
                hit.append({*flying, *begun(folder, cells)})
                process = drive(path, folder, *more)
            else:
                name = draws.choice(sorted(flying))
                hit.append({name})
                os.kill(flying[name], signal.SIGKILL)
                while in_flight(folder, cells).get(name) == flying[name]:
                    assert process.poll() is None, process.communicate()[0]
                    assert time.monotonic() < deadline, "nobody went on with the run"
                    time.sleep(0.02)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def check_ledger(path, folder, hit):
    """Nothing is lost, and nothing was run twice but what was in flight at a kill."""
    study = read_study(path)
    for cell in study.runs:
        run_folder = folder / cell.name
        told = [one["what"] for one in attempts(run_folder)]
        kills = sum(cell.name in names for names in hit)
        assert state(run_folder, cell.episodes) == "finished", cell.name
        assert told.count("finished") == 1, (cell.name, told)
        assert told[-1] == "finished"
        assert 1 <= told.count("began") <= 1 + kills, (cell.name, told, kills)
        steps = [one["steps"] for one in attempts(run_folder)]
        assert steps == sorted(steps), "what was saved is never begun again"
        assert json.loads((run_folder / "evaluation.json").read_text())["episodes"] == cell.episodes


def check_alone(path, folder, names):
    """These runs are bit for bit what they would have been without the study."""
    study = read_study(path)
    for cell in study.runs:
        if cell.name not in names:
            continue
        agent = cell.make_agent().learn(cell.total_timesteps)
        evaluation = ds.evaluate(agent, episodes=cell.episodes, seed=EVALUATION_SEED + cell.seed)
        np.testing.assert_array_equal(
            np.load(folder / cell.name / "returns.npy"), evaluation.returns
        )
