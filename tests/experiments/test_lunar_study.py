"""The table of landers: what is trained, what is kept, what failures leave behind."""

import json
from types import SimpleNamespace

import numpy as np

import downside as ds
from downside.experiments import lunar
from downside.experiments._options import Options
from downside.experiments._rows import read_rows, write_rows
from downside.sweeping import Sweep, read_study


def _fake_sweep(monkeypatch, returns, failing=()):
    """A sweep whose runs are done in no time; those of an agent in `failing` fail."""
    swept, plans = [], []

    def sweep(study, folder, progress_bar):
        plan = read_study(study)
        swept.append([f"{cell.agent} {cell.risk} {cell.seed}" for cell in plan.cells])
        plans.append(plan)
        failed = {one.name: "ValueError: no" for one in plan.cells if one.agent in failing}
        return Sweep(study=plan, folder=folder, groups=(), failed=failed, report=folder / "page")

    monkeypatch.setattr(lunar, "sweep", sweep)
    monkeypatch.setattr(lunar, "run_returns", lambda own: ds.Evaluation(returns))
    agent = SimpleNamespace(num_timesteps=10, history=[{"seconds": 1.0}])
    monkeypatch.setattr(lunar, "load", lambda own: agent)
    return swept, plans


def test_the_lander_trains_what_is_missing_and_values_it_by_every_measure(monkeypatch, tmp_path):
    swept, _ = _fake_sweep(monkeypatch, np.arange(10.0))
    first = Options(results=tmp_path, preset="default", seeds=(0,), only=("cvar(0.2)",))
    assert lunar.main(first)
    assert swept == [["qrsrm 0.5*cvar(0.2) + 0.5*cvar(1) 0", "qrsrm cvar(0.2) 0"]]
    rows = read_rows(tmp_path / "lunar-lander-default.csv")
    found = {(row["row"], row["measure"]): float(row["value"]) for row in rows}
    assert len(found) == len(rows) == 2 * 4
    assert found["QR-SRM cvar(0.2)", "cvar(0.2)"] == 0.5  # the mean of 0 and 1
    assert found["QR-SRM cvar(0.2)", lunar.MIXTURE] == 2.5  # half of 0.5 and 4.5
    # Rows that lack the same seeds are one study; nothing is trained twice.
    assert lunar.main(
        Options(results=tmp_path, preset="default", seeds=(0, 1), only=("QR-SRM cvar",))
    )
    assert sorted(swept[1:]) == [
        ["qrsrm cvar(0.2) 1"],
        [f"qrsrm cvar({level}) {seed}" for level in ("0.5", "1") for seed in (0, 1)],
    ]
    assert len(read_rows(tmp_path / "lunar-lander-default.csv")) == 7 * 4
    assert json.loads((tmp_path / "lunar-lander-default.json").read_text())["seeds"] == [0, 1]


def test_landers_with_other_steps_or_settings_are_others(monkeypatch, tmp_path):
    swept, plans = _fake_sweep(monkeypatch, np.arange(10.0))
    only = {"results": tmp_path, "preset": "default", "seeds": (0,), "only": ("QR-DQN",)}
    lunar.main(Options(**only))
    lunar.main(Options(**only, timesteps=1000))
    assert len(swept) == 2
    # The table has few updates for each step; another number of steps, the preset as it is.
    usual, other = (plan.cells[0] for plan in plans)
    assert (usual.total_timesteps, other.total_timesteps) == (2_500_000, 1000)
    names = ("num_envs", "updates_per_step", "buffer_size", "least_discount")
    assert [usual.settings[name] for name in names] == [32, 1, 400_000, 0.0]
    assert [other.settings[name] for name in names] == [8, 2, 300_000, 0.05]
    assert [usual.settings[name] for name in ("past_steps", "averaging")] == [1, 0.4]
    assert [other.settings[name] for name in ("past_steps", "averaging")] == [0, 0.0]
    assert len(read_rows(tmp_path / "lunar-lander-default-1000.csv")) == 4
    rows = read_rows(tmp_path / "lunar-lander-default.csv")
    write_rows(
        tmp_path / "lunar-lander-default.csv", [{**row, "settings": "another"} for row in rows]
    )
    lunar.main(Options(**only))
    assert len(swept) == 3
    assert len(read_rows(tmp_path / "lunar-lander-default.csv")) == 4


def test_landers_with_other_settings_are_not_left_beside_those_of_today(monkeypatch, tmp_path):
    _fake_sweep(monkeypatch, np.arange(10.0))
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


def test_landers_that_fail_are_told_of_and_the_others_are_kept(monkeypatch, tmp_path, capsys):
    _fake_sweep(monkeypatch, np.arange(10.0), failing=("qrdqn",))
    assert not lunar.main(Options(results=tmp_path, preset="default", seeds=(0,), only=("QR-DQN",)))
    assert "ValueError: no" in capsys.readouterr().out
    assert not (tmp_path / "lunar-lander-default.csv").exists()
    assert not lunar.main(Options(results=tmp_path, preset="default", seeds=(0,)))
    assert len(read_rows(tmp_path / "lunar-lander-default.csv")) == 9 * 4
