import json
import re
import subprocess
import sys

import pytest

import downside as ds
from downside import cli


def test_risks_lists_every_measure(capsys):
    cli.main(["risks"])
    output = capsys.readouterr().out
    for text in ("mean", "cvar(0.2)", "exponential(4)", "dual_power(2)", "alpha in (0, 1]"):
        assert text in output


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_name_is_cut_off_however_narrow_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    cli.main(["risks"])
    cli.main(["reproduce", "example1"])
    output = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in output
    assert "exponential(4)" in output
    assert "5.5875" in output


def test_without_arguments_the_first_commands_are_shown_and_each_exists(capsys):
    cli.main([])
    shown = re.findall(r"^    downside (\w+)", capsys.readouterr().out, re.MULTILINE)
    assert shown == ["train", "report", "solve", "frontier", "explain"]
    for command in shown:
        with pytest.raises(SystemExit) as caught:
            cli.main([command, "--help"])
        assert caught.value.code == 0


@pytest.mark.parametrize("command", [["risks"], ["envs"]])
def test_a_list_ends_with_what_to_do_next(capsys, command):
    cli.main(command)
    assert capsys.readouterr().out.splitlines()[-1].startswith("Next: downside train downside/")


def test_the_version_is_told(capsys):
    cli.main(["--version"])
    assert capsys.readouterr().out.startswith("downside 0.")


def test_envs_lists_every_environment(capsys):
    cli.main(["envs"])
    assert "downside/WindyLunarLander-v0" in capsys.readouterr().out
    cli.main(["envs", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["parameters"]["sigma"] == 0.3


@pytest.mark.slow
def test_solve_prints_the_optimum_and_writes_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["solve", "downside/AmericanPut-v0", "--risk", "cvar(0.6)", "--gamma", "1"])
    assert "0.167" in capsys.readouterr().out
    folder = tmp_path / "runs" / "AmericanPut-v0__plan__cvar-0.6__0"
    summary = json.loads((folder / "plan.json").read_text())
    assert summary["value"] == pytest.approx(0.1677, rel=5e-3)
    assert (folder / "plan.png").stat().st_size > 10_000
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "plan.png"]


@pytest.mark.slow
def test_solve_takes_parameters_and_prints_json(capsys, tmp_path):
    arguments = ["solve", "downside/AmericanPut-v0", "--risk", "mean", "--episodes", "100"]
    cli.main([*arguments, "--params", "kind=call", "sigma=0.4", "--json", "--out", str(tmp_path)])
    summary = json.loads(capsys.readouterr().out)
    assert summary["parameters"] == {"kind": "call", "sigma": 0.4}


def test_an_interrupted_solve_says_so_in_one_line(capsys, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("downside.exact.solve", interrupted)
    with pytest.raises(SystemExit) as caught:
        cli.main(["solve", "downside/AmericanPut-v0", "--risk", "mean", "--out", str(tmp_path)])
    assert caught.value.code == 130
    assert capsys.readouterr().err == "downside: interrupted; nothing was written.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--risk", "cvra(0.2)"], "Did you mean 'cvar'?"),
        (["--risk", "mean", "--params", "sigm=1"], "Did you mean 'sigma'?"),
        (["--risk", "mean", "--params", "sigma"], "must be given as name=value"),
        (["--risk", "mean", "--gamma", "2"], "`gamma` must be in (0, 1]"),
    ],
)
def test_mistakes_in_solve_are_explained(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        cli.main(["solve", "downside/AmericanPut-v0", *arguments])
    assert caught.value.code == 1
    assert message in capsys.readouterr().err


def test_risks_as_json_is_for_machines(capsys):
    cli.main(["risks", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} >= {"mean", "cvar", "exponential", "dual_power"}
    assert all(row["formula"] and row["description"] for row in rows)


@pytest.mark.parametrize("name", ["example1", "example2"])
def test_the_examples_agree_with_the_paper(capsys, name):
    cli.main(["reproduce", name])
    output = capsys.readouterr().out
    assert "yes" in output
    assert "NO" not in output


def test_a_typo_gets_a_suggestion_and_exit_code_1(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["reproduce", "exampel1"])
    assert caught.value.code == 1
    assert "Did you mean 'example1'?" in capsys.readouterr().err


def test_wrong_usage_has_exit_code_2(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["risk"])
    assert caught.value.code == 2
    assert "`risk` is no command. Did you mean 'risks'?" in capsys.readouterr().err


def test_an_unknown_option_has_exit_code_2(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["risks", "--colour"])
    assert caught.value.code == 2
    assert "--colour" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "frontier"])
@pytest.mark.parametrize("flag", ["--steps", "--total-timesteps", "--timesteps"])
def test_steps_may_be_named_as_in_python_and_in_stable_baselines3(command, flag):
    parsed = cli._parsed([command, flag, "1000", "CartPole-v1"])
    assert (parsed.env, parsed.steps) == ("CartPole-v1", 1000)


@pytest.mark.slow
def test_help_does_not_wait_for_jax():
    code = (
        "import sys\nfrom downside import cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nassert 'jax' not in sys.modules"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "reproduce" in done.stdout


# --- training ---------------------------------------------------------------------------------

SMALL = [
    "--hidden-sizes",
    "16",
    "16",
    "--quantiles",
    "5",
    "--num-envs",
    "8",
    "--batch-size",
    "8",
    "--buffer-size",
    "512",
    "--warmup-steps",
    "64",
    "--updates-per-step",
    "2",
    "--outer-interval",
    "8",
    "--outer-episodes",
    "16",
    "--optimiser",
    "adam",
    "--shifts",
    "3",
    "--evaluation-fraction",
    "0",
    "--top-actions",
    "2",
    "--random-actions",
    "1",
]
ENV = ["downside/MeanReversion-v0", "--params", "periods=3", "num_trades=5", "inventory_limit=2"]


def test_a_run_is_trained_valued_and_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train = ["train", *ENV, "--risk", "cvar(0.5)", "--steps", "64", "--episodes", "200", *SMALL]
    cli.main([*train, "--seeds", "0", "1"])
    output = capsys.readouterr().out
    assert "QR-SRM for cvar(0.5) in downside/MeanReversion-v0" in output
    folder = tmp_path / "runs" / "MeanReversion-v0__qrsrm__cvar-0.5__1"
    names = {one.name for one in folder.iterdir()}
    assert names >= {"run.json", "evaluation.json", "returns.npy", "log_1"}
    assert json.loads((folder / "run.json").read_text())["settings"]["quantiles"] == 5

    cli.main(["runs", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [(row["status"], row["timesteps"], row["seed"]) for row in rows] == [
        ("finished", 64, 0),
        ("finished", 64, 1),
    ]
    cli.main(["runs"])
    assert "finished" in capsys.readouterr().out

    cli.main(["evaluate", str(folder), "--risks", "cvar(0.1)", "--episodes", "100", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert [one["risk"] for one in shown["values"]][:2] == ["cvar(0.5)", "cvar(0.1)"]
    assert shown["values"][0]["episodes"] == 100

    cli.main(["export", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["file"] == str(folder / "policy.onnx")
    cli.main(["export", str(folder), "--out", "here.onnx"])
    assert "here.onnx: checked against the agent" in capsys.readouterr().out
    assert (tmp_path / "here.onnx").exists()

    with pytest.raises(SystemExit) as stop:
        cli.main([*train, "--seeds", "0"])
    assert stop.value.code == 1
    assert "There is a run in runs/MeanReversion" in capsys.readouterr().err


def test_a_run_that_was_stopped_is_resumed_to_its_end(tmp_path, monkeypatch, capsys):
    from downside.train.driver import Driver

    monkeypatch.chdir(tmp_path)
    chunks = Driver.chunks

    def one_step(self):
        yield next(chunks(self))
        raise KeyboardInterrupt

    monkeypatch.setattr(Driver, "chunks", one_step)
    arguments = ["--risk", "cvar(0.5)", "--steps", "64", "--episodes", "200", "--out", "mine"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", *ENV, *arguments, *SMALL])
    assert stop.value.code == 130
    output = capsys.readouterr().err
    assert "stopped; the last checkpoint is after 32 steps. Go on: downside resume mine" in output
    monkeypatch.setattr(Driver, "chunks", chunks)
    cli.main(["runs", ".", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["status"] == "unfinished"
    cli.main(["resume", "mine", "--json"])
    assert json.loads(capsys.readouterr().out)["timesteps"] == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "CartPole-v2", "--risk", "mean"], "Did you mean 'CartPole-v1'?"),
        (["train", "CartPole-v1", "--risk", "cvr(0.2)"], "Did you mean 'cvar'?"),
        (["train", "CartPole-v1"], "QRSRM needs a `risk`"),
        (["train", "CartPole-v1", "--agent", "qrsmr", "--risk", "mean"], "Did you mean 'qrsrm'?"),
        (["train", "Pendulum-v1", "--risk", "mean"], "must have discrete actions"),
        (["train", *ENV, "--risk", "mean", "--quantiles", "0"], "`quantiles` must be a whole"),
        (["train", *ENV, "--risk", "mean", "--n-steps", "3"], "that are not written in JAX."),
        (["train", "--shifts=3", "CartPole-v1", "--risk", "mean"], "no setting `shifts` for this"),
        (["train", "downside.envs:BetingGame", "--risk", "mean"], "'downside.envs:BettingGame'?"),
        (["train", "downside.cli:Solve", "--risk", "mean"], "Such classes in downside.cli: none."),
        (["resume", "nowhere"], "nowhere is no run: it has no run.json"),
        (["evaluate", "nowhere"], "nowhere.safetensors, and no run folder nowhere."),
    ],
)
def test_mistakes_in_training_are_explained(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 1
    assert message in capsys.readouterr().err


def test_there_are_no_runs_at_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["runs"])
    assert "There are no runs in runs. `downside train` makes one." in capsys.readouterr().out


def help_of(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", *arguments, "--help"])
    assert stop.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_help_shows_the_settings_and_defaults_that_the_environment_gets(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    text = help_of(capsys, "downside/MeanReversion-v0")
    assert "Discount factor γ. (default here: 0.99)" in text
    assert "--num-envs" in text
    assert "(default here: 256)" in text
    assert "--top-actions" in text
    assert "--n-steps" not in text
    text = help_of(capsys, "CartPole-v1")
    assert "--n-steps" in text
    assert "exploratory actions. (default here: 10; where all episodes are short: 1)" in text
    assert "--top-actions" not in text
    text = help_of(capsys, "CartPole-v1", "--preset", "paper")
    assert "n-step returns, truncated at exploratory actions. (default here: 1)" in text
    text = help_of(capsys, "downside/MeanReversion-v0", "--agent", "qrdqn")
    assert "--top-actions" in text
    assert "(default here: 2)" in text
    text = help_of(capsys, "--preset", "paper")
    assert "--n-steps" not in text
    assert "Discount factor γ. (default in environments written in JAX: 0.99)" in text


def test_the_environment_may_stand_behind_the_flags(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert "--top-actions" in help_of(capsys, "--risk", "mean", "downside/MeanReversion-v0")
    assert "--n-steps" in help_of(capsys, "--risk", "mean", "CartPole-v1")


MY_AGENT = """
from typing import ClassVar

import jax.numpy as jnp

import downside as ds
from downside.agents import AbstractQuantileAlgorithm
from downside.envs import ReturnInput


class Cautious(AbstractQuantileAlgorithm):
    name: ClassVar[str] = "cautious"
    fixed: ClassVar = {"critic": "quantiles"}

    def memory_input(self, outer):
        return ReturnInput()

    def quantile_scores(self, quantiles, memory, outer):
        return jnp.minimum(memory.accumulated + memory.discount_so_far * quantiles, 0.5).mean(-1)

    def initial_outer(self, returns):
        return jnp.zeros(())


class CautiousAgent(ds.Agent):
    algorithm_class = Cautious
"""


@pytest.fixture
def my_module(tmp_path, monkeypatch):
    name = "agent_of_a_user"
    (tmp_path / f"{name}.py").write_text(MY_AGENT)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)
    ds.Agent.classes.pop(f"{name}:CautiousAgent", None)


@pytest.mark.slow
def test_an_agent_of_one_s_own_is_trained_valued_and_resumed(my_module, capsys):
    arguments = ["--risk", "mean", "--steps", "64", "--episodes", "200", "--json", "--out", "mine"]
    cli.main(["train", *ENV, "--agent", f"{my_module}:CautiousAgent", *arguments, *SMALL])
    trained = json.loads(capsys.readouterr().out)[0]
    assert trained["agent"] == f"{my_module}:CautiousAgent"
    assert trained["simulated_steps"] > 0
    # As in another process: nothing is known of the module.
    del sys.modules[my_module], ds.Agent.classes[f"{my_module}:CautiousAgent"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["evaluate", "mine"])
    assert stop.value.code == 1
    assert f"import {my_module} before loading it" in capsys.readouterr().err
    cli.main(["--import", my_module, "evaluate", "mine", "--episodes", "200", "--json"])
    again = json.loads(capsys.readouterr().out)
    assert again["values"][0]["value"] == trained["values"][0]["value"]
    cli.main(["resume", "mine", "--json"])
    assert json.loads(capsys.readouterr().out)["timesteps"] == 64


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("nowhere:Agent", "There is no module 'nowhere'"),
        ("agent_of_a_user:Cautious", "has no subclass of ds.Agent of that name"),
    ],
)
def test_an_agent_that_is_not_there_is_named(my_module, capsys, agent, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", *ENV, "--agent", agent, "--risk", "mean"])
    assert stop.value.code == 1
    assert message in capsys.readouterr().err


# --- lists, and places that cannot be written ---------------------------------------------------


@pytest.fixture
def some_runs(tmp_path, monkeypatch):
    """A finished run, one that was killed before its first checkpoint, and one that is at it."""
    from downside.runs import train_run

    from .train.tiny import TWO, make

    monkeypatch.chdir(tmp_path)
    for name in ("done", "killed", "at-it"):
        folder = tmp_path / "runs" / f"MeanReversion-v0__qrsrm__{name}-and-a-name-of-some-length__0"
        train_run(make(), folder, total_timesteps=TWO, episodes=20)
        if name != "done":
            for path in (folder / "evaluation.json", *folder.glob("checkpoint-*")):
                path.unlink()
    return folder


@pytest.mark.slow
def test_a_run_without_a_checkpoint_is_running_or_says_so(some_runs, capsys):
    from downside._locks import lock

    with lock(some_runs):
        cli.main(["runs", "--json"])
    rows = json.loads(capsys.readouterr().out)
    names = {row["folder"].rpartition("__qrsrm__")[2][:4]: row["status"] for row in rows}
    assert names == {"done": "finished", "kill": "no checkpoint", "at-i": "running"}
    cli.main(["runs", "--json"])
    statuses = [row["status"] for row in json.loads(capsys.readouterr().out)]
    assert sorted(statuses) == ["finished", "no checkpoint", "no checkpoint"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_runs_are_listed_without_breaking_names(some_runs, capsys, monkeypatch, width):
    import rich.console

    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(rich.console.Console, "is_terminal", True)
    cli.main(["runs"])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    lines = [line.strip() for line in plain.splitlines()]
    names = [line.split()[0] for line in lines if line.startswith("runs/")]
    assert names == [f"runs/{path.name}" for path in sorted(some_runs.parent.iterdir())]
    if width == 200:
        assert lines[1].split()[:2] == ["run", "status"]
    else:  # what there is to say of it is on the next line
        assert re.match(r"finished  64 \+ [\d,]+ steps  \S+ \(\S+ to \S+\)", "\n".join(lines[3:4]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", *ENV, "--risk", "mean", *SMALL, "--out"], "could not be made: there is a file"),
        (["solve", "downside/AmericanPut-v0", "--risk", "mean", "--out"], "could not be made: the"),
        (["report", "agent", "--out"], "could not be made: there is a file of that name"),
        (["explain", "agent", "--out"], "could not be made: there is a file of that name"),
        (["frontier", *ENV, "--points", "2", *SMALL, "--out"], "could not be made: there is a"),
        (["reproduce", "demo", "--quick", "--results"], "could not be made: there is a file of"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_before_the_work(
    tmp_path, monkeypatch, capsys, arguments, message
):
    from .train.tiny import CHUNK, make

    def work(*_, **__):
        raise AssertionError("it has begun to work")

    monkeypatch.chdir(tmp_path)
    if arguments[1] == "agent":
        make().learn(CHUNK).save("agent")
    for place in ("downside.solve", "downside.evaluate", "downside.explain", "downside.frontier"):
        monkeypatch.setattr(place, work)
    monkeypatch.setattr("downside.reporting.sections.make_section", work)
    monkeypatch.setattr("downside.train.agent.Agent.learn", work)
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments, "file/below.html"])
    assert stop.value.code == 1
    assert message in capsys.readouterr().err
