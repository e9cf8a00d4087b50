"""Trials: which policy is kept where nothing can be simulated."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import downside as ds
from downside.agents.settings import identity
from downside.risk import Tabulated
from downside.sweeping import read_study
from downside.train import playing
from downside.train.host import Host
from downside.train.playing import Player
from downside.train.trials import LEAST, MOST, Trials, allowance, least_episodes, try_out

from ..sweeping.studies import study
from .test_hosted import SMALL, same
from .toys import Counter, Noisy


def trials_of(agent):
    return agent._run.trials


def always(action):
    return lambda observations, *_: np.full(len(observations), action)


class Uneven(Counter):
    """Episodes of 1, 2, 3, ... steps; each step pays 1."""

    def reset(self, *, seed=None, options=None):
        self.length = getattr(self, "episode", 0) + 1
        self.episode = self.length
        return super().reset(seed=seed)


def test_a_player_plays_on_from_where_it_is():
    player = Player(Host(Uneven(), 1), always(1), gamma=1.0, seed=0)
    np.testing.assert_array_equal(player.returns(2), [1, 2])
    assert player.steps == 3
    np.testing.assert_array_equal(player.returns(2), [1, 2])  # nothing is played twice
    np.testing.assert_array_equal(player.returns(4), [1, 2, 3, 4])
    assert player.steps == 10


def test_a_player_takes_as_many_episodes_from_each_environment():
    lengths = {"short": 1, "long": 5}
    makers = [lambda n=n: Counter(length=n) for n in lengths.values()]
    both = gym.vector.SyncVectorEnv(makers, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    returns = Player(Host(both, 2), always(1), gamma=1.0, seed=0).returns(4)
    np.testing.assert_array_equal(returns, [1, 5, 1, 5])


# --- one trial --------------------------------------------------------------------------------


class Told(Player):
    """In the place of a player: so many returns of what it is told, 10 steps each."""

    def __init__(self, mean):  # there is no environment
        self.mean, self.asked, self.steps = mean, [], 0

    def returns_within(self, episodes, steps):
        self.asked.append(episodes)
        self.steps = 10 * episodes
        return self.mean + np.resize([-1.0, 1.0], episodes)


def test_a_policy_that_is_clearly_worse_is_given_up_after_a_few_episodes():
    player = Told(0.0)
    value, error = try_out(player, Tabulated.of(ds.Mean()), bar=1.0, steps=math.inf)
    assert player.asked == [LEAST // 4]
    assert (value, error) == (-math.inf, math.inf)


@pytest.mark.parametrize("mean", [1.0, 0.95])
def test_one_that_comes_close_is_played_on(mean):
    player = Told(mean)
    value, error = try_out(player, Tabulated.of(ds.Mean()), bar=1.0, steps=math.inf)
    assert player.asked == [32, 64, 128, 256, MOST]
    assert value == pytest.approx(mean)
    assert error == pytest.approx(MOST**-0.5)


def test_a_trial_does_not_begin_what_it_cannot_pay():
    player = Told(1.0)
    try_out(player, Tabulated.of(ds.Mean()), bar=-math.inf, steps=1300)
    assert player.asked == [32, 64, 128]
    assert player.steps <= 1300


def test_a_trial_judges_by_the_measure():
    class Tail(Told):
        def returns_within(self, episodes, steps):
            return np.where(np.arange(episodes) % 4 == 0, -8.0, 4.0)

    value, _ = try_out(Tail(0.0), Tabulated.of(ds.CVaR(0.5)), bar=-math.inf, steps=1.0)
    assert value == pytest.approx(-2.0)


# --- when, and how long -----------------------------------------------------------------------


def program(trials, chunks, share=1.0) -> Any:
    settings = SimpleNamespace(trials=trials, trial_share=share)
    return SimpleNamespace(
        settings=settings, chunks=chunks, steps_per_chunk=10, timesteps_per_round=8
    )


def test_trials_are_spread_over_the_second_half():
    def when(trials, chunks):
        spread = program(trials, chunks)
        own = range(1, chunks + 1)
        return [chunk for chunk in own if allowance(spread, chunk, 0, 0.1) > 0]

    assert when(2, 8) == [6, 8]
    assert when(4, 8) == [5, 6, 7, 8]
    assert when(40, 8) == [5, 6, 7, 8]  # one after a chunk at most
    assert when(1, 7) == [7]
    assert when(0, 8) == []


def test_what_a_trial_leaves_over_is_there_for_the_next():
    spread = program(2, 8, share=0.5)  # 320 steps for both
    assert allowance(spread, 6, 0, 1.0) == 160
    assert allowance(spread, 8, 60, 1.0) == 260
    assert allowance(spread, 8, 300, 21.0) == 0  # too little for a few episodes


# --- in a run ---------------------------------------------------------------------------------

TRIED = {**SMALL, "trials": 4, "trial_share": 40.0}


def test_the_best_policy_in_trials_is_kept():
    agent = ds.QRSRM(Noisy(), risk="cvar(0.5)", **TRIED)
    bars = []

    def watch(agent):
        trials, kept = agent._run.trials, agent._run.kept
        bars.append(float(kept.value) - float(trials.error) if trials.held else -math.inf)

    agent.learn(400, callback=watch)
    assert len(bars) == 16
    assert all(bar == -math.inf for bar in bars[:9])  # none in the first half
    assert math.isfinite(bars[-1])
    assert bars == sorted(bars)  # what it is worth at least never sinks
    spent = int(trials_of(agent).steps)
    assert 4 * LEAST * 4 // 4 <= spent <= 40.0 * 400
    assert agent.history[-1]["best"] == pytest.approx(bars[-1] + float(trials_of(agent).error))


def test_a_trial_finds_what_the_training_episodes_do_not_show():
    # Half of the actions are random to the end, so that no episode of training is a good one.
    explore = {"exploration_final": 0.5, "learning_rate": 3e-3}
    agent = ds.QRDQN(Counter(), **{**TRIED, **explore}).learn(2000)
    assert agent.history[-1]["mean"] < 3.5
    best = 1 + 0.99 + 0.99**2 + 0.99**3
    assert agent.history[-1]["best"] == pytest.approx(best)
    np.testing.assert_allclose(agent.simulate_returns(8, 0), best)  # and that policy is kept


@pytest.mark.long
def test_trials_are_the_same_after_a_checkpoint(tmp_path):
    whole = ds.QRSRM(Noisy(), risk="cvar(0.5)", seed=5, **TRIED).learn(400)
    callback = ds.Checkpoints(tmp_path, every_steps=300, keep=9)
    ds.QRSRM(Noisy(), risk="cvar(0.5)", seed=5, **TRIED).learn(400, callback=callback)
    middle = ds.load(tmp_path / "checkpoint-000000000300", Noisy())
    assert middle.num_timesteps == 300
    assert 0 < int(trials_of(middle).steps) < int(trials_of(whole).steps)
    middle.resume()
    assert same(middle, whole)


def test_without_trials_the_last_episodes_decide():
    agent = ds.QRSRM(Counter(), risk="cvar(0.5)", **{**SMALL, "trials": 0}).learn(800)
    assert trials_of(agent).steps == 0
    assert math.isfinite(agent.history[-1]["best"])


@pytest.mark.parametrize(
    ("risk", "episodes"),
    [
        ("mean", 128),
        ("cvar(0.2)", 128),
        ("0.95*mean + 0.05*cvar(0.01)", 128),
        ("cvar(0.1)", 200),
        ("0.8*mean + 0.2*cvar(0.05)", 400),
        ("cvar(0.001)", MOST),
        ("exponential(4)", 152),
    ],
)
def test_some_of_the_episodes_lie_in_the_tail(risk, episodes):
    assert least_episodes(Tabulated.of(ds.parse(risk))) == episodes


class Endless(Counter):
    """Ends only when the two actions were taken in turn."""

    def step(self, action) -> Any:
        self.time, over = self.time + 1, action != getattr(self, "last", action)
        self.last = action
        return np.array([0.0, -1.0], np.float32), 1.0, over, False, {}


def test_a_policy_whose_episodes_do_not_end_is_passed_over(monkeypatch):
    agent = ds.QRDQN(Endless(), **{**TRIED, "trial_share": 2.0}).learn(400)  # there is no error
    assert agent.num_timesteps == 400
    player = Player(Host(Endless(), 1), always(1), gamma=0.9, seed=0)
    assert player.returns_within(2, 50) is None
    assert player.steps == 51
    value, error = try_out(player, Tabulated.of(ds.Mean()), bar=-math.inf, steps=100)
    assert (value, error) == (-math.inf, math.inf)
    assert player.steps == 201
    monkeypatch.setattr(playing, "_LONGEST_EPISODE", 300)
    assert try_out(player, Tabulated.of(ds.Mean()), -math.inf, steps=1e6) == (-math.inf, math.inf)
    with pytest.raises(ds.EnvironmentFaultError, match="did not end in 300 steps"):
        player.returns(1)


@pytest.fixture
def registered():
    gym.register("DownsideTestTried-v0", lambda **_: Counter())
    yield "DownsideTestTried-v0"
    del gym.registry["DownsideTestTried-v0"]


def test_new_environments_are_made_for_trials_and_closed(registered, monkeypatch):
    closed = []
    monkeypatch.setattr(Counter, "close", lambda self: closed.append(self))
    agent = ds.QRDQN(registered, num_envs=2, **TRIED)
    resets = []
    agent.learn(400, callback=lambda agent: resets.append(agent._host.resets))
    assert int(trials_of(agent).steps) > 0
    assert set(resets) == {1}  # the episodes of training go on
    assert len(closed) == 4 * 32  # four trials of as many as are evaluated side by side
    monkeypatch.setattr(Counter, "reset", lambda self, *, seed=None, options=None: 1 / 0)
    with pytest.raises(ds.EnvironmentFaultError, match="ZeroDivisionError"):
        agent.simulate_returns(32, 0)
    assert len(closed) == 5 * 32


def test_an_environment_that_is_there_only_once_is_tried_out_itself(registered, monkeypatch):
    agent = ds.QRDQN(gym.make(registered), **TRIED)
    monkeypatch.setattr(gym, "make", lambda *_, **__: 1 / 0)
    with pytest.warns(UserWarning, match=r"No second .*ZeroDivisionError"):
        agent.learn(400)
    assert int(trials_of(agent).steps) > 0


@pytest.mark.long
def test_what_a_policy_was_worth_elsewhere_is_no_bar():
    agent = ds.QRDQN(Counter(length=8), **TRIED).learn(400)
    assert agent.history[-1]["best"] > 5
    agent.set_env(Counter(length=2))
    agent.learn(400)
    assert agent.history[-1]["best"] <= 2


def test_a_run_that_starts_over_has_its_trials_before_it():
    agent = ds.QRDQN(Counter(), **TRIED).learn(400)
    spent = int(trials_of(agent).steps)
    agent.learn(50)
    assert 0 < int(trials_of(agent).steps) < spent


def test_trials_are_for_environments_that_cannot_be_simulated():
    with pytest.raises(ValueError, match=r"`trials` must be 0 .*written in JAX"):
        ds.QRSRM("downside/MeanReversion-v0", risk="cvar(0.5)", trials=3)


def test_a_setting_that_is_off_does_not_change_what_a_run_is():
    now = dataclasses.asdict(ds.Settings())
    assert "trials" in now
    assert "trials" not in identity(now)
    cell = read_study(study(seeds=1)).cells[0]
    assert cell.key == dataclasses.replace(cell, settings=identity(cell.settings)).key
    assert identity({**now, "trial_share": 0.3}) == identity(now)
    assert identity({**now, "trials": 3}) != identity({**now, "trials": 4})
    assert identity({}) == {}  # as in a file from before all of them


def test_before_the_first_one_nothing_is_known():
    assert not Trials.none().held


def test_a_trial_whose_episodes_are_too_long_to_be_paid_for_is_given_up_early():
    class Slow:
        steps = 0

        def returns_within(self, episodes, steps):
            self.steps = 30 * episodes
            return np.ones(episodes) if self.steps <= steps else None

    mean = Tabulated.of(ds.parse("mean"))
    least = least_episodes(mean)
    player: Any = Slow()
    # In training they took 10 steps: so many of 30 are more than twice what there is.
    assert try_out(player, mean, -math.inf, 10 * least) == (-math.inf, math.inf)
    assert player.steps == 30 * least // 4
    assert try_out(player, mean, -math.inf, 20 * least)[0] == 1.0
