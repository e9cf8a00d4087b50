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
