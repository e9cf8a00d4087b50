"""The parts of the studies that can be checked without training."""

import json

import numpy as np
import pytest

import downside as ds
from downside._files import DamagedFileError
from downside.agents import SRM, SimulatorSettings
from downside.envs import AmericanPut
from downside.experiments import NAMES, ablation, load, put
from downside.experiments._rows import add_rows, read_rows, values, write_about, write_rows
from downside.train.config import resolve


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_can_be_loaded_and_has_a_main(name):
    assert callable(load(name).main)


def test_rows_come_back_as_they_were_written(tmp_path):
    rows = [{"risk": "cvar(0.5)", "value": 0.25}, {"risk": "0.5*mean, twice", "value": -1.5}]
    write_rows(tmp_path / "rows.csv", rows)
    assert read_rows(tmp_path / "rows.csv") == [
        {"risk": "cvar(0.5)", "value": "0.25"},
        {"risk": "0.5*mean, twice", "value": "-1.5"},
    ]
    assert read_rows(tmp_path / "nothing.csv") == []


def test_rows_that_were_cut_short_are_not_read_as_values(tmp_path):
    path = tmp_path / "rows.csv"
    write_rows(path, [{"seed": 0, "value": 0.25}, {"seed": 1, "value": 0.75}])
    whole = path.read_text()
    for end in range(len(whole)):
        path.write_text(whole[:end])
        if whole[:end].endswith("\n"):  # fewer rows, which are made again
            assert len(read_rows(path)) == whole[:end].count("\n") - 1
            continue
        with pytest.raises(DamagedFileError, match=r"rows\.csv .*restore it, or delete it"):
            read_rows(path)


@pytest.mark.parametrize("data", [b"a,b\n1\xff,2\n", b'a,b\n"1,2\n', b"a,b\n1,2,3\n"])
def test_rows_that_are_no_table_name_their_file(tmp_path, data):
    (tmp_path / "rows.csv").write_bytes(data)
    with pytest.raises(DamagedFileError, match=r"rows\.csv"):
        read_rows(tmp_path / "rows.csv")


def test_two_commands_that_add_to_one_table_keep_each_other_s_rows(tmp_path):
    path, command = tmp_path / "rows.csv", "downside reproduce dial"
    first, second = read_rows(path), read_rows(path)
    add_rows(path, first, [{"seed": 1, "value": 0.5}], ["seed"], command, {})
    add_rows(path, second, [{"seed": 0, "value": 0.25}], ["seed"], command, lambda rows: {"n": 1})
    assert [row["value"] for row in second] == ["0.5", 0.25]
    # The same row, made by both, is there once.
    new = [{"seed": 0, "value": 0.75}]
    add_rows(path, first, new, ["seed"], command, {}, lambda row: int(row["seed"]))
    assert values(read_rows(path)).tolist() == [0.75, 0.5]
    assert first == [*new, {"seed": "1", "value": "0.5"}]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.csv", "rows.json"]


def test_what_made_the_rows_stands_beside_them(tmp_path):
    write_about(tmp_path / "rows.json", "downside reproduce put", seeds=[0, 1])
    about = json.loads((tmp_path / "rows.json").read_text())
    assert about["command"] == "downside reproduce put"
    assert about["seeds"] == [0, 1]
    assert about["made_with"][0]["versions"]["downside"] == ds.__version__


def test_the_values_of_an_objective_are_those_of_its_seeds():
    rows = [
        {"objective": "mean", "measure": "mean", "seed": "0", "value": "1.5"},
        {"objective": "mean", "measure": "cvar(0.5)", "seed": "0", "value": "9"},
        {"objective": "mean", "measure": "mean", "seed": "1", "value": "2.5"},
    ]
    np.testing.assert_array_equal(values(rows, objective="mean", measure="mean"), [1.5, 2.5])


@pytest.mark.parametrize("name", ablation.CHOICES)
def test_every_choice_that_is_taken_back_is_a_setting(name):
    changes = ablation.CHOICES[name]
    settings = resolve(SRM, SimulatorSettings, "default", changes)
    assert {key: getattr(settings, key) for key in changes} == changes


def test_the_boundary_is_the_highest_price_at_which_the_agent_exercises(monkeypatch):
    agent = ds.QRSRM(AmericanPut(periods=3), risk="cvar(0.5)", gamma=0.9)

    def predict(observations):
        # Exercises below 0.6 at the start and 0.1 more at each time; never at the last one.
        assert (observations[:, 2] == 0.0).all()
        assert np.allclose(observations[:, 3], 0.9 ** (3 * observations[:, 1]))
        time = np.round(3 * observations[:, 1])
        return ((observations[:, 0] <= 0.6 + 0.1 * time) & (time < 2)).astype(int), None

    monkeypatch.setattr(agent, "predict", predict)
    np.testing.assert_allclose(put.boundary(agent), [0.6, 0.7, np.nan], atol=1e-9)


def test_the_middle_boundary_counts_seeds_that_never_exercise():
    edges = np.array([[0.7, 0.8, np.nan], [0.6, np.nan, np.nan], [0.5, np.nan, 0.9]])
    np.testing.assert_array_equal(put.median(edges), [0.6, np.nan, np.nan])
