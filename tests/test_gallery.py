"""The gallery: every example runs with its small settings, and its page is made from it."""

import ast
import importlib.util
import runpy
import types
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]
GALLERY = types.SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "gallery.py")))
FAST = ("value_a_risk_measure",)
SHOWN = {
    "value_a_risk_measure": "drawn by hand",
    "plan_a_put": "in simulated episodes",
    "hedging": "Black-Scholes delta",
    "own_simulator": "band of 0.02",
    "dial": "0.5*mean + 0.5*cvar(0.2)",
    "explain_a_decision": "The explanation can be relied on",
    "registry_environment": "cvar(0.1)",
    "sb3_risk_reward": "PPO for",
    "study": "its value",
}
"""What each of them prints."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.long) for name in GALLERY.NAMES],
)
@pytest.mark.filterwarnings("ignore::downside.AdviceWarning")
def test_the_example_runs_with_small_settings(name, tmp_path, monkeypatch, capsys):
    if name == "sb3_risk_reward" and importlib.util.find_spec("stable_baselines3") is None:
        pytest.skip("stable-baselines3 is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(GALLERY.EXAMPLES))
    mpl.use("Agg")
    figure = runpy.run_path(str(GALLERY.EXAMPLES / f"{name}.py"))["main"]()
    assert figure.axes
    plt.close(figure)
    assert SHOWN[name] in capsys.readouterr().out


def test_without_stable_baselines3_the_example_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "stable_baselines3", None)
    example = runpy.run_path(str(GALLERY.EXAMPLES / "sb3_risk_reward.py"))
    assert example["main"]() is None
    assert "pip install stable-baselines3" in capsys.readouterr().out


def test_the_pages_are_made_from_the_examples():
    for path, text in GALLERY.pages().items():
        assert path.read_text() == text, "run `python docs/gallery.py`"


@pytest.mark.parametrize("name", GALLERY.NAMES)
def test_the_output_and_the_picture_are_there(name):
    output = (GALLERY.GALLERY / f"{name}.txt").read_text()
    assert output.startswith(f"$ python examples/{name}.py")
    assert SHOWN[name] in output
    picture = GALLERY.GALLERY / f"{name}.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert picture.stat().st_size < 150_000


@pytest.mark.parametrize("name", GALLERY.NAMES)
def test_an_example_says_how_to_run_it(name):
    text = ast.get_docstring(ast.parse((GALLERY.EXAMPLES / f"{name}.py").read_text())) or ""
    assert f"python examples/{name}.py" in text
