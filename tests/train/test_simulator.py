"""Agents on a user's NumPy simulator: everything that they do on an environment in JAX."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import downside as ds
from downside.envs import SimulatorVectorEnv

from .market import Market
from .tiny import CHUNK, COMMON, TINY, TWO, same

ROOT = Path(__file__).parents[2]
PATHWISE = {"hidden_sizes": (8,), "batch_size": 16, "updates": 4, "outer_interval": 2}


LIVED = {
    "hidden_sizes": (8,),
    "num_envs": 4,
    "n_steps": 8,
    "epochs": 1,
    "quantiles": 5,
    "evaluation_fraction": 0.0,
}
SIMULATOR = ds.Simulator(Market())
"""One for all tests, which then share what is compiled for it."""


def make(seed=0):
    return ds.QRSRM(SIMULATOR, risk="cvar(0.5)", seed=seed, **TINY)


@pytest.fixture(scope="module")
def trained():
    return make().learn(TWO)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_agent(trained):
    assert same(trained, make().learn(TWO))


@pytest.mark.slow
def test_it_evaluates_explains_and_acts_in_gymnasium(trained):
    evaluation = ds.evaluate(trained, episodes=2000, seed=1)
    assert np.isfinite(evaluation.value("cvar(0.5)"))
    told = str(ds.explain(trained, checks=20).rows())
    assert any(name in told for name in Market.action_names)
    env = trained.wrap()
    observation, info = env.reset(seed=0)
    action, _ = trained.predict(observation, action_masks=info["action_mask"])
    env.step(action)


@pytest.mark.slow
def test_a_loaded_agent_is_the_one_that_was_saved_and_goes_on_alike(trained, tmp_path):
    path = trained.save(tmp_path / "agent")
    assert same(ds.load(path), trained)  # by module and class
    other = ds.load(path, env=SIMULATOR)
    assert same(other, trained)
    further = make().learn(TWO).learn(CHUNK, reset_num_timesteps=False)
    assert same(other.learn(CHUNK, reset_num_timesteps=False), further)


@pytest.mark.long
def test_killed_and_resumed_it_is_the_run_that_was_never_killed(tmp_path):
    whole = make().learn(6 * CHUNK)
    folder, command = tmp_path / "run", [sys.executable, "-m", "tests.train.killed"]
    environment = {
        **os.environ,
        "KILLED_ENV": "tests.train.market:Market",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    for more in ((), ("resume",)):
        arguments = [*command, str(folder), str(tmp_path / "cache"), *more]
        with subprocess.Popen(
            arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        ) as process:
            assert process.stdout is not None
            if more:
                output, _ = process.communicate()
                assert "done" in output
                break
            lines = [process.stdout.readline() for _ in range(3)]
            assert lines[-1] == f"{3 * CHUNK}\n"
            process.send_signal(signal.SIGKILL)
    assert same(ds.load(folder), whole)


@pytest.mark.slow
def test_an_error_names_the_line_and_loses_nothing():
    agent, simulator = make().learn(TWO), SIMULATOR.simulator
    simulator.closed_at = simulator.open_calls + 5
    try:
        with pytest.raises(
            ds.SimulatorError, match=r"is closed in .*market\.py, line \d+.*`resume`"
        ):
            agent.learn(TWO, reset_num_timesteps=False)
    finally:
        simulator.closed_at = None
    assert agent.num_timesteps == TWO
    agent.resume()
    assert agent.num_timesteps == 2 * TWO
    assert same(agent, make().learn(TWO).learn(TWO, reset_num_timesteps=False))


@pytest.mark.parametrize("engine", ["threads", "vmap"])
@pytest.mark.long
def test_agents_trained_together_are_those_trained_alone(engine):
    agents = ds.train_many(
        SIMULATOR, risks=["cvar(0.5)"], seeds=[0, 1], total_timesteps=TWO, engine=engine, **TINY
    )
    alone = [make(seed).learn(TWO) for seed in (0, 1)]
    for agent, other in zip(agents, alone, strict=True):
        values = [each.history[-1]["value"] for each in (agent, other)]
        np.testing.assert_allclose(*values, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ds.QRCVaR, ds.QRDQN, ds.QRiCVaR])
def test_every_agent_of_discrete_actions_learns_on_a_simulator(kind):
    settings = TINY if kind is ds.QRCVaR else COMMON
    risk = {} if kind is ds.QRDQN else {"risk": "cvar(0.5)"}
    agent = kind(SIMULATOR, **risk, **settings).learn(CHUNK)
    assert np.isfinite(agent.history[-1]["value"])


@pytest.mark.slow
def test_pgsrm_follows_finite_differences():
    agent = ds.PGSRM(SIMULATOR, risk="cvar(0.5)", **PATHWISE).learn()
    assert np.isfinite(agent.history[-1]["value"])


@pytest.mark.slow
def test_pgsrm_tries_actions_that_stand_for_no_points():
    class Numbered(Market):
        actions = 5

        def step(self, state, action, noise):
            return super().step(state, action - 2.0, noise)

        def action_mask(self, state):
            return np.abs(state["held"][:, None] + np.linspace(-2.0, 2.0, 5)) <= 2.001

    agent = ds.PGSRM(ds.Simulator(Numbered()), risk="cvar(0.5)", **PATHWISE).learn()
    assert np.isfinite(agent.history[-1]["value"])


def test_pgsrm_has_shorter_runs_on_a_simulator():
    assert ds.PGSRM(SIMULATOR, risk="mean").settings.updates == 6000  # three steps cost little
    longer = type("Longer", (Market,), {"horizon": 30})()
    settings = ds.PGSRM(ds.Simulator(longer), risk="mean").settings
    assert (settings.batch_size, settings.updates) == (2048, 2604)
    assert ds.PGSRM(ds.Simulator(longer), risk="mean", updates=7).settings.updates == 7


@pytest.mark.slow
def test_acsrm_lives_through_a_simulator_in_numpy():
    agent = ds.ACSRM(SIMULATOR, risk="cvar(0.5)", **LIVED).learn(64)
    assert isinstance(agent.env.unwrapped, SimulatorVectorEnv)
    assert np.isfinite(ds.evaluate(agent, episodes=100, seed=0).value("cvar(0.5)"))
