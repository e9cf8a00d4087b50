"""The page of a frontier: as text, and in a real browser."""

import pytest

from downside.reporting import render
from downside.studies.frontiers.page import cards, page_data

from ...reporting.browser import browser, needs_browser, requests, resize
from ...reporting.samples import section
from .by_hand import frontier

POINTS = [(1.0, -1.0), (0.6, -0.7), (0.8, -0.3), (0.0, 0.0)]
OPTIMA = [(1.0, 1.1, -0.9), (0.5, 0.9, -0.4), (0.3, 0.85, -0.25), (0.05, 0.1, 0.05)]


@pytest.fixture(scope="module")
def curve():
    return frontier(*POINTS, spread=0.01, optima=OPTIMA)


@pytest.fixture(scope="module")
def sections(curve):
    return [
        section("mean", label=str(point.risk), checks=10, explained_episodes=1, episodes=200)
        for point in curve.points
    ]


@pytest.fixture(scope="module")
def page(curve, sections):
    return render(sections, title="by hand", frontier=page_data(curve))


def test_the_cards_say_it_in_words(curve):
    shown = {card["name"]: (card["value"], card["more"]) for card in cards(curve)}
    value, more = shown["The knee"]
    assert value == "0.333333*mean + 0.666667*cvar(0.5)"
    # 0.2 of 1.0 is given up for 0.7 of 1.0.
    assert more.endswith("20% of the price for 70% of the gain")
    assert shown["Dominated"][0] == "1 of 4"
    assert shown["In order"][0] == "no"
    gaps = [point.gap for point in curve.points]
    assert shown["Distance to the exact frontier"][0] == f"{sum(gaps) / 4:.3f}"


def test_without_a_knee_or_a_planner_the_cards_say_so():
    plain = frontier((1.0, -1.0), (0.5, -0.5), (0.0, 0.0))
    assert [card["value"] for card in cards(plain)] == ["none", "none", "not known", "yes"]


@pytest.mark.slow
def test_the_table_needs_no_script(page):
    body = page.partition("<tbody>")[2]
    assert "0.666667*mean + 0.333333*cvar(0.5)" in body
    assert "dominated" in body
    assert "Mean against tail" not in page


@pytest.mark.slow
@needs_browser
def test_a_click_on_a_point_shows_its_policy(page, tmp_path):
    path = tmp_path / "frontier.html"
    path.write_text(page, encoding="utf-8")
    with browser() as driver:

        def text(selector):
            script = "return document.querySelector(arguments[0]).textContent"
            return driver.execute_script(script, selector)

        resize(driver, 1280, 900)
        driver.get(path.as_uri())
        assert driver.execute_script("return document.documentElement.dataset.ready") == "yes"
        assert driver.get_log("browser") == []
        assert {url for url in requests(driver) if url.startswith("http")} == set()
        assert "0.333333*mean + 0.666667*cvar(0.5)" in text("#chosen")  # the knee comes first
        before = driver.execute_script("return document.getElementById('chosen-returns').innerHTML")
        assert len(before) > 1000
        script = "document.querySelector('[data-point=\"1\"]').dispatchEvent(new Event('click'))"
        driver.execute_script(script)
        assert "0.666667*mean + 0.333333*cvar(0.5)" in text("#chosen")
        assert "dominated" in text("#chosen")
        assert driver.execute_script("return document.getElementById('agent').value") == "1"
        driver.execute_script("document.querySelector('#points tbody button').click()")
        assert driver.execute_script("return document.getElementById('agent').value") == "0"
        assert "chosen" in driver.execute_script(
            "return document.querySelector('#points tbody tr').className"
        )
        drawn = driver.execute_script("return document.getElementById('curve').innerHTML")
        assert drawn.count("<rect") == 4  # an exact optimum for each point
        assert ">knee<" in drawn
        for width in (390, 1280):
            resize(driver, width, 900, mobile=width < 500)
            driver.get(path.as_uri())
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@needs_browser
def test_shares_of_unordered_actions_are_stacked(curve, sections, tmp_path):
    deeds = [
        {
            "times": [0, 1],
            "shares": [[0.25, 0.75], [share, 1.0 - share]],
            "shareNames": ["hold", "<b>sell</b>"],
            "worst": [{"number": 7, "total": -1.5, "first": 0.5, "last": 0.25, "path": [[0, 0.0]]}],
            "episodes": 100,
        }
        for share in (0.0, 0.1, 0.2, 0.3)
    ]
    path = tmp_path / "dial.html"
    data = page_data(curve, deeds=deeds, dial=True)
    path.write_text(render(sections, title="by hand", frontier=data), encoding="utf-8")
    with browser() as driver:

        def ask(script):
            return driver.execute_script(f"return {script}")

        resize(driver, 1280, 900)
        driver.get(path.as_uri())
        assert ask("document.documentElement.dataset.ready") == "yes"
        assert driver.get_log("browser") == []
        assert ask("document.querySelectorAll('#deeds rect').length") == 4
        assert "<b>sell</b>" in ask("document.getElementById('deeds-legend').textContent")
        assert ask("document.getElementById('worst-rows').textContent") == "7-1.50.250.5"
        assert ask("document.querySelector('.dial .end').textContent") == "cautious"
