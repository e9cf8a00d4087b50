"""What happens between two steps of training."""

import os
import signal

import numpy as np
import pytest

import downside as ds
from downside.train import fused
from downside.train.callbacks import as_callbacks, saved_in
from downside.train.interruption import Terminated

from .test_hosted import same
from .tiny import CHUNK, ENV, TINY, TWO


def make(**changes):
    return ds.QRSRM(ENV, risk="cvar(0.5)", seed=0, **{**TINY, **changes})


def test_a_callback_is_told_of_the_start_each_step_and_the_end():
    told = []

    class Tell(ds.Callback):
        def on_start(self, agent):
            told.append(("start", agent.num_timesteps))

        def on_step(self, agent):
            told.append(("step", agent.num_timesteps))

        def on_end(self, agent):
            told.append(("end", agent.num_timesteps))

    make().learn(TWO, callback=[Tell(), None])
    assert told == [("start", 0), ("step", CHUNK), ("step", TWO), ("end", TWO)]


def test_what_is_no_callback_is_refused():
    with pytest.raises(TypeError, match=r"`callback` must be a ds\.Callback, a function of the"):
        as_callbacks(3)


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
    assert len(saved_in(tmp_path)) == 1


def test_evaluations_are_by_every_measure_that_was_asked_for():
    evaluations = ds.Evaluations(every_steps=TWO, episodes=50, risks=["mean", "cvar(0.2)"])
    agent = make().learn(4 * CHUNK, callback=evaluations)
    assert [one["timesteps"] for one in evaluations.results] == [TWO, 4 * CHUNK]
    last = evaluations.results[-1]
    returns = agent.simulate_returns(50, seed=20_000)
    assert last["eval/mean"] == pytest.approx(returns.mean(), rel=1e-6)
    assert last["eval/cvar(0.2)"] == pytest.approx(np.sort(returns)[:10].mean(), rel=1e-5)
    assert agent.history[-1]["eval/mean"] == last["eval/mean"]


def test_training_stops_once_the_value_is_reached():
    best = make().learn(TWO).history[0]["best"]
    agent = make().learn(TWO, callback=ds.StopAtValue(best))
    assert agent.num_timesteps == CHUNK


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_waits_for_the_step_and_everything_is_saved(tmp_path, number, error):
    def send(agent):
        os.kill(os.getpid(), number)

    agent = make()
    with pytest.raises(error):
        agent.learn(TWO, callback=[send, ds.Checkpoints(tmp_path)])
    assert agent.num_timesteps == CHUNK
    assert same(ds.load(tmp_path).resume(), make().learn(TWO))
    assert signal.getsignal(number) is not None


def test_a_loss_that_is_not_finite_ends_training_at_the_last_good_state(tmp_path, monkeypatch):
    advance = fused.advance

    def broken(program, algorithm, run):
        run, metrics = advance(program, algorithm, run)
        bad = float(metrics.timesteps) > CHUNK
        return run, metrics._replace(critic_loss=np.float32(np.nan)) if bad else metrics

    agent = make()
    monkeypatch.setattr(fused, "advance", broken)
    with pytest.raises(ds.DivergenceError, match="Try a lower `learning_rate`"):
        agent.learn(4 * CHUNK, callback=ds.Checkpoints(tmp_path, every_steps=1))
    assert agent.num_timesteps == CHUNK
    monkeypatch.undo()
    assert same(ds.load(tmp_path).resume(), make().learn(4 * CHUNK))
