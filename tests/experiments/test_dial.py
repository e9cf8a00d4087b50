"""`downside reproduce dial`: rows of each method, kept and not made again."""

import pytest

from downside.experiments import dial
from downside.experiments._options import Options
from downside.experiments._rows import read_rows, select
from downside.train import dial as search


@pytest.mark.long
def test_rows_are_written_once_for_each_method(tmp_path, monkeypatch):
    problem = dial.Problem("downside/DualCounterexample-v0", ("mean", "cvar(0.5)"))
    monkeypatch.setattr(dial, "PROBLEMS", {"counterexample": problem})
    monkeypatch.setattr(search, "_EPISODES", 0.002)
    options = Options(results=tmp_path, quick=True, seeds=(3,))
    assert dial.main(options)
    rows = read_rows(tmp_path / "dial.csv")
    assert {(row["method"], row["seed"]) for row in rows} == {("optimum", ""), ("dial", "3")}
    # Hau et al. (2023): the optimum of cvar(0.5) is 25.
    (optimum,) = select(rows, method="optimum", measure="cvar(0.5)")
    assert float(optimum["value"]) == pytest.approx(25.0)
    monkeypatch.setattr(dial, "solve", lambda *_, **__: pytest.fail("it is there"))
    monkeypatch.setattr(dial, "PGSRM", lambda *_, **__: pytest.fail("it is there"))
    assert dial.main(options)
    assert read_rows(tmp_path / "dial.csv") == rows
