"""What the experiments make of their rows: the paper's figures, claims, the page, resuming."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

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
    lunar,
    mean_reversion,
    spectra,
)
from downside.experiments._book import Book, difference, mean_range
from downside.experiments._claims import CLAIMS, Claim, Pair, judge
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
from downside.sweeping import Sweep, read_study

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


# --- the lander -------------------------------------------------------------------------------


def _fake_sweep(monkeypatch, returns, failing=()):
    """A sweep whose runs are done in no time; those of an agent in `failing` fail."""
    swept = []

    def sweep(study, folder, progress_bar):
        plan = read_study(study)
        swept.append([f"{cell.agent} {cell.risk} {cell.seed}" for cell in plan.cells])
        failed = {one.name: "ValueError: no" for one in plan.cells if one.agent in failing}
        return Sweep(study=plan, folder=folder, groups=(), failed=failed, report=folder / "page")

    monkeypatch.setattr(lunar, "sweep", sweep)
    monkeypatch.setattr(lunar, "run_returns", lambda own: ds.Evaluation(returns))
    agent = SimpleNamespace(num_timesteps=10, history=[{"seconds": 1.0}])
    monkeypatch.setattr(lunar, "load", lambda own: agent)
    return swept


def test_the_lander_trains_what_is_missing_and_values_it_by_every_measure(monkeypatch, tmp_path):
    swept = _fake_sweep(monkeypatch, np.arange(10.0))
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
    swept = _fake_sweep(monkeypatch, np.arange(10.0))
    only = {"results": tmp_path, "preset": "default", "seeds": (0,), "only": ("QR-DQN",)}
    lunar.main(Options(**only))
    lunar.main(Options(**only, timesteps=1000))
    assert len(swept) == 2
    assert len(read_rows(tmp_path / "lunar-lander-default-1000.csv")) == 4
    rows = read_rows(tmp_path / "lunar-lander-default.csv")
    write_rows(
        tmp_path / "lunar-lander-default.csv", [{**row, "settings": "another"} for row in rows]
    )
    lunar.main(Options(**only))
    assert len(swept) == 3
    assert len(read_rows(tmp_path / "lunar-lander-default.csv")) == 4


def test_landers_that_fail_are_told_of_and_the_others_are_kept(monkeypatch, tmp_path, capsys):
    _fake_sweep(monkeypatch, np.arange(10.0), failing=("qrdqn",))
    assert not lunar.main(Options(results=tmp_path, preset="default", seeds=(0,), only=("QR-DQN",)))
    assert "ValueError: no" in capsys.readouterr().out
    assert not (tmp_path / "lunar-lander-default.csv").exists()
    assert not lunar.main(Options(results=tmp_path, preset="default", seeds=(0,)))
    assert len(read_rows(tmp_path / "lunar-lander-default.csv")) == 9 * 4


# --- claims -----------------------------------------------------------------------------------


def test_intervals_resample_seeds():
    found = mean_range([1.0, 2.0, 3.0])
    # Resampled means are from 1 to 3; stretched by sqrt(3 / 2) and by t / z = 4.302653 / 1.959964.
    assert (found.value, found.seeds) == (2.0, 3)
    assert (found.low, found.high) == pytest.approx((2 - 2.68865, 2 + 2.68865), rel=1e-5)
    assert mean_range([1.0]) == (1.0, 1.0, 1.0, 1)
    # Three values that agree by chance, each known to 0.3: 1.96 * 0.3 / sqrt(3).
    close = mean_range([1.0, 1.0, 1.0], [0.3, 0.3, 0.3])
    np.testing.assert_allclose(close[:3], [1.0, 1.0 - 0.3395, 1.0 + 0.3395], atol=1e-3)
    assert mean_range([1.0, 2.0, 3.0], [0.01, 0.01, 0.01]) == found
    # Nothing varies in either group, so nothing does between them.
    ours, theirs = dict.fromkeys(range(3), 2.0), dict.fromkeys(range(5), 0.5)
    assert difference(ours, theirs, paired=False) == (1.5, 1.5, 1.5, 3)


def test_seeds_that_share_their_noise_are_compared_one_by_one():
    # Noise of size 10 that both meet, and a gain of 1, 2 and 3 in the seeds that both have.
    ours = {0: 11.0, 1: -8.0, 2: 3.0, 7: 100.0}
    theirs = {0: 10.0, 1: -10.0, 2: 0.0, 8: 0.0}
    found = difference(ours, theirs, paired=True)
    assert (found.value, found.seeds) == (2.0, 3)
    assert found == mean_range([1.0, 2.0, 3.0])
    assert difference(ours, theirs, paired=False).low < -20
    assert difference({0: 3.0}, {0: 1.0, 1: 0.0}, paired=True) == (2.0, 2.0, 2.0, 1)


PAIR = (Pair("QR-SRM cvar(0.5)", "QR-iCVaR 0.5", "cvar(0.5)"),)
ALIKE = (
    Pair("QR-SRM cvar(0.5)", "QR-CVaR 0.5", "cvar(0.5)"),
)  # the paper's deviations: 0.03, 0.02


@pytest.mark.parametrize(
    ("rule", "first", "second", "word"),
    [
        ("better", [0.5, 0.6, 0.7], [0.1, 0.2, 0.3], "holds"),
        ("better", [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], "does not hold"),
        ("better", [0.1, 0.5, 0.9], [0.2, 0.4, 0.6], "undecided"),
        ("better", [0.5, 0.6], [0.1, 0.2], "undecided"),  # two seeds
        ("leads", [0.50, 0.51, 0.52], [0.30, 0.31, 0.32], "holds"),
        ("leads", [0.500, 0.501, 0.502], [0.501, 0.503, 0.501], "holds"),  # within 0.04
        ("leads", [0.500, 0.501, 0.502], [0.501, 0.502, 0.503], "does not hold"),  # surely below
        ("leads", [0.2, 0.5, 0.9], [0.1, 0.5, 0.9], "undecided"),
        ("leads", [0.5, 0.6], [0.1, 0.2], "undecided"),  # two seeds
        ("leads", [0.1, 0.2, 0.3], [0.5, 0.6, 0.7], "does not hold"),
        ("alike", [0.50, 0.51, 0.52], [0.50, 0.51, 0.52], "holds"),
        ("alike", [0.50, 0.51, 0.52], [0.60, 0.61, 0.62], "does not hold"),
        ("alike", [0.3, 0.5, 0.7], [0.4, 0.5, 0.6], "undecided"),
        ("better", [], [0.1, 0.2, 0.3], "not yet run"),
    ],
)
def test_a_claim_is_judged_by_its_interval(monkeypatch, tmp_path, rule, first, second, word):
    pair = (ALIKE if rule == "alike" else PAIR)[0]
    values = {pair.first: dict(enumerate(first)), pair.second: dict(enumerate(second))}
    book = Book(tmp_path)
    monkeypatch.setattr(book, "by_seed", lambda study, preset, agent, measure: values[agent])
    claim = Claim("so it says", "mean-reversion", rule, (pair,))
    assert judge(claim, book, "default").word == word


def test_one_seed_decides_nothing_whatever_the_others_say(monkeypatch, tmp_path):
    book = Book(tmp_path)
    seeds = {"cvar(0.5)": 5, "cvar(0.2)": 1}

    def values(study, preset, agent, measure):
        spread = 0.01 * np.arange(seeds[measure])
        own = spread + (seeds[measure] == 1) + 0.5 * (agent == "QR-SRM cvar(1.0)")
        return dict(enumerate(own))

    monkeypatch.setattr(book, "by_seed", values)
    pairs = tuple(Pair("QR-SRM cvar(1.0)", "QR-DQN", measure) for measure in seeds)
    verdict = judge(Claim("on both", "mean-reversion", "better", pairs), book, "default")
    assert verdict.word == "undecided"
    assert verdict.pair.measure == "cvar(0.2)"


def test_the_comparison_that_bears_a_claim_out_least_decides(monkeypatch, tmp_path):
    gain = {"cvar(0.5)": 0.3, "cvar(0.2)": -0.1, "cvar(1.0)": 0.2}
    book = Book(tmp_path)

    def values(study, preset, agent, measure):
        return dict.fromkeys(range(5), gain[measure] if agent == "QR-SRM cvar(1.0)" else 0.0)

    monkeypatch.setattr(book, "by_seed", values)
    pairs = tuple(Pair("QR-SRM cvar(1.0)", "QR-DQN", measure) for measure in gain)
    verdict = judge(Claim("on every measure", "mean-reversion", "better", pairs), book, "default")
    assert verdict.word == "does not hold"
    assert verdict.pair.measure == "cvar(0.2)"
    assert verdict.paper == pytest.approx(0.40)  # -1.36 + 1.76, by the same measure


@pytest.mark.parametrize(("gain", "word"), [(-0.1, "does not hold"), (0.1, "not yet run")])
def test_one_comparison_that_fails_is_enough_and_one_that_succeeds_is_not(
    monkeypatch, tmp_path, gain, word
):
    book = Book(tmp_path)
    values = {"QR-DQN": dict.fromkeys(range(3), 0.0), "QR-CVaR 0.5": {}}

    def by_seed(study, preset, agent, measure):
        return values.get(agent, dict.fromkeys(range(3), gain))

    monkeypatch.setattr(book, "by_seed", by_seed)
    pairs = tuple(Pair("QR-SRM cvar(0.5)", other, "cvar(0.5)") for other in values)
    verdict = judge(Claim("the best", "mean-reversion", "better", pairs), book, "default")
    assert verdict.word == word


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_a_claim_is_about_agents_of_its_study(claim, tmp_path):
    # Without results every claim can be looked up and is not yet run.
    assert judge(claim, Book(tmp_path), "default").word == "not yet run"
    if claim.study == "lunar":
        known = set(lunar.ROWS)
    else:
        options = Options(results=tmp_path, seeds=(0,))
        cells = load(claim.study).study(options, "default").cells
        known = {str(cell).removesuffix(", seed 0") for cell in cells}
    assert {name for pair in claim.pairs for name in pair[:2]} <= known


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
