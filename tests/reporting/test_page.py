"""The page as text: self-contained, small, and inert whatever the names are."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import downside as ds
from downside.reporting import render, report
from downside.reporting.data import aim, section_data

from ..untyped import answers
from .samples import HOSTILE, long_section, plan, relabelled, section


@pytest.fixture(scope="module")
def mixed():
    return section("0.5*mean + 0.5*cvar(0.3)", label="half and half")


@pytest.fixture(scope="module")
def single():
    return section()


class Elements(HTMLParser):
    """Tags with their attributes, and the text of scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids.append(dict(attrs).get("id"))


def data_of(page):
    return json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])


@pytest.mark.slow
def test_nothing_is_asked_of_the_network(single):
    page = render([single])
    for tag, attributes in Elements(page).tags:
        assert tag not in ("iframe", "object", "embed", "img")
        for name in ("src", "href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:"))
    assert "default-src 'none'" in page
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)


def test_hostile_names_are_inert(single):
    sections = [relabelled(single, name) for name in HOSTILE]
    page = render(sections, title=HOSTILE[0])
    elements = Elements(page)
    assert sum(tag == "script" for tag, _ in elements.tags) == 2  # the data, and our own
    assert sum(tag == "img" for tag, _ in elements.tags) == 0
    assert not any(name.startswith("on") for _, attributes in elements.tags for name in attributes)
    assert [data["label"] for data in data_of(page)["sections"]] == list(HOSTILE)
    assert "49" not in re.findall(r"<bdi>(.*?)</bdi>", page)[-1]


@pytest.mark.slow
def test_the_header_says_what_was_optimised_and_the_verdict(single, mixed):
    page = render([single, mixed])
    assert "It maximises the average over the worst 30% of episodes." in page
    assert "50% of its attention is on the average over the worst 30% of episodes" in page
    assert "Can the explanation be believed?" in page
    assert "distributions are exact" in page
    assert "100% of the optimum" in page or "at the optimum" in page


def test_the_data_are_those_of_the_explanation(mixed):
    (data,) = data_of(render([mixed]))["sections"]
    step, wanted = data["episodes"][0]["steps"][1], mixed.explanation.steps[1]
    assert step["level"] == pytest.approx(wanted.level, rel=1e-3)
    assert step["weights"] == pytest.approx(np.asarray(wanted.risk.weights).tolist(), rel=1e-3)
    assert step["s"] == pytest.approx(wanted.accumulated, rel=1e-3)
    assert step["words"] == wanted.words
    assert data["value"] == pytest.approx(mixed.evaluation.value(mixed.explanation.risk), rel=1e-3)
    assert len(step["worth"]) == len(wanted.actions)


@pytest.mark.slow
def test_twenty_agents_with_a_thousand_steps_stay_small(single):
    sections = [long_section(single, 1000, f"agent {i}") for i in range(20)]
    page = render(sections)
    assert len(page.encode()) < 3_000_000
    steps = data_of(page)["sections"][0]["episodes"][0]
    assert steps["stride"] > 1
    assert steps["steps"][-1]["t"] == 1000
    alone = data_of(render(sections[:1]))["sections"][0]["episodes"][0]
    assert alone["stride"] == 1
    assert len(alone["steps"]) == 1001


@pytest.mark.slow
def test_a_report_is_written_whole_and_a_plan_is_the_optimum_of_its_measure(tmp_path):
    best, other = plan("cvar(0.3)"), plan("mean")
    path = report(
        best,
        other,
        out=tmp_path / "deep" / "report.html",
        episodes=500,
        explained_episodes=1,
        checks=20,
    )
    page = path.read_text(encoding="utf-8")
    first, second = data_of(page)["sections"]
    assert first["optimum"] == pytest.approx(best.value, rel=1e-3)
    assert second["label"] == "plan for mean"
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(ValueError, match="`subjects` must name at least one agent or plan"):
        report()
    with pytest.raises(ValueError, match="`labels` must have one entry for each of the 1 subjects"):
        report(best, labels=["a", "b"])


@pytest.mark.parametrize(
    ("risk", "text"),
    [
        ("mean", "It maximises the average over all episodes."),
        ("cvar(0.05)", "the average over the worst 5% of episodes. Better outcomes do not count."),
        ("exponential(4)", "the worst quarter 64%"),
    ],
)
def test_every_measure_is_said_in_plain_words(risk, text):
    # exponential(4): Φ(1/4) = (1 - e^-1) / (1 - e^-4) = 0.6439.
    assert text in aim(ds.parse(risk))


def test_the_numbers_of_a_section_are_finite_and_fit_into_json(single):
    text = json.dumps(section_data(single, ["mean"], 100), allow_nan=False)
    assert len(text) < 100_000


def test_simulated_steps_are_shown_beside_lived_ones(single):
    learned = dataclasses.replace(single.explanation, timesteps=12_000, simulated_steps=345_000)
    page = render([single, dataclasses.replace(single, explanation=learned)])
    assert "12,000 <small>+ 345,000 simulated</small>" in page
    plan, agent = data_of(page)["sections"]
    assert (plan["timesteps"], plan["simulatedSteps"]) == (None, None)
    assert (agent["timesteps"], agent["simulatedSteps"]) == (12_000, 345_000)


def test_subjects_may_come_one_by_one_or_in_a_list(single, mixed, tmp_path):
    apart = report(single, mixed, out=tmp_path / "apart.html", title="both")
    together = report([single, mixed], out=tmp_path / "together.html", title="both")
    assert apart.read_text() == together.read_text()
    assert report((single,), mixed, out=apart, title="both").read_text() == together.read_text()
    with pytest.raises(ValueError, match="`subjects` must name at least one agent or plan"):
        report([], out=apart)
    with pytest.raises(ValueError, match="`labels` must have one entry for each of the 2 subjects"):
        report([single, mixed], labels=["one"], out=apart)


@pytest.mark.slow
def test_what_is_no_subject_is_named():
    messages = answers("import downside as ds", ["ds.report('runs/a')", "ds.report([3])"])
    assert "got 'runs/a'. Load it first: ds.load(path)." in messages["ds.report('runs/a')"]
    assert (
        "`subjects` must be agents, plans or sections, or a list of them, got 3."
        in (messages["ds.report([3])"])
    )


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_named_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("downside.reporting.page.make_section", None)
    with pytest.raises(OSError, match=r"nowhere/x\.html could not be written"):
        report(plan(), out="/proc/nowhere/x.html")
    with pytest.raises(OSError, match="could not be written: Is a directory"):
        report(plan(), out=tmp_path)
