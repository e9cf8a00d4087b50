"""The frontier of a dial: one training for each seed; its page has a slider that moves it all."""

import json

import pytest

import downside as ds
from downside import cli
from downside.envs import MeanReversion
from downside.studies.engines import in_process
from downside.train import dial as search

from ...reporting.browser import browser, needs_browser, requests, resize

pytestmark = pytest.mark.slow  # what all tests look at takes long to make

ENV = MeanReversion(periods=3, continuous=True)
TINY = {
    "hidden_sizes": (4,),
    "batch_size": 16,
    "outer_interval": 2,
    "outer_episodes": 108,
    "updates": 4,
}
ASKED = {"end": "cvar(0.2)", "points": 3, "episodes": 200}


@pytest.fixture(scope="module", autouse=True)
def few_episodes():
    """The search for a target in few episodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_EPISODES", 0.002)
        yield


@pytest.fixture(scope="module")
def dial(few_episodes):
    settings = {**TINY, "updates": 60, "outer_interval": 20, "batch_size": 256}
    return ds.PGSRM(ENV, risk="dial", seed=1, **settings).learn()


@pytest.fixture(scope="module")
def curve(dial):
    return dial.frontier(**ASKED, exact=False)


def test_every_point_is_the_same_training_at_another_measure(curve, dial):
    assert isinstance(curve, ds.Frontier)
    assert [str(point.risk) for point in curve.points] == [
        "mean",
        "0.5*mean + 0.5*cvar(0.2)",
        "cvar(0.2)",
    ]
    for point in curve.points:
        (agent,) = point.agents
        assert agent.networks.networks.head.bias is dial.networks.networks.head.bias
        assert agent.risk == point.risk
        returns = agent.simulate_returns(200, seed=1_000_001)
        assert point.by_own.value == pytest.approx(float(point.risk(returns)), rel=1e-6)
        assert point.by_own.low < point.by_own.value < point.by_own.high
    assert set(curve.summary()["points"][0]) >= {"knee", "dominated", "own_low"}


@pytest.mark.long
def test_several_dials_make_one_curve_and_a_folder_is_taken_up_again(tmp_path, monkeypatch):
    given = {**ASKED, "dial": True, "seeds": [0, 1], "exact": False, "folder": tmp_path, **TINY}
    first = ds.frontier(ENV, **given)
    assert first.seeds == (0, 1)
    monkeypatch.setattr(in_process, "train_agents", lambda *_, **__: pytest.fail("it is there"))
    monkeypatch.setattr(search, "find_target", lambda *_, **__: pytest.fail("it is there"))
    again = ds.frontier(ENV, **given)
    assert again.rows() == first.rows()


def test_what_no_dial_can_do_is_refused(dial):
    with pytest.raises(ValueError, match=r"no mixture of the mean and one CVaR"):
        ds.frontier(ENV, dial=True, end="exponential(4)", **TINY)
    with pytest.raises(ValueError, match=r"`env` must be an environment if something is to be"):
        ds.frontier(dial, total_timesteps=100)
    with pytest.raises(ValueError, match=r"dials with different seeds, got seeds \[1, 1\]"):
        ds.frontier([dial, dial.at("mean")], exact=False)
    with pytest.raises(ValueError, match=r"dials \(agents with risk='dial'\)"):
        ds.frontier(ds.PGSRM(ENV, risk="mean", **TINY))


@pytest.mark.long
def test_the_command_trains_one_dial(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = "--hidden-sizes 4 --batch-size 16 --outer-interval 2 --outer-episodes 108 --updates 4"
    cli.main(
        [
            *("frontier", "downside/MeanReversion-v0", "--params", "periods=3", "num_trades=5"),
            *("--dial", "--points", "2", "--seeds", "0", "--no-exact"),
            *("--episodes", "100", "--explained-episodes", "1", "--checks", "10", "--json"),
            *flags.split(),
        ]
    )
    shown = json.loads(capsys.readouterr().out)
    assert [row["risk"] for row in shown["points"]] == ["mean", "cvar(0.1)"]
    (run,) = tmp_path.glob("runs/*__pgsrm-dial__frontier__*/*__pgsrm__dial*")
    assert "cvar(0.1)" in ds.load(run).targets


@needs_browser
def test_the_slider_moves_everything(curve, tmp_path):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    path = curve.report(tmp_path / "dial.html", explained_episodes=1, checks=10)
    assert path.stat().st_size < 3_000_000
    figures = ("curve", "chosen", "chosen-returns", "deeds", "worst", "worst-rows", "returns")
    with browser() as driver:

        def drawn():
            script = "return arguments[0].map((id) => document.getElementById(id).innerHTML)"
            return driver.execute_script(script, list(figures))

        def text(name):
            return driver.execute_script(f"return document.getElementById('{name}').textContent")

        for width, mobile, dark in ((1280, False, False), (390, True, True)):
            resize(driver, width, 900, mobile=mobile, dark=dark)
            driver.get(path.as_uri())
            assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
            assert driver.get_log("browser") == []
            assert {url for url in requests(driver) if url.startswith("http")} == set()
            wide = "return document.documentElement.scrollWidth - window.innerWidth"
            assert driver.execute_script(wide) <= 0
            slider = driver.find_element(By.ID, "dial")
            slider.send_keys(Keys.HOME)  # cautious
            assert text("dial-where").startswith("cvar(0.2)")
            cautious = drawn()
            slider.send_keys(Keys.ARROW_RIGHT)
            assert text("dial-where").startswith("0.5*mean + 0.5*cvar(0.2)")
            spoken = driver.execute_script("return document.getElementById('dial').ariaValueText")
            assert "mean" in spoken
            slider.send_keys(Keys.END)  # bold
            assert text("dial-where").startswith("mean")
            for name, before, after in zip(figures, cautious, drawn(), strict=True):
                assert before != after, name
            script = (
                "document.querySelector('[data-point=\"2\"]').dispatchEvent(new Event('click'))"
            )
            driver.execute_script(script)
            assert text("dial-where").startswith("cvar(0.2)")
            assert driver.execute_script("return document.getElementById('dial').value") == "0"
            assert drawn() == cautious
