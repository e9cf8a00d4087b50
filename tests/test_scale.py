"""What `benchmarks/scale.py` makes of its measurements."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def scale():
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(part, **fields):
    """A row as it is read from the CSV file: all text."""
    usual = {
        "part": part,
        "engine": "threads",
        "preset": "default",
        "agents": 1,
        "quantiles": 50,
        "environments": 256,
        "updates": 800,
        "timesteps": 51_200,
        "seconds": 4.0,
        "compiling": 0.0,
        "seconds_per_agent": 4.0,
        "ms_per_update": 5.0,
        "megabytes": 16.0,
    }
    return {name: str(value) for name, value in {**usual, **fields}.items()}


def test_a_whole_run_has_the_updates_of_the_settings(scale):
    # 768,000 steps / (100 rounds of 256) = 30 outer steps of 400 updates; a tenth more after them,
    # 1,200, in parts of 250: five of them.
    assert scale.full_updates() == 12_000 + 1_250


def test_ten_thousand_agents_are_computed_from_the_largest_program(scale):
    rows = [row("agents", agents=1, ms_per_update=9.0), row("agents", agents=8, ms_per_update=6.0)]
    rows.append(row("agents", agents=16, ms_per_update=1.0, engine="vmap"))
    rows.append(row("memory", process_megabytes=640))
    summary = scale.summary(rows, at_a_time=2)
    # 6 ms x 13,250 updates = 79.5 s an agent on two cores: 159 core-seconds, 10,000 of them.
    assert summary["minutes_per_run"] == pytest.approx(1.325)
    assert summary["core_hours_for_10000"] == pytest.approx(10_000 * 159 / 3600)
    text = scale.block(rows, {"command": "here", "made_with": [{"cores": 2}]})
    assert "442 core-hours" in text
    assert "| this machine | 2 | 9.2 days |" in text
    assert "| a cluster of ten such | 320 | 1.4 hours | 200.0 GB |" in text


def test_the_ratio_is_given_as_measured_and_at_full_length(scale):
    # 35 agents: 140 s, 10 s to compile. Alone: 8 s each, and 12 s to start. 800 updates each.
    rows = [row("together", agents=35, seconds=140.0, compiling=10.0)]
    alone = {"seconds": 8.0, "compiling": 12.0, "cores_busy": 1.5}
    rows += [row("alone", **alone) for _ in range(7)]
    summary = scale.summary(rows, at_a_time=2)
    assert summary["ratio_short"] == pytest.approx(150 / (35 * 20))
    assert summary["ratio_training"] == pytest.approx(140 / (35 * 8))
    longer = 13_250 / 800
    whole = (140 * longer + 10) / (35 * (8 * longer + 12))
    assert summary["ratio_whole"] == pytest.approx(whole)
    assert f"takes {whole:.0%} of the time of 35 single runs" in scale.block(
        rows, {"command": "here", "made_with": [{"cores": 2}]}
    )


def test_the_page_has_what_was_measured(scale):
    if not scale.ROWS.exists():
        pytest.skip("nothing was measured: run python benchmarks/scale.py")
    rows = scale.read_rows(scale.ROWS)
    assert rows, f"{scale.ROWS} has no rows"
    about = json.loads(scale.ROWS.with_suffix(".json").read_text(encoding="utf-8"))
    page = scale.PAGE.read_text(encoding="utf-8")
    assert scale.fill(page, scale.block(rows, about)) == page


def test_the_measured_part_of_the_page_is_replaced(scale):
    page = scale.PAGE.read_text(encoding="utf-8")
    assert "\nmeasured\n" in scale.fill(page, "measured\n")


def test_what_was_measured_before_an_interruption_says_how_it_was_made(
    scale, tmp_path, monkeypatch
):
    def interrupted(tiny):
        raise KeyboardInterrupt

    path = tmp_path / "scale.csv"
    monkeypatch.setattr(scale, "measure_agents", lambda tiny: [row("agents")])
    monkeypatch.setattr(scale, "measure_quantiles", interrupted)
    monkeypatch.setattr("sys.argv", ["scale.py", "--out", str(path)])
    with pytest.raises(KeyboardInterrupt):
        scale.main()
    about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert about["figures"]["ms_per_update"] == 5.0
    assert scale.block(scale.read_rows(path), about)
