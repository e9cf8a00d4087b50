"""The table of landers: what is trained, what is kept, what failures leave behind."""

import json

import numpy as np
import pytest

from downside.experiments import _run, lunar
from downside.experiments._options import Options
from downside.experiments._rows import read_rows, write_rows

from .fakes import fake_sweep


@pytest.mark.slow
def test_missing_landers_are_trained_and_evaluated_by_every_measure(monkeypatch, tmp_path):
    trained = fake_sweep(monkeypatch, returns=np.arange(10.0))
    first = Options(results=tmp_path, preset="default", seeds=(0,), only=("cvar(0.2)",))
    lunar.main(first)
    assert trained == [("qrsrm", "0.5*cvar(0.2) + 0.5*cvar(1)", 0), ("qrsrm", "cvar(0.2)", 0)]
    rows = read_rows(tmp_path / "lunar-lander-default.csv")
    values = {(row["row"], row["measure"]): float(row["value"]) for row in rows}
    assert len(values) == len(rows) == 2 * 4
    assert values["QR-SRM cvar(0.2)", "cvar(0.2)"] == 0.5  # the mean of 0 and 1
    assert values["QR-SRM cvar(0.2)", lunar.MIXTURE] == 2.5  # half of 0.5 and 4.5
    more = Options(results=tmp_path, preset="default", seeds=(0, 1), only=("QR-SRM cvar",))
    lunar.main(more)
    assert sorted(trained[2:]) == [
        ("qrsrm", "cvar(0.2)", 1),
        ("qrsrm", "cvar(0.5)", 0),
        ("qrsrm", "cvar(0.5)", 1),
        ("qrsrm", "cvar(1)", 0),
        ("qrsrm", "cvar(1)", 1),
    ]
    assert len(read_rows(tmp_path / "lunar-lander-default.csv")) == 7 * 4
    about = json.loads((tmp_path / "lunar-lander-default.json").read_text())
    assert about["seeds"] == [0, 1]
    assert about["command"].startswith("downside reproduce lunar --preset default --only")
    assert f'"QR-SRM {lunar.MIXTURE}" "QR-SRM cvar(0.2)"' in about["command"]


@pytest.mark.slow
def test_landers_with_other_steps_have_another_table_and_the_settings_of_the_preset(tmp_path):
    only = {"results": tmp_path, "preset": "default", "seeds": (0,), "only": ("QR-DQN",)}
    usual = lunar.experiment(Options(**only), "default")
    other = lunar.experiment(Options(**only, timesteps=1000), "default")
    assert other.path().name == "lunar-lander-default-1000.csv"
    first, second = usual.runs[0].spec, other.runs[0].spec
    assert (first.total_timesteps, second.total_timesteps) == (2_500_000, 1000)
    assert {name: first.settings[name] for name in lunar.SETTINGS["default"]} == dict(
        lunar.SETTINGS["default"]
    )
    assert (second.settings["num_envs"], second.settings["averaging"]) == (8, 0.0)


@pytest.mark.slow
def test_landers_with_other_settings_are_not_averaged_with_those_of_today(monkeypatch, tmp_path):
    fake_sweep(monkeypatch)
    only = {"results": tmp_path, "preset": "default", "only": ("QR-DQN",)}
    lunar.main(Options(**only, seeds=(0, 1)))
    path = tmp_path / "lunar-lander-default.csv"
    rows = read_rows(path)
    write_rows(path, [{**row, "settings": "old"} if row["seed"] == "1" else row for row in rows])
    lunar.main(Options(**only, seeds=(2,)))
    assert {row["seed"] for row in read_rows(path)} == {"0", "2"}
    about = path.with_suffix(".json")
    about.write_text(about.read_text().replace('"python": "', '"python": "old-'))
    write_rows(path, [{**row, "settings": "old"} for row in read_rows(path)])
    lunar.main(Options(**only, seeds=(3,)))
    assert "old-" not in about.read_text()


@pytest.mark.slow
def test_landers_that_fail_are_an_error_and_the_others_are_kept(monkeypatch, tmp_path, capsys):
    trained = fake_sweep(monkeypatch, errors={("qrdqn", 0): "ValueError: no"})
    options = Options(results=tmp_path, preset="default", seeds=(0,))
    with pytest.raises(RuntimeError, match=r"1 runs failed: QR-DQN, seed 0\. The same command"):
        _run.run(["lunar"], options)
    assert "QR-DQN, seed 0 failed: ValueError: no" in capsys.readouterr().out
    assert len(read_rows(tmp_path / "lunar-lander-default.csv")) == 9 * 4
    assert len(trained) == 10
    lunar.main(options)
    assert trained[10:] == [("qrdqn", "mean", 0)]
