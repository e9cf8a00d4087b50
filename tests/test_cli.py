import json
import subprocess
import sys

import pytest

from downside import cli


def test_risks_lists_every_measure(capsys):
    cli.main(["risks"])
    said = capsys.readouterr().out
    for text in ("mean", "cvar(0.2)", "exponential(4)", "dual_power(2)", "alpha in (0, 1]"):
        assert text in said


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_name_is_cut_off_however_narrow_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    cli.main(["risks"])
    cli.main(["reproduce", "example1"])
    said = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    assert "exponential(4)" in said
    assert "5.5875" in said


def test_the_version_is_told(capsys):
    cli.main(["--version"])
    assert capsys.readouterr().out.startswith("downside 0.")


def test_envs_lists_every_environment(capsys):
    cli.main(["envs"])
    assert "downside/WindyLunarLander-v0" in capsys.readouterr().out
    cli.main(["envs", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["parameters"]["sigma"] == 0.3


def test_solve_prints_the_optimum_and_writes_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["solve", "downside/AmericanPut-v0", "--risk", "cvar(0.6)", "--gamma", "1"])
    assert "0.167" in capsys.readouterr().out
    folder = tmp_path / "runs" / "AmericanPut-v0__plan__cvar-0.6__0"
    summary = json.loads((folder / "plan.json").read_text())
    assert summary["value"] == pytest.approx(0.1677, rel=5e-3)
    assert (folder / "plan.png").stat().st_size > 10_000
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "plan.png"]


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
    said = capsys.readouterr().out
    assert "yes" in said
    assert "NO" not in said


def test_a_typo_gets_a_suggestion_and_exit_code_1(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["reproduce", "exampel1"])
    assert caught.value.code == 1
    assert "Did you mean 'example1'?" in capsys.readouterr().err


def test_wrong_usage_has_exit_code_2(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["risk"])
    assert caught.value.code == 2
    assert "risks" in capsys.readouterr().err


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
