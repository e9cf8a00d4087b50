"""`downside reproduce demo`: a dial beside the paper and the optimum, and a page with a slider."""

import shutil
import types
from pathlib import Path

import numpy as np
import pytest

from downside.evaluation import Evaluation
from downside.experiments import demo
from downside.experiments._options import Options
from downside.train.checkpoints.checkpoint import CheckpointError

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def options(tmp_path):
    """In an empty folder with the optima."""
    shutil.copy(RESULTS / "mean-reversion-optimum.csv", tmp_path)
    return Options(results=tmp_path, quick=True)


class FakeDial:
    """Returns 0.5 for sure, whatever it is turned to."""

    name = "PG-SRM"
    settings = types.SimpleNamespace(**demo._QUICK)
    history = ({"seconds": 12.0},)

    def learn(self, **_):
        """Nothing to learn."""

    def at(self, risk):
        return self

    def save(self, path):
        Path(path).write_text("a dial")

    def frontier(self, **_):
        def report(path, **_):
            path.write_text("a page")
            return path

        return types.SimpleNamespace(points=(), report=report)


def test_the_last_line_is_the_page_and_what_is_trained_is_not_trained_again(
    options, monkeypatch, capsys
):
    made = []
    monkeypatch.setattr(demo, "PGSRM", lambda *_, **__: made.append(1) or FakeDial())
    monkeypatch.setattr(demo, "load", lambda _: FakeDial())
    monkeypatch.setattr(demo, "evaluate", lambda *_, **__: Evaluation(np.full(10, 0.5)))
    monkeypatch.setattr(demo, "solve", lambda *_, **__: pytest.fail("the optima are there"))
    for _ in range(2):
        assert demo.main(options)
        printed = capsys.readouterr().out
        page = Path(printed.splitlines()[-1])
        assert page.read_text() == "a page"
        # The paper's QR-SRM has 0.270 by cvar(0.5), the optimum is 0.577; 0.5 is 87% of that.
        row = next(line for line in printed.splitlines() if line.strip().startswith("cvar(0.5)"))
        assert row.split() == ["cvar(0.5)", "0.270", "0.500", "±", "0.000", "0.577", "87%"]
    assert made == [1]


def test_a_dial_that_cannot_be_read_is_trained_again(options, monkeypatch):
    def damaged(_):
        raise CheckpointError("cut short")

    path = demo._path(options, 0)
    path.parent.mkdir(parents=True)
    path.write_text("half of a dial")
    monkeypatch.setattr(demo, "load", damaged)
    monkeypatch.setattr(demo, "PGSRM", lambda *_, **__: FakeDial())
    dial, seconds = demo._trained(options, 0)
    assert isinstance(dial, FakeDial)
    assert seconds == 12.0
    assert path.read_text() == "a dial"


@pytest.mark.long
def test_a_tiny_demo_runs_from_its_start_to_its_page(options):
    assert demo.main(options)
    page = options.storage("demo") / "caution.html"
    assert "slider" in page.read_text() or "range" in page.read_text()
