"""What happens between two outer steps: callbacks, the log, signals."""

import json
import math
import os
import signal

import numpy as np
import pytest

import downside as ds
from downside.train.log import Log
from downside.train.monitor import (
    Interruption,
    Terminated,
    TrainingBar,
    as_callbacks,
    saved_in,
)

from .tiny import CHUNK, TWO, make, same

# --- callbacks --------------------------------------------------------------------------------


def test_a_callback_is_told_of_the_start_each_step_and_the_end():
    events = []

    class Tell(ds.Callback):
        def on_start(self, agent):
            events.append(("start", agent.num_timesteps))

        def on_step(self, agent):
            events.append(("step", agent.num_timesteps))

        def on_end(self, agent):
            events.append(("end", agent.num_timesteps))

    make().learn(TWO, callback=[Tell(), None])
    assert events == [("start", 0), ("step", CHUNK), ("step", TWO), ("end", TWO)]


def test_what_is_no_callback_is_refused():
    with pytest.raises(TypeError, match=r"`callback` must be a ds\.Callback, a function of the"):
        as_callbacks(3)


@pytest.mark.slow
def test_checkpoints_are_made_by_steps_and_the_oldest_go(tmp_path):
    make().learn(4 * CHUNK, callback=ds.Checkpoints(tmp_path, every_steps=TWO, keep=3))
    steps = [int(path.stem.rpartition("-")[2]) for path in saved_in(tmp_path)]
    assert steps == [4 * CHUNK, TWO]
    make().learn(4 * CHUNK, callback=ds.Checkpoints(tmp_path / "all", every_steps=1, keep=3))
    assert len(saved_in(tmp_path / "all")) == 3
    with pytest.raises(ValueError, match="`keep` must be a whole number >= 1, got 0"):
        ds.Checkpoints(tmp_path, keep=0)


def test_no_checkpoint_is_made_before_its_time_but_one_at_the_end(tmp_path):
    make().learn(4 * CHUNK, callback=ds.Checkpoints(tmp_path, every_seconds=3600))
    assert [path.name for path in saved_in(tmp_path)] == ["checkpoint-000000000128.safetensors"]


def test_evaluations_are_by_every_measure_that_was_asked_for():
    evaluations = ds.Evaluations(every_steps=TWO, episodes=50, risks=["mean", "cvar(0.2)"])
    agent = make().learn(4 * CHUNK, callback=evaluations)
    assert [result["timesteps"] for result in evaluations.results] == [TWO, 4 * CHUNK]
    last = evaluations.results[-1]
    returns = agent.simulate_returns(50, seed=20_000)
    assert last["eval/mean"] == pytest.approx(returns.mean(), rel=1e-6)
    assert last["eval/cvar(0.2)"] == pytest.approx(np.sort(returns)[:10].mean(), rel=1e-5)
    assert agent.history[-1]["eval/mean"] == last["eval/mean"]


def test_training_stops_once_the_value_is_reached():
    best = make().learn(TWO).history[0]["best"]
    agent = make().learn(TWO, callback=ds.StopAtValue(best))
    assert agent.num_timesteps == CHUNK


# --- the log ----------------------------------------------------------------------------------

RECORD = {"timesteps": 1234.0, "simulated_steps": 56_789, "value": 1.5, "mean": 2.5, "fps": 10.0}
RECORD |= {"critic_loss": 0.25, "best": -math.inf}


def lines(folder):
    return [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]


def test_a_record_is_a_line_of_json_without_what_json_does_not_have(tmp_path):
    with Log(tmp_path, "run", "cvar(0.5)", verbose=0) as log:
        log.write(RECORD)
    assert lines(tmp_path / "run_1") == [{k: v for k, v in RECORD.items() if k != "best"}]
    assert len(list((tmp_path / "run_1").glob("events*"))) == 1


def test_a_new_run_has_a_new_folder_and_one_that_goes_on_has_the_last(tmp_path):
    folders = []
    other = {**RECORD, "seconds": 3.0}
    for history in ([], [], [RECORD], [RECORD], [other]):
        with Log(tmp_path, "run", "mean", history=history) as log:
            folders.append(log.folder.name)
    # The last history is of another run: its log is not written over.
    assert folders == ["run_1", "run_2", "run_2", "run_2", "run_3"]
    assert lines(tmp_path / "run_2") == [{k: v for k, v in RECORD.items() if k != "best"}]


def test_lines_that_are_missing_are_written_again_and_those_to_come_are_dropped(tmp_path):
    history = [{**RECORD, "timesteps": float(step), "seconds": step / 10} for step in (1, 2, 3, 4)]
    with Log(tmp_path, "run", "mean") as log:
        for record in history:
            log.write(record)
    path = tmp_path / "run_1" / "progress.jsonl"
    first, second, _, fourth = path.read_text().splitlines()
    # Of the third there is half a line; the fourth was written after the checkpoint.
    path.write_text(f"{first}\n{second[:20]}\n{fourth}\n")
    with Log(tmp_path, "run", "mean", history=history[:3]):
        assert [line["timesteps"] for line in lines(path.parent)] == [1.0, 2.0, 3.0]
    with Log(tmp_path / "new", "run", "mean", history=history, interval=2):
        assert [line["timesteps"] for line in lines(tmp_path / "new" / "run_1")] == [2.0, 4.0]


def test_a_line_says_what_was_lived_and_what_was_simulated(capsys):
    with Log(None, "run", "cvar(0.5)", verbose=1) as log:
        log.write(RECORD)
    line = " ".join(capsys.readouterr().err.split())
    assert line == "1,234 steps 56,789 simulated 10/s cvar(0.5) 1.5 mean 2.5 loss 0.25"


def test_the_log_of_a_run_has_its_simulated_steps(tmp_path):
    agent = make(tensorboard_log=tmp_path).learn(TWO)
    written = lines(tmp_path / "run_1")
    for name in ("timesteps", "simulated_steps", "value"):
        assert [record[name] for record in written] == [record[name] for record in agent.history]


# --- signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_waits_for_the_step_and_everything_is_saved(tmp_path, number, error):
    before = signal.getsignal(number)
    agent = make()
    with pytest.raises(error):
        agent.learn(
            TWO,
            callback=[lambda agent: os.kill(os.getpid(), number), ds.Checkpoints(tmp_path)],
        )
    assert agent.num_timesteps == CHUNK
    assert same(ds.load(tmp_path).resume(), make().learn(TWO))
    assert signal.getsignal(number) is before


def test_a_second_signal_acts_at_once(capsys):
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert "Stopping after this outer step" in capsys.readouterr().err


@pytest.mark.slow
def test_the_bar_never_passes_its_end_nor_shows_a_value_that_is_none():
    assert list(make().training(10)) == [(CHUNK, CHUNK)]  # fewer steps than an outer step has
    bar = TrainingBar("a run", disable=True)
    bar.update(CHUNK, CHUNK, -math.inf)
    (task,) = bar._bar.tasks
    assert (task.completed, task.total, task.fields["status"]) == (CHUNK, CHUNK, "")
    bar.update(CHUNK, CHUNK, 0.5)
    assert task.fields["status"] == "best 0.5000"
