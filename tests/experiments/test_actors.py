"""The experiments of PG-SRM: what is trained, and the tables made from their rows."""

import pytest

from downside.experiments import actors, hedging
from downside.experiments._options import Options
from downside.experiments._page import Page
from downside.experiments._rows import write_rows

from .fakes import a_row, fake_sweep


def rows(objective, figures):
    return [
        a_row("PG-SRM", objective, seed, objective, value) for seed, value in enumerate(figures)
    ]


def test_all_agents_of_all_tables_are_runs_of_pg_srm():
    specs = {
        experiment.name: [run.spec for run in experiment.runs]
        for experiment in actors.experiments(Options(seeds=(0,)))
    }
    assert {spec.agent for runs in specs.values() for spec in runs} == {"pgsrm"}
    assert len(specs["actors"]) == len(specs["actors-continuous"]) == 9
    assert all(spec.parameters["continuous"] for spec in specs["actors-continuous"])
    assert [spec.settings["see_memory"] for spec in specs["actors-memoryless"]] == [False] * 2
    assert all(spec.settings["gamma"] == 1.0 for spec in specs["actors-put"])


def test_some_of_the_agents_can_be_trained_alone(monkeypatch, tmp_path):
    trained = fake_sweep(monkeypatch)
    options = Options(results=tmp_path, seeds=(0, 1), only=("actors PG-SRM cvar(0.5)",))
    assert actors.main(options)
    assert trained == [("pgsrm", "cvar(0.5)", 0), ("pgsrm", "cvar(0.5)", 1)]
    actors.main(options)  # nothing is trained again
    assert len(trained) == 2
    (line,) = actors.lines(options)
    assert line[0] == "cvar(0.5)"
    assert line[5] == "2"


def test_shares_of_the_optimum_and_what_memory_adds(tmp_path):
    options = Options(results=tmp_path)
    best = [
        {"plan": risk, "measure": risk, "value": value}
        for risk, value in (("cvar(0.5)", 0.5), ("exponential(12)", 0.01))
    ]
    write_rows(tmp_path / "mean-reversion-optimum.csv", best)
    write_rows(
        tmp_path / "actors.csv",
        [*rows("cvar(0.5)", [0.48, 0.5]), *rows("exponential(12)", [0.004, 0.006])],
    )
    write_rows(tmp_path / "actors-memoryless.csv", rows("cvar(0.5)", [0.38, 0.42]))
    first, second = actors.lines(options)
    assert first == ["cvar(0.5)", "0.4900", "98.0%", "-", "0.5000", "2", "0"]
    # Near 0 a share says nothing: the difference.
    assert second[1:3] == ["0.0050", "-0.0050"]
    (line,) = actors.memory_lines(options)
    assert line[:3] == ["cvar(0.5)", "0.4900", "0.4000"]
    assert line[3].startswith("+0.0900 [")
    text = Page(tmp_path, tmp_path / "page.md").text()
    assert "| `cvar(0.5)` | 0.4900 | 98.0% | - | 0.5000 | 2 | 0 |" in text
    assert "`downside reproduce actors`" in text.partition("actors-put: ")[2].splitlines()[0]


def test_prices_of_hedges_are_in_their_tables(tmp_path):
    options = Options(results=tmp_path)
    heston = [{**row, "price": -float(row["value"])} for row in rows("cvar(0.5)", [-1.93, -1.95])]
    write_rows(tmp_path / "hedging-heston.csv", heston)
    (line,) = hedging.heston_lines(options)
    assert line[:3] == ["cvar(0.5)", "1.9400", "1.9300, 1.9500"]
    converging = {"periods": 16, "price": 3.1, "standard_error": 0.01, "delta": 3.2}
    write_rows(tmp_path / "hedging-convergence.csv", [{**converging, "black_scholes": 2.75}])
    (line,) = hedging.convergence_lines(options)
    assert line == ["16", "3.1000 ± 0.0196", "3.2000", "2.7500", "0.3500", "1.400"]


@pytest.mark.long
def test_tiny_hedges_are_trained_and_written(tmp_path):
    options = Options(results=tmp_path, seeds=(0,), quick=True)
    assert hedging.main(options)
    assert len(hedging.lines(options)) == len(hedging.heston_lines(options)) == 2
    assert len(hedging.convergence_lines(options)) == 2
    band = hedging.lines(options)[0]
    assert "±" in band[3]
