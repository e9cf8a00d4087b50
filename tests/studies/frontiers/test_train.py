"""A frontier of tiny agents: trained, kept in a folder, taken up again."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import downside as ds
from downside.envs import ReturnAware
from downside.studies.engines import in_process
from downside.studies.frontiers import optima as exact
from downside.studies.frontiers.storage import frontier_folder, write_folder

from ...reporting.samples import walk_mdp
from ...train.tiny import TINY, TWO

pytestmark = pytest.mark.slow  # what all tests look at takes long to make

ENV = walk_mdp(3).environment()
ASKED = {"end": "cvar(0.5)", "seeds": [0, 1], "total_timesteps": TWO, "episodes": 200, **TINY}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("frontier")


@pytest.fixture(scope="module")
def curve(folder):
    return ds.frontier(ENV, points=3, folder=folder, **ASKED)


@pytest.fixture
def trained(monkeypatch):
    """Which agents are trained from here on."""
    trained_runs = []
    before = in_process.train_agents

    def train_agents(agents, **options):
        trained_runs.extend((str(agent.risk), agent.seed) for agent in agents)
        before(agents, **options)

    monkeypatch.setattr(in_process, "train_agents", train_agents)
    return trained_runs


def test_there_is_an_agent_for_each_measure_and_seed_in_a_run_folder_of_its_own(curve, folder):
    assert [str(point.risk) for point in curve.points] == [
        "mean",
        "0.5*mean + 0.5*cvar(0.5)",
        "cvar(0.5)",
    ]
    for point in curve.points:
        assert [(agent.risk, agent.seed) for agent in point.agents] == [
            (point.risk, s) for s in (0, 1)
        ]
        assert all(agent.num_timesteps == TWO for agent in point.agents)
    names = sorted(path.parent.name for path in folder.glob("*/run.json"))
    assert len(names) == 6
    assert names[0] == "Tabular__qrsrm__0.5mean+0.5cvar-0.5__0"


def test_each_is_what_it_would_be_alone_and_valued_in_the_same_episodes(curve):
    point = curve.points[1]
    alone = ds.QRSRM(ENV, risk=point.risk, seed=1, **TINY).learn(TWO)
    again = ds.evaluate(alone, episodes=200, seed=1_000_001)
    assert point.evaluations[1].returns.tolist() == again.returns.tolist()
    assert point.by_own.values[1] == pytest.approx(again.value(point.risk))
    means = [agent.mean for agent in point.evaluations]
    assert point.by_start.value == pytest.approx(sum(means) / 2)


def test_no_policy_is_beyond_the_exact_frontier(curve):
    for point in curve.points:
        assert point.gap is not None
        assert point.optimum is not None
        episodes = sum(agent.standard_error(point.risk) ** 2 for agent in point.evaluations)
        assert point.gap > -3 * math.sqrt(episodes) / 2
        value = (1 - point.weight) * point.optimum.start + point.weight * point.optimum.end
        assert value == pytest.approx(point.optimum.value, abs=0.02)


def test_what_is_finished_is_not_trained_again(curve, folder, trained, monkeypatch):
    monkeypatch.setattr(
        exact, "solve", lambda *_, **__: pytest.fail("the optima are in exact.json")
    )
    again = ds.frontier(ENV, points=3, folder=folder, **ASKED)
    assert trained == []
    assert again.summary() == curve.summary()
    agent = again.points[1].trained[0].agent
    assert agent.simulate_returns(5, seed=1).tolist() == (
        curve.points[1].agents[0].simulate_returns(5, seed=1).tolist()
    )


def test_more_points_train_what_is_missing_and_nothing_else(curve, folder, trained):
    more = ds.frontier(ENV, points=5, folder=folder, exact=False, **ASKED)
    assert set(trained) == {
        (risk, seed)
        for risk in ("0.75*mean + 0.25*cvar(0.5)", "0.25*mean + 0.75*cvar(0.5)")
        for seed in (0, 1)
    }
    assert more.points[2].by_own == curve.points[1].by_own


def test_an_agent_that_was_trained_but_not_valued_is_valued(curve, folder, trained):
    run = folder / "Tabular__qrsrm__cvar-0.5__1"
    (run / "returns.npy").unlink()
    again = ds.frontier(ENV, points=3, folder=folder, **ASKED)
    assert trained == []
    assert (run / "returns.npy").exists()
    assert again.points[2].by_own == curve.points[2].by_own


def test_a_folder_with_runs_of_another_kind_is_refused(curve, folder):
    with pytest.raises(ValueError, match=r"trained in another way: .* has quantiles 5, now 6"):
        ds.frontier(ENV, points=3, folder=folder, **{**ASKED, "quantiles": 6})


def test_the_folder_has_the_numbers_the_picture_and_a_page(curve, folder):
    page = write_folder(curve, folder, explained_episodes=1, checks=20)
    assert json.loads((folder / "frontier.json").read_text())["points"] == curve.rows()
    assert len((folder / "frontier.csv").read_text().splitlines()) == 4
    assert (folder / "frontier.png").stat().st_size > 10_000
    text = page.read_text(encoding="utf-8")
    assert "mean against cvar(0.5): Tabular" in text


def test_wrong_arguments_are_refused_before_anything_is_trained(trained, tmp_path):
    with pytest.raises(ValueError, match="`seeds` must be one or more different whole numbers"):
        ds.frontier(ENV, seeds=[1, 1])
    with pytest.raises(ValueError, match="`start` and `end` must be two different measures"):
        ds.frontier(ENV, start="mean", end="cvar(1)")
    with pytest.raises(ValueError, match="`confidence` must be in"):
        ds.frontier(ENV, confidence=95.0)
    with pytest.raises(ValueError, match="`exact` must be False or left out here: `env` must be"):
        ds.frontier(ReturnAware(ENV, gamma=0.9), exact=True)
    with pytest.raises(ValueError, match=r"`env` must be written in JAX .* Use `ds\.sweep`"):
        ds.frontier("CartPole-v1")
    with pytest.raises(ValueError, match="CVaR"):
        ds.frontier(ENV, agent=ds.QRCVaR)
    with pytest.raises(ValueError, match="`episodes` must be a whole number of at least 2, got 1"):
        ds.frontier(ENV, episodes=1)
    with pytest.raises(ValueError, match="`total_timesteps` must be a number >= 1, got 0"):
        ds.frontier(ENV, total_timesteps=0)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"`folder` must be a folder .*file: .* Take another one"):
        ds.frontier(ENV, folder=tmp_path / "file")
    assert trained == []


def test_measures_that_print_alike_have_each_its_own_optimum(monkeypatch):
    # 2 (1 - u) and 3 (1 - u)^2 leave the better of two outcomes 1/4 and 1/8.
    first, second = (ds.CustomSpectrum(lambda u, k=k: (1 - u) ** k) for k in (1, 2))
    returns = [0.0, 1.0]
    monkeypatch.setattr(
        exact,
        "solve",
        lambda _, risk, **__: SimpleNamespace(value=float(risk(returns)), returns=returns),
    )
    agent = ds.QRSRM(ENV, risk="mean", **TINY)
    optima = exact.exact_optima(agent, [first, second], (first, second), None, False)
    np.testing.assert_allclose([one.value for one in optima], [1 / 4, 1 / 8], atol=1e-6)


def test_a_measure_that_no_text_makes_again_is_refused_with_a_folder(tmp_path, trained):
    custom = ds.CustomSpectrum(lambda u: 1 - u)
    with pytest.raises(ValueError, match=r"`folder`, got custom\(.*<lambda>\)\. Leave out"):
        ds.frontier(ENV, folder=tmp_path, **{**ASKED, "end": custom})
    assert trained == []


def test_the_folder_is_named_after_what_is_in_it():
    named = frontier_folder("downside/MeanReversion-v0", "qrsrm", "mean", "cvar(0.1)")
    assert str(named) == "runs/MeanReversion-v0__qrsrm__frontier__mean__cvar-0.1"
