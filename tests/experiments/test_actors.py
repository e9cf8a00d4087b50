"""The experiments of PG-SRM: what is trained, and the tables made from their rows."""

from types import SimpleNamespace

import pytest

from downside.experiments import _experiment, actors, actors_checks, actors_planned, hedging
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
    assert line[6] == "2, 0"


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
    assert first == ["cvar(0.5)", "0.4900 ± 0.0141", "98.0%", "-", "0.5000", "1", "2, 0"]
    # Near 0 a share says nothing: the difference.
    assert second[1:3] == ["0.0050 ± 0.0014", "-0.0050"]
    (line,) = actors.memory_lines(options)
    assert line[:3] == ["cvar(0.5)", "0.4900 ± 0.0141", "0.4000 ± 0.0283"]
    assert line[3].startswith("+0.0900 [")
    text = Page(tmp_path, tmp_path / "page.md").text()
    assert "| `cvar(0.5)` | 0.4900 ± 0.0141 | 98.0% | - | 0.5000 | 1 | 2, 0 |" in text
    assert "`downside reproduce actors`" in text.partition("actors-put: ")[2].splitlines()[0]


def test_prices_of_hedges_are_in_their_tables(tmp_path):
    options = Options(results=tmp_path)
    heston = [{**row, "price": -float(row["value"])} for row in rows("cvar(0.5)", [-1.93, -1.95])]
    write_rows(tmp_path / "hedging-heston.csv", heston)
    (line,) = hedging.heston_lines(options)
    assert line[:4] == ["cvar(0.5)", "1.9400", "1.94", "1.9300, 1.9500"]
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


def test_further_problems_stand_beside_the_planner(tmp_path):
    options = Options(results=tmp_path)
    write_rows(tmp_path / "actors-cliff.csv", rows("cvar(0.2)", [-13.0, -12.0]))
    write_rows(tmp_path / "actors-frontier.csv", rows("cvar(0.1)", [0.0]))
    solved = {"problem": "actors-cliff", "objective": "cvar(0.2)", "recursion": -12.25}
    write_rows(tmp_path / "actors-planned-optimum.csv", [solved])
    write_rows(tmp_path / "frontier.csv", [{"risk": "cvar(0.1)", "optimum": 0.0118}])
    first, second = actors_planned.lines(options)
    assert first == ["cvar(0.2)", "cliff walk", "-12.5000", "-12.2500", "-0.2500", "2"]
    assert second == ["cvar(0.1)", "mean reversion, frontier", "0.0000", "0.0118", "-0.0118", "1"]


def test_only_what_is_not_solved_is_solved(monkeypatch, tmp_path):
    solved = []

    def solve(env, risk, **_):
        solved.append((type(env).__name__, risk))
        estimate = SimpleNamespace(value=-9.0, standard_error=0.01)
        return SimpleNamespace(value=-9.04, estimate=estimate)

    monkeypatch.setattr(actors_planned, "solve", solve)
    actors_planned.solve_missing(Options(results=tmp_path, only=("actors-cliff optimum mean",)))
    assert solved == [("CliffWalk", "mean")]
    actors_planned.solve_missing(Options(results=tmp_path, only=("actors-cliff",)))
    assert solved[1:] == [("CliffWalk", "cvar(0.2)")]
    assert actors_planned.optima(Options(results=tmp_path), "actors-cliff")["mean"] == -9.04


def test_agents_are_checked_once(monkeypatch, tmp_path):
    checked = []

    def explain(agent, checks):
        checked.append(agent)
        return SimpleNamespace(
            calibration=SimpleNamespace(
                verdicts=dict.fromkeys(actors_checks.CHECKS, "holds"),
                verdict="holds",
                words="The explanation can be relied on.",
                whole=0.1,
                achieved=0.09,
                achieved_error=0.01,
                choice_gap=(0.002, 0.01),
                spread=1.0,
            )
        )

    fake_sweep(monkeypatch)
    monkeypatch.setattr(actors_checks, "explain", explain)
    monkeypatch.setattr(actors_checks, "_early", lambda risk: f"early {risk}")
    monkeypatch.setattr(_experiment.Run, "agent", SimpleNamespace(history=[{"updates": 5000.0}]))
    monkeypatch.setattr(actors_checks, "state", lambda folder, episodes: "finished")
    options = Options(results=tmp_path, seeds=(0,), only=("checks cvar(0.2)", "checks early"))
    for _ in range(2):
        actors_checks.check_missing(options, actors.trading(options))
    assert checked[1:] == ["early cvar(0.5)", "early cvar(0.2)"]
    first, *early = actors_checks.lines(options)
    assert first == ["cvar(0.2)", "5000", "holds", "0.1000", "0.0900", "0.0020", "0.0100", "0"]
    assert [row[:2] for row in early] == [["cvar(0.5)", "30"], ["cvar(0.2)", "30"]]
