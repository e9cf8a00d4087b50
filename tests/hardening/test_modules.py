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
        said = json.loads(capsys.readouterr().out)
        if command[0] == "evaluate":
            assert said["values"][0]["value"] == trained["values"][0]["value"]
            assert said["env"]["parameters"] == {"push": 8.0}


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
