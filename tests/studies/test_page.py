"""What a study says when it is done: its summary and its page."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import downside as ds
from downside.evaluation.seeds import estimate_value
from downside.studies.page import nice_ticks

from ..reporting.browser import browser, needs_browser, requests, resize

pytestmark = pytest.mark.slow  # what all tests look at takes long to make

# --- the summary ------------------------------------------------------------------------------


def test_the_summary_is_the_mean_over_seeds(done):
    first = done.groups[0]
    values = [ds.CVaR(0.5)(np.load(done.folder / cell.name / "returns.npy")) for cell in first.runs]
    assert first.estimates["cvar(0.5)"].value == pytest.approx(np.mean(values))
    assert first.estimates["cvar(0.5)"].low <= np.mean(values) <= first.estimates["cvar(0.5)"].high
    assert set(first.estimates) == {"cvar(0.5)", "mean", "cvar(0.2)"}
    rows = (done.folder / "summary.csv").read_text().splitlines()
    assert rows[0] == "environment,agent,trained_for,measure,value,low,high,seeds"
    assert len(rows) == 1 + 3 + 2  # the second group was trained for one of the measures
    (table,) = done.tables()
    assert table.row_count == 2


def test_one_seed_has_the_interval_of_its_episodes():
    evaluation = ds.Evaluation(np.array([1.0, 2.0, 3.0, 6.0]))
    estimate = estimate_value([evaluation], "mean")
    assert estimate.value == 3.0
    assert estimate.high - estimate.value == pytest.approx(estimate.value - estimate.low)
    assert estimate.high - estimate.value == pytest.approx(
        1.959964 * evaluation.standard_error("mean")
    )


# --- the page ---------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_page_is_whole_in_itself_and_has_the_numbers(done):
    page = done.report.read_text()
    for tag, attributes in Tags(page).tags:
        assert tag not in ("script", "iframe", "img")
        assert "style" not in attributes
        assert attributes.get("href", "#").startswith(("#", "data:"))
    assert not re.search(r"url\(|@import|https?://", page)
    assert "4 of 4" in page
    assert f"{done.groups[1].estimates['cvar(0.2)'].value:.4g}" in page
    assert page.count("<polyline") == 2


@needs_browser
def test_the_page_shows_in_a_browser_large_and_small(done):
    with browser() as driver:
        for width in (1280, 390):
            resize(driver, width, 900, mobile=width < 500)
            driver.get_log("browser")
            driver.get(done.report.as_uri())
            wide = driver.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width
            assert driver.get_log("browser") == []
            assert requests(driver) == [done.report.as_uri()]
        fill = "return getComputedStyle(document.querySelector('.dots .mark')).fill"
        assert driver.execute_script(fill) != "rgb(0, 0, 0)"  # the style was let in


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, [0.0, 0.5, 1.0]),
        (-0.31, 0.29, [-0.2, 0.0, 0.2]),
        (995.0, 1012.0, [995, 1000, 1005, 1010]),
    ],
)
def test_ticks_are_round(low, high, ticks):
    assert nice_ticks(low, high) == pytest.approx(ticks)
