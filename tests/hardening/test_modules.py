"""Environments that are named by their module, `module:Id-v0`, in every command."""

import json
import sys

import gymnasium as gym
import pytest

import downside as ds
from downside import cli
from downside.runs import read_run

MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class Mine(CartPoleEnv):
    def __init__(self, push=10.0, **more):
        super().__init__(**more)
        self.force_mag = push


gym.register("Mine-v0", Mine, max_episode_steps=20)
"""
JAX_MODULE = """
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from downside.envs import AbstractJaxEnv, GymnasiumEnv, StepResult


class Bet(AbstractJaxEnv):
    size: float = 1.0

    @property
    def num_actions(self):
        return 2

    @property
    def horizon(self):
        return 2

    @property
    def observation_space(self):
        return gym.spaces.Box(0.0, 2.0, (1,), np.float32)

    def initial_state(self, key):
        return jnp.zeros(())

    def sample_noise(self, key):
        return jax.random.normal(key)

    def transition(self, state, action, noise):
        reward = self.size * action * (0.5 + noise)
        return StepResult(state + 1.0, reward, state >= 1.0, jnp.zeros((), bool))

    def observe(self, state):
        return state[None].astype(jnp.float32)


gym.register("Bet-v0", GymnasiumEnv, kwargs={"core": Bet})
"""
SMALL = [
    *("--hidden-sizes", "8", "--quantiles", "4", "--num-envs", "2", "--batch-size", "4"),
    *("--buffer-size", "64", "--warmup-steps", "16", "--outer-interval", "8"),
]
SAMPLE = ["--episodes", "10"]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that registers an environment; `forget` makes it unknown again."""
    (tmp_path / "env_of_a_user.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield "env_of_a_user"
    forget("env_of_a_user")


def forget(module):
    """As in another process."""
    sys.modules.pop(module, None)
    gym.registry.pop("Mine-v0", None)
    gym.registry.pop("Bet-v0", None)


@pytest.fixture
def jax_module(tmp_path, monkeypatch):
    """The same with an environment that is written in JAX."""
    (tmp_path / "bets_of_a_user.py").write_text(JAX_MODULE)
    monkeypatch.chdir(tmp_path)
    yield "bets_of_a_user"
    forget("bets_of_a_user")


@pytest.mark.slow
def test_it_is_remembered_with_the_run_and_works_in_every_command(module, capsys):
    env_id = f"{module}:Mine-v0"
    train = ["train", env_id, "--agent", "qrdqn", "--steps", "32", "--params", "push=8.0"]
    cli.main([*train, *SAMPLE, *SMALL, "--json"])
    trained = json.loads(capsys.readouterr().out)[0]
    assert trained["folder"] == "runs/Mine-v0__qrdqn__mean__0"
    folder = trained["folder"]
    assert read_run(folder)["env"]["id"] == env_id
    for command in (
        ["evaluate", folder, *SAMPLE, "--json"],
        ["resume", folder, "--json"],
        ["explain", folder, "--checks", "5", "--json"],
        ["report", folder, *SAMPLE, "--checks", "5", "--explained-episodes", "1", "--json"],
    ):
        forget(module)
        cli.main(command)
        printed = json.loads(capsys.readouterr().out)
        if command[0] == "evaluate":
            assert printed["values"][0]["value"] == trained["values"][0]["value"]
            assert printed["env"]["parameters"] == {"push": 8.0}


@pytest.mark.slow
def test_a_file_alone_imports_nothing_and_says_what_does(module, capsys, tmp_path):
    env_id = f"{module}:Mine-v0"
    small = {"hidden_sizes": (8,), "quantiles": 4, "num_envs": 2, "batch_size": 4}
    small |= {"buffer_size": 64, "warmup_steps": 16, "outer_interval": 8}
    path = ds.QRDQN(env_id, **small).learn(32).save(tmp_path / "agent")
    forget(module)
    with pytest.raises(ds.CheckpointError, match=f"import it yourself .*--import {module}"):
        ds.load(path)
    assert module not in sys.modules
    cli.main(["--import", module, "evaluate", str(path), *SAMPLE, "--json"])
    assert json.loads(capsys.readouterr().out)["env"]["id"] == env_id
    # Imported, it is known: nothing more has to be.
    assert str(ds.load(path).env_spec) == env_id


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "nowhere:Mine-v0", "--risk", "mean"], "names the module 'nowhere', which is"),
        (["train", "env_of_a_user:Other-v0", "--risk", "mean"], "must be the id of a registered"),
        (["frontier", "env_of_a_user:Mine-v0"], "must be written in JAX"),
        (["solve", "env_of_a_user:Mine-v0", "--risk", "mean"], "`env`"),
    ],
)
def test_what_does_not_go_is_refused_with_the_reason(module, capsys, command, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(command)
    assert stop.value.code == 1
    assert message in capsys.readouterr().err


def test_the_runs_of_a_study_remember_it_too(module, tmp_path, capsys):
    from downside.studies import read_study

    agent = {"name": "qrdqn", "hidden_sizes": [8], "quantiles": 4, "num_envs": 2, "batch_size": 4}
    agent |= {"buffer_size": 64, "warmup_steps": 16, "outer_interval": 8}
    table = {
        "study": {"name": "mine", "seeds": 1, "total_timesteps": 32, "episodes": 10},
        "environments": [{"id": f"{module}:Mine-v0"}],
        "agents": [agent],
    }
    (run,) = read_study(table).runs
    assert run.name.startswith("Mine-v0__qrdqn__mean__0__")
    made = run.make_agent()
    assert made.env_spec.as_json()["id"] == f"{module}:Mine-v0"


JAX_SMALL = [
    *("--hidden-sizes", "8", "--quantiles", "4", "--num-envs", "4", "--batch-size", "4"),
    *("--buffer-size", "64", "--warmup-steps", "16", "--outer-interval", "4"),
    *("--updates-per-step", "1", "--outer-episodes", "8", "--shifts", "1", "--top-actions", "0"),
    *("--random-actions", "0", "--optimiser", "adam", "--evaluation-fraction", "0"),
]


@pytest.mark.long
def test_one_that_is_written_in_jax_is_trained_as_such(jax_module, capsys):
    env = [f"{jax_module}:Bet-v0", "--params", "size=2.0"]
    train = ["train", *env, "--risk", "cvar(0.5)", "--steps", "32", "--out", "mine", "--json"]
    cli.main([*train, *SAMPLE, *JAX_SMALL])
    trained = json.loads(capsys.readouterr().out)[0]
    assert trained["env"]["parameters"] == {"size": 2.0}
    forget(jax_module)
    cli.main(["evaluate", "mine", *SAMPLE, "--json"])
    again = json.loads(capsys.readouterr().out)
    assert again["values"][0]["value"] == trained["values"][0]["value"]
    agent = ds.load("mine")
    assert type(agent.jax_env).__name__ == "Bet"
    assert getattr(agent.jax_env, "size", None) == 2.0
    forget(jax_module)
    frontier = ["frontier", *env, "--points", "2", "--seeds", "0", "--steps", "32", "--no-exact"]
    more = ["--checks", "5", "--explained-episodes", "1", "--out", "f", "--json"]
    cli.main([*frontier, *SAMPLE, *more, *JAX_SMALL])
    assert len(json.loads(capsys.readouterr().out)["points"]) == 2


def test_a_parameter_that_it_does_not_have_is_named(jax_module, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", f"{jax_module}:Bet-v0", "--risk", "mean", "--params", "sise=2.0"])
    assert "Bet has no parameter `sise`. Did you mean 'size'?" in capsys.readouterr().err


def test_studies_sweep_its_parameters(jax_module):
    from downside.studies import read_study

    table = {
        "study": {"name": "mine", "seeds": 1, "risks": ["mean"]},
        "environments": [{"id": f"{jax_module}:Bet-v0", "size": [1.0, 2.0]}],
        "agents": [{"name": "qrsrm"}, {"name": "qrdqn"}],
    }
    runs = read_study(table).runs
    assert sorted(run.parameters["size"] for run in runs) == [1.0, 1.0, 2.0, 2.0]
    assert all("samples_per_action" in run.settings for run in runs)
    agent = runs[0].make_agent()
    assert agent.jax_env is not None
