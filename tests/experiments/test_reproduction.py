"""What the experiments make of their rows: the paper's figures, claims, the page, resuming."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import downside as ds
from downside.envs import MeanReversion
from downside.experiments import (
    PAPER,
    _cost,
    _rows,
    _run,
    _study,
    _training,
    load,
    mean_reversion,
    spectra,
)
from downside.experiments._figures import COLOURS, colour, density
from downside.experiments._options import Options
from downside.experiments._page import Page
from downside.experiments._paper import paper_table
from downside.experiments._rows import read_rows, without_agent, write_about, write_rows
from downside.experiments._training import (
    Cell,
    Diverged,
    Trained,
    agent_label,
    agent_of,
    fingerprint,
    make_agent,
    train_cells,
)

from ..train.tiny import ENV, TINY
from .rows import a_row

ROOT = Path(__file__).parents[2]
MEASURES = paper_table("mean_reversion").measures


# --- the paper's figures ----------------------------------------------------------------------


def test_the_paper_s_table_is_as_printed():
    table = paper_table("mean_reversion")
    assert len(table.rows) == 13
    assert len(table.measures) == 7
    assert str(table.figures["QR-iCVaR 0.5", "cvar(1.0)"]) == "0.82 ± 0.17"
    assert [table.best(measure) for measure in MEASURES] == [
        1.48,
        0.28,
        -0.17,
        0.05,
        0.48,
        0.4,
        0.24,
    ]


@pytest.mark.parametrize("name", ["mean_reversion", "windy_lunar_lander"])
def test_an_agent_is_called_as_in_the_paper(name):
    for row in paper_table(name).rows:
        assert agent_label(*agent_of(row)) == row
        ds.parse(agent_of(row)[1])


def test_every_agent_has_a_colour_of_its_own():
    assert len(set(COLOURS.values())) == len(COLOURS)
    for row in paper_table("mean_reversion").rows:
        assert row == "QR-DQN" or agent_of(row)[1] in COLOURS
        assert colour(row).startswith("#")


def test_a_density_integrates_to_one():
    grid = np.linspace(-8, 8, 2001)
    made = density(np.random.default_rng(0).normal(size=500), grid)
    assert np.trapezoid(made, grid) == pytest.approx(1.0, abs=1e-3)
    assert made.max() == pytest.approx(0.4, abs=0.05)


# --- resuming ---------------------------------------------------------------------------------


def test_names_may_have_hyphens_or_underscores():
    assert load("mean-reversion") is load("mean_reversion") is mean_reversion
    assert "demo" not in PAPER


@pytest.mark.parametrize("wrong", [{"seeds": (0, -1)}, {"preset": "best"}])
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be"):
        Options(**wrong)


def settings_of(cell):
    return fingerprint(make_agent(mean_reversion.ENVIRONMENT, cell, quick=False), quick=False)


@pytest.mark.parametrize("name", ["put", "mean-reversion", "spectra", "quantiles"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_committed_results_were_made_with_the_settings_of_today(name, preset):
    # Who changes a default, or adds a setting that is not off there, has to train them again.
    study = load(name).study(Options(results=ROOT / "results", seeds=(0,)), preset)
    missing = {str(cell) for cell in study.missing()}
    keys = {tuple(row[key] for key in study.keys) for row in study.rows()}
    there = [
        cell for cell in study.cells if tuple(str(cell.row()[key]) for key in study.keys) in keys
    ]
    assert [str(cell) for cell in there if str(cell) in missing] == []


def test_an_agent_in_another_environment_is_another_one():
    cell = Cell("QR-SRM", "cvar(0.5)", 0)
    here = fingerprint(ds.QRSRM(MeanReversion(), risk="cvar(0.5)"), quick=False)
    there = fingerprint(ds.QRSRM(MeanReversion(sigma=2.0), risk="cvar(0.5)"), quick=False)
    assert here == settings_of(cell)
    assert here != there


def test_only_complete_agents_are_not_trained_again(tmp_path):
    made = settings_of(Cell("QR-SRM", "cvar(0.5)", 0, mean_reversion.CHANGES))
    rows = [a_row("QR-SRM", "cvar(0.5)", 0, measure, 0.5) for measure in MEASURES]
    rows.append(a_row("QR-CVaR", "cvar(0.5)", 0, "cvar(0.5)", 0.5))
    # All of it is there, but it was trained with other settings than those of today.
    rows += [a_row("QR-iCVaR", "cvar(0.5)", 0, measure, 0.5) for measure in MEASURES]
    for row in rows:
        row["settings"] = "0badcafe" if row["algorithm"] == "QR-iCVaR" else made
    write_rows(tmp_path / "mean-reversion-default.csv", rows)
    options = Options(results=tmp_path, seeds=(0,), only=("0.5",))
    left = [str(cell) for cell in mean_reversion.study(options, "default").missing()]
    assert left == [
        "QR-CVaR 0.5, seed 0",
        "QR-iCVaR 0.5, seed 0",
        "QR-SRM 0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0), seed 0",
        "QR-SRM 0.5*cvar(0.2)+0.5*cvar(1.0), seed 0",
    ]
    both = mean_reversion.studies(Options(results=tmp_path, seeds=(0,)))
    assert [len(one.missing()) for one in both] == [12, 13]


def test_the_rows_of_an_agent_replace_those_it_had():
    old = [a_row("QR-SRM", "mean", seed, "mean", 1.0) for seed in (0, 1)]
    new = [a_row("QR-SRM", "mean", 1, "mean", 2.0)]
    assert [row["value"] for row in [*without_agent(old, new[0], "objective", "seed"), *new]] == [
        1.0,
        2.0,
    ]


def _fake_trainer(monkeypatch, broken=(), diverging=()):
    """Agents that are trained in no time; those with a seed in `broken` raise."""
    trained = []

    class Trainer:
        def __init__(self, *arguments):
            self.stop = threading.Event()

        def __call__(self, cell):
            if cell.seed in broken:
                raise RuntimeError("the machine was switched off")
            trained.append(str(cell))
            if cell.seed in diverging:
                return Diverged(cell)
            found = ds.Evaluation(np.linspace(-1.0, 1.0, 50) + cell.seed)
            agent = ds.QRSRM(ENV, risk="mean", **TINY)
            agent.history.append({"predicted": 0.0, "value": 0.0, "best": 0.0})
            return Trained(cell, agent, found, settings_of(cell), 1.0, [])

    monkeypatch.setattr(_training, "_Trainer", Trainer)
    return trained


def test_what_was_finished_before_a_kill_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(_training, "cores", lambda: 1)
    options = Options(results=tmp_path, seeds=(0, 1), preset="paper", only=("QR-iCVaR",))
    first = _fake_trainer(monkeypatch, broken=(1,))
    with pytest.raises(RuntimeError, match="switched off"):
        mean_reversion.main(options)
    assert first == ["QR-iCVaR 0.5, seed 0", "QR-iCVaR 0.2, seed 0"]
    assert len(read_rows(tmp_path / "mean-reversion-paper.csv")) == 2 * 7
    second = _fake_trainer(monkeypatch)
    assert mean_reversion.main(options)
    assert second == ["QR-iCVaR 0.5, seed 1", "QR-iCVaR 0.2, seed 1"]
    about = json.loads((tmp_path / "mean-reversion-paper.json").read_text())
    assert about["seeds"] == [0, 1]
    assert about["command"] == "downside reproduce mean-reversion --preset paper"


def test_agents_that_diverge_are_told_of_until_one_does_not(monkeypatch, tmp_path):
    path = tmp_path / "mean-reversion-default.json"
    options = Options(results=tmp_path, seeds=(0, 1), preset="default", only=("QR-DQN",))
    _fake_trainer(monkeypatch, diverging=(1,))
    mean_reversion.main(options)
    about = json.loads(path.read_text())
    assert (list(about["diverged"]), about["seeds"]) == (["QR-DQN, seed 1"], [0])
    said = "Left out, since their losses diverged: QR-DQN, seed 1."
    assert said in Page(tmp_path, tmp_path / "page.md").text()
    # What an agent of other settings was worth before is no longer shown.
    before = a_row("QR-DQN", "cvar(1.0)", 1, "cvar(1.0)", 9.0)
    write_rows(path.with_suffix(".csv"), [*read_rows(path.with_suffix(".csv")), before])
    path.write_text(json.dumps({**about, "diverged": {}}))
    _fake_trainer(monkeypatch, diverging=(1,))
    mean_reversion.main(options)
    assert {row["seed"] for row in read_rows(path.with_suffix(".csv"))} == {"0"}
    # With the same settings it would diverge again; with others it is tried.
    again = _fake_trainer(monkeypatch)
    mean_reversion.main(options)
    assert again == []
    path.write_text(json.dumps({**about, "diverged": {"QR-DQN, seed 1": "0badcafe"}}))
    second = _fake_trainer(monkeypatch)
    mean_reversion.main(options)
    assert second == ["QR-DQN, seed 1"]
    about = json.loads(path.read_text())
    assert about["seeds"] == [0, 1]
    assert "diverged" not in about


def test_an_agent_without_its_returns_is_not_there(monkeypatch, tmp_path):
    options = Options(results=tmp_path, seeds=(0, 1), preset="default", only=("exponential",))
    _fake_trainer(monkeypatch)
    study = spectra.study(options, "default")
    study.train("spectra")
    assert study.missing() == []
    kept = [row for row in study.rows("-returns") if row["seed"] == "0"]
    assert len(kept) == 200
    write_rows(study.path("-returns"), kept)
    assert [str(cell) for cell in study.missing()] == ["QR-SRM exponential(12), seed 1"]


def test_what_made_earlier_rows_stays_beside_later_ones(monkeypatch, tmp_path):
    for count in (2, 1, 2):
        monkeypatch.setattr(_rows, "cores", lambda count=count: count)
        write_about(tmp_path / "rows.json", "downside reproduce put")
    made = json.loads((tmp_path / "rows.json").read_text())["made_with"]
    assert [one["cores"] for one in made] == [1, 2]
    assert made[0]["versions"]["downside"] == ds.__version__


def test_two_commands_write_into_one_file(monkeypatch, tmp_path):
    # Each reads all rows and writes them with its own; without a lock some would be lost.
    monkeypatch.setattr(_training, "cores", lambda: 1)
    _fake_trainer(monkeypatch)

    def slowly(path, rows):
        time.sleep(0.02)
        write_rows(path, rows)

    monkeypatch.setattr(_study, "write_rows", slowly)
    studies = [
        mean_reversion.study(
            Options(results=tmp_path, seeds=(seed,), only=("QR-DQN", "QR-iCVaR")), "default"
        )
        for seed in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: one.train("both"), studies))
    assert len(studies[0].rows()) == 4 * 3 * 7
    about = json.loads((tmp_path / "mean-reversion-default.json").read_text())
    assert about["seeds"] == [0, 1, 2, 3]


def test_agents_come_out_whatever_the_order_they_end_in(monkeypatch):
    _fake_trainer(monkeypatch)
    cells = [Cell("QR-SRM", "mean", seed) for seed in range(5)]
    found = [one.cell.seed for one in train_cells("no environment", cells, "test", Options())]
    assert sorted(found) == [0, 1, 2, 3, 4]


# --- cost -------------------------------------------------------------------------------------


def test_the_double_sum_is_the_same_function():
    start = jnp.sort(jax.random.normal(jax.random.key(0), (20,)))
    h = ds.Exponential(4.0).utility(start)
    values = jax.random.normal(jax.random.key(1), (3, 4, 20))
    np.testing.assert_allclose(
        _cost.DoubleSum(h).expectation(values), h.expectation(values), atol=1e-5
    )


# --- all of it, tiny --------------------------------------------------------------------------


def test_one_tiny_agent_of_the_comparison_is_trained_and_written(tmp_path):
    options = Options(
        results=tmp_path, seeds=(0,), preset="default", only=("QR-CVaR 0.5",), quick=True
    )
    _run.run(["mean-reversion"], options)
    rows = read_rows(tmp_path / "mean-reversion-default.csv")
    assert [row["measure"] for row in rows] == list(MEASURES)
    assert {row["algorithm"] for row in rows} == {"QR-CVaR"}
    assert mean_reversion.study(options, "default").missing() == []


@pytest.mark.long
def test_a_tiny_frontier_is_trained_and_written(tmp_path):
    options = Options(results=tmp_path, quick=True)
    _run.run(["frontier"], options)
    rows = read_rows(tmp_path / "frontier.csv")
    assert [row["weight"] for row in rows] == ["0.0", "0.5", "1.0"]
    assert json.loads((tmp_path / "frontier.json").read_text())["command"].endswith("frontier")
    assert (tmp_path / "figures" / "frontier.svg").exists()


@pytest.mark.long
def test_the_whole_paper_runs_quickly(tmp_path):
    _run.run(PAPER, Options(results=tmp_path, quick=True))
    text = (tmp_path / "reproduction.md").read_text()
    made = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert {"mean-reversion", "lunar", "quantiles-paper", "spectra-default"} <= made
    assert {"example3-default", "example3-paper", "american-put-paper"} <= made
    assert "Nothing has been run yet." not in text
