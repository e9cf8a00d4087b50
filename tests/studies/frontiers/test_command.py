"""`downside frontier`."""

import json

import pytest

from downside import cli

from ...train.tiny import TINY, TWO

FLAGS = [
    part
    for name, value in TINY.items()
    for part in (
        f"--{name.replace('_', '-')}",
        *(map(str, value) if isinstance(value, tuple) else [str(value)]),
    )
]
ASKED = [
    *("frontier", "downside/MeanReversion-v0", "--params", "periods=3", "num_trades=5"),
    *("inventory_limit=2.0", "--start", "cvar(0.5)", "--end", "cvar(0.2)", "--points", "2"),
    *(
        "--steps",
        str(TWO),
        "--episodes",
        "100",
        "--checks",
        "10",
        "--explained-episodes",
        "1",
        "--no-exact",
    ),
]


@pytest.mark.slow
def test_it_trains_prints_and_writes_and_goes_on_when_called_again(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main([*ASKED, "--seeds", "0", *FLAGS])
    output = " ".join(capsys.readouterr().out.split())
    folder = tmp_path / "runs" / "MeanReversion-v0__qrsrm__frontier__cvar-0.5__cvar-0.2"
    assert "MeanReversion-v0: QR-SRM, one seed" in output
    assert "In order:" in output
    assert "frontier.html" in output
    assert (folder / "frontier.html").exists()
    monkeypatch.setattr(
        "downside.studies.engines.in_process.train_agents",
        lambda *_, **__: pytest.fail("it is all there"),
    )
    cli.main([*ASKED, "--seeds", "0", "--json", *FLAGS])
    told = json.loads(capsys.readouterr().out)
    assert [row["risk"] for row in told["points"]] == ["cvar(0.5)", "cvar(0.2)"]
    assert told["episodes"] == 100


@pytest.mark.parametrize(
    "part", ["engines.in_process.train_agents", "frontiers.storage.write_folder"]
)
def test_interrupted_it_says_how_to_go_on(part, capsys, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    if part.endswith("write_folder"):
        monkeypatch.setattr("downside.frontier", lambda *_, **__: None)
    monkeypatch.setattr(f"downside.studies.{part}", interrupted)
    with pytest.raises(SystemExit) as left:
        cli.main([*ASKED, "--out", str(tmp_path), *FLAGS])
    assert left.value.code == 130
    assert "The same command resumes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--start", "cvra(0.2)"], "Did you mean 'cvar'?"),
        (["--start", "mean", "--end", "mean"], "must be two different measures"),
        (["--points", "1"], "`points` must be a whole number >= 2"),
        (["--agent", "qrsmr"], "Did you mean 'qrsrm'?"),
    ],
)
def test_mistakes_are_explained(capsys, arguments, message):
    with pytest.raises(SystemExit) as left:
        cli.main(["frontier", "downside/MeanReversion-v0", *arguments])
    assert left.value.code == 1
    assert message in capsys.readouterr().err
