"""`docs/evidence/reproduction.md`: what is on it, whatever has been run."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from downside.experiments import _run, page, put
from downside.experiments._options import Options
from downside.experiments._page import Page
from downside.experiments._paper import paper_table
from downside.experiments._results import Results
from downside.experiments._rows import write_rows
from downside.experiments.lunar import MIXTURE, SB3, SB3_TIMESTEPS

from .fakes import a_row

ROOT = Path(__file__).parents[2]
MEASURES = paper_table("mean_reversion").measures


def test_the_page_is_written_before_anything_has_been_run(tmp_path):
    page.main(Options(results=tmp_path))
    text = (tmp_path / "reproduction.md").read_text()
    for name in ("put", "mean-reversion", "spectra", "quantiles"):
        assert f"not yet run: `downside reproduce {name} --preset paper`" in text
    assert "Nothing has been run yet." in text


@pytest.mark.slow
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


def test_the_committed_page_is_that_of_the_committed_results():
    path = ROOT / "docs" / "evidence" / "reproduction.md"
    assert Page(ROOT / "results", path).text() == path.read_text(), "downside reproduce page"


def test_the_page_has_the_figures_of_the_examples(tmp_path):
    text = Page(tmp_path, tmp_path / "page.md").text()
    assert "| ρ(G) | 5.5875 | 5.5875 |" in text
    assert "| ξ | 1.22 | 1.2200 |" in text


def test_an_experiment_that_differs_is_an_error_after_the_page(monkeypatch, tmp_path):
    module = SimpleNamespace(main=lambda options: False)
    monkeypatch.setattr(_run, "load", lambda name: page if name == "page" else module)
    with pytest.raises(RuntimeError, match="optimum: figures differ"):
        _run.run(["optimum"], Options(results=tmp_path))
    assert (tmp_path / "reproduction.md").exists()


def test_what_the_paper_does_not_say_stands_apart(tmp_path):
    page.main(Options(results=tmp_path))
    claimed, _, hoped = (
        (tmp_path / "reproduction.md").read_text().partition("does not say in words")
    )
    beats = "QR-SRM(1.0) beats QR-DQN by various measures"
    leads = "no agent is better by `cvar(0.2)` than QR-SRM for it"
    assert beats in claimed
    assert beats not in hoped
    assert leads in hoped
    assert leads not in claimed


def test_the_time_of_exercise_follows_from_the_boundary(tmp_path):
    row = a_row("QR-SRM", "cvar(0.6)", 3, "cvar(0.6)", 0.1)
    row["boundary"] = json.dumps([None, *[0.999] * 9])
    write_rows(tmp_path / "american-put-default.csv", [row])
    values = Results(tmp_path).by_seed("put", "default", "QR-SRM cvar(0.6)", put.TIME)
    # After one period of 0.1 the logarithm of the price has mean -0.0345 and deviation 0.0949:
    # it is below that of 0.999 with probability 0.638. Most of the others follow soon.
    assert list(values) == [3]
    assert 0.1 * 0.638 + 0.2 * 0.362 < values[3] < 0.1 * 0.638 + 0.6 * 0.362


def test_a_put_that_is_never_exercised_ends_at_maturity():
    assert put.exercise_time(np.full(10, np.nan)) == 1.0
    # At the start the price is the strike, where exercising pays nothing: it does not count.
    assert put.exercise_time(np.array([1.0] + [np.nan] * 9)) == 1.0
    # In a single period: the probability from above, but for the noise of 20,000 episodes.
    only = put.exercise_time(np.array([np.nan, 0.999] + [np.nan] * 8))
    np.testing.assert_allclose(only, 0.638 * 0.1 + 0.362, atol=4 * 0.9 * 0.0034)


# --- parts ------------------------------------------------------------------------------------


def test_figures_near_the_paper_s_are_counted(tmp_path):
    near = a_row("QR-SRM", "cvar(0.5)", 0, "cvar(0.5)", 0.33)  # 0.27 ± 0.03
    far = a_row("QR-SRM", "cvar(0.5)", 0, "cvar(1.0)", 0.98)  # 0.78 ± 0.02
    write_rows(tmp_path / "mean-reversion-paper.csv", [near, far])
    text = Page(tmp_path, tmp_path / "page.md").text()
    assert "In the preset `paper` (1 seeds), 1 of 2 figures lie within two" in text
    assert "The farthest: QR-SRM cvar(0.5) by `cvar(1.0)` +0.20." in text


def test_prices_of_boundaries_are_the_middle_ones_beside_the_optimum(tmp_path):
    rows = []
    for seed, edge in enumerate(([0.7, None], [0.8, None], [0.9, 0.5])):
        row = a_row("QR-SRM", "cvar(0.6)", seed, "cvar(0.6)", 0.1)
        rows.append({**row, "boundary": json.dumps(edge)})
    write_rows(tmp_path / "american-put-default.csv", rows)
    best = {"plan": "cvar(0.6)", "measure": "cvar(0.6)", "value": 0.2, "boundary": "[0.81, 0.82]"}
    write_rows(tmp_path / "american-put-optimum.csv", [best])
    text = Page(tmp_path, tmp_path / "page.md").text()
    assert "| QR-SRM `cvar(0.6)`, preset default | 0.800 | never |" in text
    assert "| the optimum, `cvar(0.6)` | 0.810 | 0.820 |" in text


def test_the_lander_is_compared_at_as_many_steps(tmp_path):
    rows = [
        {"row": "QR-DQN", "seed": 0, "measure": measure, "value": 40.0, "seconds": 1.0}
        for measure in SB3
    ]
    write_rows(tmp_path / f"lunar-lander-default-{SB3_TIMESTEPS}.csv", rows)
    text = Page(tmp_path, tmp_path / "page.md").text()
    assert "| QR-DQN | 40.0 (one seed) |" in text
    assert "| stable-baselines3-contrib, an earlier run | 43.6 | 20.1 | 4.2 | 23.9 |" in text
    assert "make peers-lander" not in text
    peers = [{**row, "value": 41.0, "timesteps": SB3_TIMESTEPS} for row in rows]
    peers += [{**row, "value": 9.0, "timesteps": 4_000} for row in rows]  # of another length
    write_rows(tmp_path / "lunar-lander-sb3.csv", peers)
    text = Page(tmp_path, tmp_path / "page.md").text()
    assert "| stable-baselines3-contrib (`make peers-lander`) | 41.0 (one seed) |" in text


def test_landers_for_the_tail_are_compared_with_qr_dqn_of_their_seed(tmp_path):
    worth = {"QR-DQN": 10.0, "QR-SRM cvar(0.5)": 11.0, "QR-SRM cvar(0.2)": 12.0}
    worth[f"QR-SRM {MIXTURE}"] = 16.0
    rows = [
        {"row": row, "seed": seed, "measure": measure, "value": value + 5 * seed}
        | {"standard_error": 0.0, "seconds": 1.0}
        for row, value in worth.items()
        for seed in (0, 1)
        for measure in SB3
    ]
    alone = {**rows[0], "seed": 2, "value": 99.0}  # that no other row has
    write_rows(tmp_path / "lunar-lander-default.csv", [*rows, alone])
    text = Page(tmp_path, tmp_path / "page.md").text()
    assert "| less QR-DQN, 2 seeds |" in text
    assert "| the mean of all three | +3.0 [+3.0, +3.0] |" in text  # of 1, 2 and 6
    assert "| QR-SRM cvar(0.2) | +2.0 [+2.0, +2.0] |" in text


def test_cvar_at_any_level_comes_from_the_returns_that_are_there(tmp_path):
    key = {"algorithm": "QR-SRM", "quantiles": 10, "seed": 0}
    write_rows(
        tmp_path / "quantiles-default-returns.csv",
        [{**key, "rank": (i + 0.5) / 4, "value": i} for i in range(4)],
    )
    book = Results(tmp_path)
    values = book.values("quantiles", "default", "QR-SRM, 10 quantiles", "cvar(0.5)")
    np.testing.assert_allclose(values, [0.5])  # the mean of 0 and 1
