"""The page in a real browser."""

import pytest

from downside.reporting import render

from .browser import browser, needs_browser, requests, resize
from .samples import HOSTILE, long_section, relabelled, section

pytestmark = needs_browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    single = section(label="careful")
    mixed = section("0.5*mean + 0.5*cvar(0.3)", label="half and half")
    neutral = section("mean", label="neutral")
    spectrum = section("exponential(4)", label="a spectrum")
    hostile = [relabelled(single, name) for name in HOSTILE]
    many = [long_section(single, 1000, f"agent {i}") for i in range(20)]
    out = {}
    for name, sections in {
        "one": [single],
        "several": [mixed, single, neutral, spectrum],
        "hostile": hostile,
        "many": many,
    }.items():
        out[name] = folder / f"{name}.html"
        out[name].write_text(render(sections, title="harmless"), encoding="utf-8")
    return out


@pytest.fixture(scope="module")
def driver():
    with browser() as window:
        yield window


def load(driver, path, **screen):
    from selenium.webdriver.support.ui import WebDriverWait

    resize(driver, screen.pop("width", 1280), 900, **screen)
    driver.get_log("browser")
    driver.get(path.as_uri())
    ready = "return document.documentElement.dataset.ready"
    WebDriverWait(driver, 60).until(lambda window: window.execute_script(ready) == "yes")


def text(driver, selector):
    script = "return document.querySelector(arguments[0]).textContent"
    return driver.execute_script(script, selector)


def figure(driver, name):
    return driver.execute_script(f"return document.getElementById('{name}').innerHTML")


def move_to(driver, step):
    driver.execute_script(
        "const slider = document.getElementById('step'); slider.value = arguments[0];"
        "slider.dispatchEvent(new Event('input'));",
        step,
    )


@pytest.mark.slow
def test_it_loads_without_an_error_and_without_a_request(driver, pages):
    for name in ("one", "several"):
        load(driver, pages[name])
        assert driver.get_log("browser") == []
        asked = {url for url in requests(driver) if not url.startswith("data:")}
        assert asked == {pages[name].as_uri()}


def test_the_slider_changes_the_words_and_the_figures(driver, pages):
    load(driver, pages["several"])
    before = {name: figure(driver, name) for name in ("level", "cdf", "total", "weights", "facts")}
    assert text(driver, "#words").startswith("At the start the agent cares about")
    move_to(driver, 2)
    assert text(driver, "#words").startswith("Step 1")
    assert text(driver, "#where") == "Step 2 of 5"
    for name, was in before.items():
        assert figure(driver, name) != was, name


def test_the_keyboard_and_the_buttons_walk_through_the_episode(driver, pages):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    load(driver, pages["one"])
    driver.find_element(By.ID, "step").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert text(driver, "#where") == "Step 2 of 5"
    driver.find_element(By.ID, "forth").send_keys(Keys.ENTER)
    assert text(driver, "#where") == "Step 3 of 5"
    driver.find_element(By.ID, "step").send_keys(Keys.END)
    assert text(driver, "#where") == "End, after step 5"
    assert "The episode is over" in text(driver, "#words")
    assert "nothing left to do" in text(driver, "#actions")


def test_another_agent_can_be_chosen(driver, pages):
    load(driver, pages["several"])
    before = figure(driver, "returns")
    driver.execute_script(
        "const s = document.getElementById('agent'); s.value = 1;"
        "s.dispatchEvent(new Event('change'));"
    )
    assert figure(driver, "returns") != before
    assert "worst 30%" in text(driver, "#words")


def test_the_table_sorts_by_any_column_both_ways(driver, pages):
    from selenium.webdriver.common.by import By

    load(driver, pages["several"])

    def column(index):
        script = (
            "return [...document.querySelectorAll('#table tbody tr')]"
            ".map((row) => row.cells[arguments[0]].dataset.value"
            " || row.cells[arguments[0]].textContent.trim())"
        )
        return driver.execute_script(script, index)

    heads = driver.find_elements(By.CSS_SELECTOR, "#table thead button")
    heads[1].click()
    values = [float(value) for value in column(1)]
    assert values == sorted(values, reverse=True)
    heads[1].click()
    assert [float(value) for value in column(1)] == sorted(values)
    heads[0].click()
    assert column(0) == sorted(column(0))
    marked = "return document.querySelectorAll('[aria-sort=ascending]').length"
    assert driver.execute_script(marked) == 1


def test_figures_and_controls_have_names(driver, pages):
    load(driver, pages["several"])
    unnamed = driver.execute_script(
        "return [...document.querySelectorAll('svg')].filter((s) => !s.getAttribute('aria-label')"
        " || s.getAttribute('role') !== 'img').length"
    )
    assert unnamed == 0
    controls = driver.execute_script(
        "return [...document.querySelectorAll('button, input, select')].filter((c) =>"
        " !(c.getAttribute('aria-label') || c.textContent.trim() || c.closest('label'))).length"
    )
    assert controls == 0
    spoken = driver.execute_script("return document.getElementById('step').ariaValueText")
    assert spoken.startswith("Step 0 of 5")
    for heading in ("How to read this", "Can the explanation be believed?", "What it returns"):
        assert heading in driver.execute_script("return document.body.innerText")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out_on_a_phone_or_a_desk_in_light_or_dark(driver, pages, width, dark):
    load(driver, pages["several"], width=width, dark=dark, mobile=width < 500)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    colours = driver.execute_script(
        "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    )
    light = [sum(int(part) for part in c[4:-1].split(",")[:3]) for c in colours]
    assert (light[0] > light[1]) == dark
    assert abs(light[0] - light[1]) > 400


def test_hostile_names_do_nothing_in_a_browser_either(driver, pages):
    load(driver, pages["hostile"])
    assert driver.title == "harmless"
    assert driver.get_log("browser") == []
    names = driver.execute_script(
        "return [...document.getElementById('agent').options].map((o) => o.textContent)"
    )
    assert names == list(HOSTILE)
    assert driver.execute_script("return document.querySelectorAll('script, img').length") == 2


def test_twenty_agents_and_a_thousand_steps_are_thinned(driver, pages):
    load(driver, pages["many"])
    move_to(driver, 60)
    assert "shown" in text(driver, "#thinned")


def test_it_prints_to_pdf(driver, pages):
    load(driver, pages["one"])
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    assert len(printed) > 20_000


OVERPRINTED = """
const pairs = [];
for (const svg of document.querySelectorAll("svg")) {
  const texts = [...svg.querySelectorAll("text")].filter((text) => text.getBBox().width > 0);
  const boxes = texts.map((text) => text.getBBox());
  for (let i = 0; i < boxes.length; i++) {
    for (let j = 0; j < i; j++) {
      const a = boxes[i], b = boxes[j];
      const across = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
      const down = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
      if (across > 1 && down > 4) pairs.push([texts[i].textContent, texts[j].textContent]);
    }
  }
}
return pairs;
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "width"), [("several", 1280), ("several", 400), ("many", 1280)])
def test_labels_never_overprint(driver, pages, name, width):
    load(driver, pages[name], width=width)
    assert driver.execute_script(OVERPRINTED) == []
    if name == "several":
        move_to(driver, 2)
        assert driver.execute_script(OVERPRINTED) == []
