"""PG-SRM in studies, frontiers and `train_many`: settings of its own, continuous actions."""

import json
from typing import Any

import numpy as np
import pytest

import downside as ds
from downside import cli
from downside.studies import StudyError, read_study

pytestmark = pytest.mark.slow  # what all tests look at takes long to make

TINY = {
    "updates": 4,
    "batch_size": 16,
    "final_batches": 1,
    "outer_interval": 2,
    "outer_episodes": 32,
    "hidden_sizes": (4,),
}
ENV = {"id": "downside/MeanReversion-v0", "periods": 3, "continuous": True}
AGENT = {"name": "pgsrm", **TINY, "hidden_sizes": [4]}


def study(agents, environments=(ENV,), **changes):
    table = {"name": "actors", "risks": ["cvar(0.5)"], "seeds": 1, "episodes": 50, **changes}
    return {"study": table, "environments": list(environments), "agents": list(agents)}


def test_a_run_has_the_steps_of_its_updates():
    (run,) = read_study(study([AGENT])).runs
    assert run.total_timesteps == 4 * 16 * 3  # updates, episodes of a batch, steps
    assert run.settings["total_timesteps"] == run.total_timesteps
    settings: Any = run.make_agent().settings
    assert settings.updates == 4
    (longer,) = read_study(study([{**AGENT, "updates": 6}])).runs
    assert longer.total_timesteps == 6 * 16 * 3
    # What an agent says counts more than what the study has for all of them.
    (same,) = read_study(study([AGENT], total_timesteps=10_000)).runs
    assert same.total_timesteps == run.total_timesteps
    bare = {name: value for name, value in AGENT.items() if name != "updates"}
    (given,) = read_study(study([bare], total_timesteps=480)).runs
    assert given.total_timesteps == 480


def test_a_run_has_the_discount_factor_of_its_environment():
    (hedge,) = read_study(study([AGENT], [{"id": "downside/Hedging-v0"}])).runs
    assert hedge.settings["gamma"] == 1.0
    (given,) = read_study(study([{**AGENT, "gamma": 0.9}], [{"id": "downside/Hedging-v0"}])).runs
    assert given.settings["gamma"] == 0.9


def test_an_agent_of_lived_episodes_has_its_own_settings_in_a_jax_environment():
    agent = {"name": "acsrm", "num_envs": 4, "n_steps": 6, "adapt": False}
    (run,) = read_study(study([agent], [{"id": "downside/GuardedMaze-v0"}])).runs
    assert run.settings["gamma"] == 1.0  # the environment's
    settings: Any = run.make_agent().settings
    assert (settings.num_envs, settings.n_steps, settings.gamma) == (4, 6, 1.0)


@pytest.mark.parametrize(
    ("agent", "environment", "message"),
    [
        ({**AGENT, "quantiles": 5}, ENV, "There is no setting `quantiles` for PG-SRM"),
        ({**AGENT, "preset": "paper"}, ENV, "`preset` must be 'default' for PG-SRM"),
        ({**AGENT, "batch_size": 1}, ENV, "`batch_size` must be"),
        (AGENT, {"id": "CartPole-v1"}, "PG-SRM learns only in environments written in JAX"),
        ({"name": "qrsrm"}, ENV, "`env` must have discrete actions"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_starts(agent, environment, message):
    with pytest.raises(StudyError, match=message):
        read_study(study([agent], [environment]))


@pytest.mark.long
def test_many_actors_are_what_they_would_be_alone():
    env = ds.envs.MeanReversion(periods=3, continuous=True)
    alone = ds.PGSRM(env, risk="cvar(0.5)", seed=1, **TINY).learn()
    wanted = alone.simulate_returns(20, seed=5)
    for engine in ("threads", "vmap"):
        agents = ds.train_many(
            env, risks=["cvar(0.5)"], seeds=[0, 1], agent=ds.PGSRM, engine=engine, **TINY
        )
        assert [agent.seed for agent in agents] == [0, 1]
        np.testing.assert_allclose(agents[1].simulate_returns(20, seed=5), wanted, atol=1e-3)


def test_a_frontier_of_actors_is_kept_and_taken_up_again(tmp_path):
    env = ds.envs.MeanReversion(periods=3, continuous=True)
    given = {"points": 2, "seeds": [0], "agent": ds.PGSRM, "episodes": 50, "exact": False, **TINY}
    curve = ds.frontier(env, end="cvar(0.5)", folder=tmp_path, **given)
    again = ds.frontier(env, end="cvar(0.5)", folder=tmp_path, **given)
    assert curve.agent == "PG-SRM"
    assert [point.by_own.value for point in again.points] == [p.by_own.value for p in curve.points]
    assert isinstance(again.points[0].agents[0], ds.PGSRM)


def test_an_actor_goes_through_the_commands(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = "--updates 4 --batch-size 16 --outer-interval 2 --outer-episodes 32 --hidden-sizes 4"
    tiny += " --final-batches 1"
    env = ["downside/MeanReversion-v0", "--params", "continuous=true", "periods=3"]
    arguments = [*env, "--agent", "pgsrm", "--risk", "cvar(0.5)", *tiny.split()]
    cli.main(["train", *arguments, "--episodes", "50", "--out", "run", "--json"])
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["agent"], run["timesteps"]) == ("PGSRM", 192)
    cli.main(["resume", "run", "--json"])
    assert json.loads(capsys.readouterr().out)["values"] == run["values"]
    cli.main(["explain", "run", "--checks", "10", "--json"])
    explained = json.loads(capsys.readouterr().out)
    assert explained["distributions"] == "simulated"
    assert len(explained["episodes"][0][0]["action"]) == 1
    cli.main(["report", "run", "--checks", "0", "--episodes", "50", "--explained-episodes", "1"])
    assert (tmp_path / "report.html").stat().st_size > 10_000
    capsys.readouterr()
    cli.main(["runs", ".", "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["status"], row["timesteps"]) == ("finished", 192)


def test_help_shows_the_settings_of_the_agent(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "downside/MeanReversion-v0", "--agent", "pgsrm", "--help"])
    assert stop.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Gradient steps of a run, unless `total_timesteps` is given." in text
    assert "--quantiles" not in text
    assert "--outer-episodes" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["downside/MeanReversion-v0", "--preset", "paper"],
            "`preset` must be 'default' for PG-SRM",
        ),
        (["CartPole-v1"], "`env` must be written in JAX for PG-SRM"),
    ],
)
def test_what_an_actor_cannot_do_is_one_sentence(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", *arguments, "--agent", "pgsrm", "--risk", "cvar(0.5)"])
    assert stop.value.code == 1
    assert message in capsys.readouterr().err
