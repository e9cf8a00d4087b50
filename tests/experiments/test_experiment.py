"""Experiments as studies: what is trained, what counts as done, what is written."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import downside as ds
from downside.experiments import (
    PAPER,
    _experiment,
    _rows,
    _run,
    ablation,
    load,
    lunar,
    mean_reversion,
    quantiles,
    spectra,
)
from downside.experiments._options import Options
from downside.experiments._page import Page
from downside.experiments._paper import paper_table
from downside.experiments._rows import read_rows, without_agent, write_about, write_rows

from ..studies.tiny import SPEED
from ..train.tiny import ENV, TINY, TWO
from .fakes import DIVERGED, a_row, fake_sweep

ROOT = Path(__file__).parents[2]
MEASURES = paper_table("mean_reversion").measures


def test_names_may_have_hyphens_or_underscores():
    assert load("mean-reversion") is load("mean_reversion") is mean_reversion
    assert "demo" not in PAPER


@pytest.mark.parametrize("wrong", [{"seeds": (0, -1)}, {"preset": "best"}])
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be"):
        Options(**wrong)


def test_results_in_another_folder_have_their_runs_beside_them(tmp_path):
    assert Options().storage("put") == Path("runs/put")
    assert Options(results=tmp_path).storage("put") == tmp_path / "runs" / "put"


# --- what counts as done ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["put", "mean-reversion", "spectra", "quantiles", "lunar"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_committed_results_are_not_trained_again(name, preset):
    options = Options(results=ROOT / "results", seeds=(0,))
    study = load(name).experiment(options, preset)
    written = {tuple(row[key] for key in study.keys) for row in study.rows()}
    missing = [tuple(str(run.columns[key]) for key in study.keys) for run in study.missing()]
    assert written.isdisjoint(missing)
    assert len(missing) < len(study.runs) or not written


def test_committed_ablations_are_not_trained_again():
    assert ablation.experiment(Options(results=ROOT / "results")).missing() == []


def test_only_complete_agents_with_known_settings_count(tmp_path):
    options = Options(results=tmp_path, seeds=(0,), only=("0.5",))
    keys = {
        run.entry.label: run.spec.group_key
        for run in mean_reversion.experiment(options, "default").runs
    }
    rows = [a_row("QR-SRM", "cvar(0.5)", 0, measure, 0.5) for measure in MEASURES]
    rows.append(a_row("QR-CVaR", "cvar(0.5)", 0, "cvar(0.5)", 0.5))  # one measure of seven
    rows += [a_row("QR-iCVaR", "cvar(0.5)", 0, measure, 0.5) for measure in MEASURES]
    for row in rows:
        label = _experiment.agent_label(row["algorithm"], row["objective"])
        row["settings"] = "0badcafe" if row["algorithm"] == "QR-iCVaR" else keys[label]
    path = tmp_path / "mean-reversion-default.csv"
    write_rows(path, rows)
    mixtures = [
        "QR-SRM 0.2*cvar(0.1)+0.3*cvar(0.6)+0.5*cvar(1.0), seed 0",
        "QR-SRM 0.5*cvar(0.2)+0.5*cvar(1.0), seed 0",
    ]
    left = [str(run) for run in mean_reversion.experiment(options, "default").missing()]
    assert left == ["QR-CVaR 0.5, seed 0", "QR-iCVaR 0.5, seed 0", *mixtures]
    path.with_suffix(".json").write_text(json.dumps({"kept_settings": ["0badcafe"]}))
    left = [str(run) for run in mean_reversion.experiment(options, "default").missing()]
    assert left == ["QR-CVaR 0.5, seed 0", *mixtures]


def test_an_agent_without_all_its_tables_is_missing(monkeypatch, tmp_path):
    fake_sweep(monkeypatch)
    options = Options(results=tmp_path, seeds=(0, 1), preset="default", only=("exponential",))
    study = spectra.experiment(options, "default")
    study.train()
    assert study.missing() == []
    kept = [row for row in study.rows("-returns") if row["seed"] == "0"]
    assert len(kept) == 200
    write_rows(study.path("-returns"), kept)
    assert [str(run) for run in study.missing()] == ["QR-SRM exponential(12), seed 1"]


def test_the_paper_s_agents_are_runs_of_a_study():
    study = mean_reversion.experiment(Options(seeds=(3,)), "paper")
    specs = {run.entry.label: run.spec for run in study.runs}
    assert list(specs) == list(paper_table("mean_reversion").rows)
    assert (specs["QR-DQN"].agent, specs["QR-DQN"].risk) == ("qrdqn", "mean")
    assert specs["QR-iCVaR 0.2"].risk == "cvar(0.2)"
    assert {(spec.seed, spec.preset, spec.episodes) for spec in specs.values()} == {
        (3, "paper", 100_000)
    }
    assert len({spec.group_key for spec in specs.values()}) == 13


def test_qr_srm_has_the_settings_of_qr_dqn_where_quantiles_are_counted():
    study = quantiles.experiment(Options(seeds=(0,)), "default")
    ours, theirs = (
        {
            name: value
            for name, value in run.spec.settings.items()
            if name not in ("evaluation_fraction",)
        }
        for run in study.runs
        if run.columns["quantiles"] == 50
    )
    assert ours == theirs


# --- what is written --------------------------------------------------------------------------


def test_what_finished_before_a_crash_is_kept(monkeypatch, tmp_path):
    options = Options(results=tmp_path, seeds=(0, 1), preset="paper", only=("QR-iCVaR",))
    first = fake_sweep(monkeypatch, broken=(1,))
    with pytest.raises(RuntimeError, match="switched off"):
        mean_reversion.main(options)
    assert first == [("qricvar", "cvar(0.5)", 0), ("qricvar", "cvar(0.2)", 0)]
    assert len(read_rows(tmp_path / "mean-reversion-paper.csv")) == 2 * 7
    second = fake_sweep(monkeypatch)
    assert mean_reversion.main(options)
    assert second == [("qricvar", "cvar(0.5)", 1), ("qricvar", "cvar(0.2)", 1)]
    about = json.loads((tmp_path / "mean-reversion-paper.json").read_text())
    assert about["seeds"] == [0, 1]
    assert about["command"] == "downside reproduce mean-reversion --preset paper"


def test_agents_that_diverge_are_reported_until_one_does_not(monkeypatch, tmp_path):
    path = tmp_path / "mean-reversion-default.json"
    options = Options(results=tmp_path, seeds=(0, 1), preset="default", only=("QR-DQN",))
    fake_sweep(monkeypatch, errors={("qrdqn", 1): DIVERGED})
    mean_reversion.main(options)
    about = json.loads(path.read_text())
    assert (list(about["diverged"]), about["seeds"]) == (["QR-DQN, seed 1"], [0])
    text = "Left out, since their losses diverged: QR-DQN, seed 1."
    assert text in Page(tmp_path, tmp_path / "page.md").text()
    # With the same settings it would diverge again; with others it is tried.
    again = fake_sweep(monkeypatch)
    mean_reversion.main(options)
    assert again == []
    path.write_text(json.dumps({**about, "diverged": {"QR-DQN, seed 1": "0badcafe"}}))
    mean_reversion.main(options)
    assert again == [("qrdqn", "mean", 1)]
    about = json.loads(path.read_text())
    assert about["seeds"] == [0, 1]
    assert "diverged" not in about


def test_the_rows_of_an_agent_that_diverges_go(monkeypatch, tmp_path):
    path = tmp_path / "mean-reversion-default.csv"
    write_rows(path, [a_row("QR-DQN", "cvar(1.0)", 1, measure, 9.0) for measure in MEASURES])
    fake_sweep(monkeypatch, errors={("qrdqn", 1): DIVERGED})
    mean_reversion.main(Options(results=tmp_path, preset="default", only=("QR-DQN",), seeds=(0, 1)))
    assert {row["seed"] for row in read_rows(path)} == {"0"}


def test_kept_settings_stay_when_rows_are_added(monkeypatch, tmp_path):
    fake_sweep(monkeypatch)
    options = Options(results=tmp_path, preset="default", only=("QR-DQN",), seeds=(0, 1))
    path = tmp_path / "mean-reversion-default.csv"
    rows = [a_row("QR-DQN", "cvar(1.0)", 0, measure, 9.0) for measure in MEASURES]
    write_rows(path, [{**row, "settings": "0dbea62c"} for row in rows])
    path.with_suffix(".json").write_text(json.dumps({"kept_settings": ["0dbea62c"]}))
    mean_reversion.main(options)
    assert [row["value"] for row in read_rows(path)[:7]] == ["9.0"] * 7
    assert {row["seed"] for row in read_rows(path)} == {"0", "1"}
    assert json.loads(path.with_suffix(".json").read_text())["kept_settings"] == ["0dbea62c"]


@pytest.mark.slow
def test_two_commands_write_into_one_file(monkeypatch, tmp_path):
    # Each reads all rows and writes them with its own; without a lock some would be lost.
    fake_sweep(monkeypatch)
    start = threading.Barrier(4)

    def slowly(path, rows):
        time.sleep(0.02)
        write_rows(path, rows)

    def train(study):
        start.wait()
        study.train()

    monkeypatch.setattr(_experiment, "write_rows", slowly)
    studies = [
        mean_reversion.experiment(
            Options(results=tmp_path, seeds=(seed,), only=("QR-DQN", "QR-iCVaR")), "default"
        )
        for seed in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(train, studies))
    assert len(studies[0].rows()) == 4 * 3 * 7
    about = json.loads((tmp_path / "mean-reversion-default.json").read_text())
    assert about["seeds"] == [0, 1, 2, 3]


def test_the_rows_of_an_agent_replace_those_it_had():
    old = [a_row("QR-SRM", "mean", seed, "mean", 1.0) for seed in (0, 1)]
    new = [a_row("QR-SRM", "mean", 1, "mean", 2.0)]
    rows = [*without_agent(old, new[0], "objective", "seed"), *new]
    assert [row["value"] for row in rows] == [1.0, 2.0]


def test_what_made_earlier_rows_stays_beside_later_ones(monkeypatch, tmp_path):
    for count in (2, 1, 2):
        monkeypatch.setattr(_rows, "cores", lambda count=count: count)
        write_about(tmp_path / "rows.json", "downside reproduce put")
    made = json.loads((tmp_path / "rows.json").read_text())["made_with"]
    assert [machine["cores"] for machine in made] == [1, 2]
    assert made[0]["versions"]["downside"] == ds.__version__


@pytest.mark.slow
def test_the_callback_records_how_far_the_start_distribution_moves():
    distributions = []
    agent = ds.QRSRM(ENV, risk="mean", **{**TINY, **quantiles.settings_of_qrdqn("paper")})
    agent.learn(
        TWO,
        callback=[
            lambda agent: distributions.append(quantiles.start_returns(agent)),
            quantiles.StartMovement(),
        ],
    )
    assert distributions[0].shape == (5,)
    assert "moved" not in agent.history[0]
    wanted = np.abs(distributions[1] - distributions[0]).mean()
    assert agent.history[1]["moved"] == pytest.approx(wanted)


# --- all of it, tiny --------------------------------------------------------------------------


@pytest.fixture
def speed(monkeypatch):
    for name, value in SPEED.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("speed")
def test_one_tiny_agent_of_the_comparison_is_trained_and_written(tmp_path):
    options = Options(
        results=tmp_path, seeds=(0,), preset="default", only=("QR-CVaR 0.5",), quick=True
    )
    _run.run(["mean-reversion"], options)
    rows = read_rows(tmp_path / "mean-reversion-default.csv")
    assert [row["measure"] for row in rows] == list(MEASURES)
    assert {row["algorithm"] for row in rows} == {"QR-CVaR"}
    study = mean_reversion.experiment(options, "default")
    assert study.missing() == []
    # The same evaluation as that of any run: fresh episodes of the seed.
    (run,) = study.runs
    again = ds.evaluate(ds.load(run.folder), episodes=2_000, seed=1_000_000)
    assert float(rows[0]["value"]) == pytest.approx(again.value(MEASURES[0]), abs=1e-6)


@pytest.mark.long
def test_a_tiny_frontier_is_trained_and_written(tmp_path):
    options = Options(results=tmp_path, quick=True)
    _run.run(["frontier"], options)
    rows = read_rows(tmp_path / "frontier.csv")
    assert [row["weight"] for row in rows] == ["0.0", "0.5", "1.0"]
    assert json.loads((tmp_path / "frontier.json").read_text())["command"].endswith("frontier")
    assert (tmp_path / "figures" / "frontier.svg").exists()


@pytest.mark.long
@pytest.mark.usefixtures("speed")
def test_the_whole_paper_runs_quickly(tmp_path):
    _run.run(PAPER, Options(results=tmp_path, quick=True))
    text = (tmp_path / "reproduction.md").read_text()
    made = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert {"mean-reversion", "lunar", "quantiles-paper", "spectra-default"} <= made
    assert {"example3-default", "example3-paper", "american-put-paper"} <= made
    assert "Nothing has been run yet." not in text
    rows = read_rows(tmp_path / "quantiles-default-curves.csv")
    assert [row["moved"] == "" for row in rows[:2]] == [True, False]
    assert lunar.experiments(Options(results=tmp_path, quick=True))[0].missing() == []
