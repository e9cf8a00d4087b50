"""`docs/reproduction.md`: what is on it, whatever has been run."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from downside.experiments import _run, page
from downside.experiments._book import Book
from downside.experiments._options import Options
from downside.experiments._paper import paper_table
from downside.experiments._rows import write_rows

from .rows import a_row

MEASURES = paper_table("mean_reversion").measures


def test_the_page_is_written_before_anything_has_been_run(tmp_path):
    page.main(Options(results=tmp_path))
    text = (tmp_path / "reproduction.md").read_text()
    for name in ("put", "mean-reversion", "spectra", "quantiles"):
        assert f"not yet run: `downside reproduce {name} --preset paper`" in text
    assert "Nothing has been run yet." in text


def test_the_page_has_our_figures_beside_the_paper_s(tmp_path):
    rows = [
        a_row("QR-SRM", "cvar(0.5)", seed, measure, 0.5 + 0.01 * seed)
        for seed in range(3)
        for measure in MEASURES
    ]
    write_rows(tmp_path / "mean-reversion-default.csv", rows)
    best = [{"plan": "cvar(0.5)", "measure": "cvar(0.5)", "value": 0.6, "recursion": 0.6}]
    write_rows(tmp_path / "mean-reversion-optimum.csv", best)
    page.main(Options(results=tmp_path))
    text = (tmp_path / "reproduction.md").read_text()
    ours = "0.510 [0.483, 0.537] (3 seeds) | 85%"
    assert f"| `cvar(0.5)` | 0.27 ± 0.03 | {ours} | not yet run |" in text
    assert "(mean-reversion-default.csv)" in text
    assert (tmp_path / "figures" / "mean-reversion.svg").exists()
    assert (tmp_path / "figures" / "mean-reversion.png").exists()


def test_an_experiment_that_differs_is_an_error_after_the_page(monkeypatch, tmp_path):
    module = SimpleNamespace(main=lambda options: False)
    monkeypatch.setattr(_run, "load", lambda name: page if name == "page" else module)
    with pytest.raises(RuntimeError, match="optimum: figures differ"):
        _run.run(["optimum"], Options(results=tmp_path))
    assert (tmp_path / "reproduction.md").exists()


def test_what_the_paper_does_not_say_stands_apart(tmp_path):
    page.main(Options(results=tmp_path))
    said, _, hoped = (tmp_path / "reproduction.md").read_text().partition("does not say in words")
    beats = "QR-SRM(1.0) beats QR-DQN on every measure"
    leads = "no agent is better by `cvar(0.2)` than QR-SRM for it"
    assert beats in said
    assert beats not in hoped
    assert leads in hoped
    assert leads not in said


def test_the_price_of_a_boundary_does_not_hang_on_one_time(tmp_path):
    row = a_row("QR-SRM", "cvar(0.6)", 0, "cvar(0.6)", 0.1)
    row["boundary"] = json.dumps([None, 0.6, 0.7, 0.8, 0.9])
    write_rows(tmp_path / "american-put-default.csv", [row])
    found = Book(tmp_path).values("put", "default", "QR-SRM cvar(0.6)", "boundary")
    np.testing.assert_allclose(found, [0.7])
