"""A headless Chromium for the tests of the page; they are skipped where there is none."""

import contextlib
import json
import shutil
import tempfile

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="there is no Chromium here: install Debian's packages `chromium` and `chromium-driver`",
)

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
)


@contextlib.contextmanager
def browser(width=1280, height=900):
    """A browser that records what it logs and what it asks the network for."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for flag in (*_FLAGS, f"--user-data-dir={folder}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(executable_path=DRIVER)
        driver = webdriver.Chrome(options=options, service=service)
        try:
            driver.get("about:blank")  # the browser's own first page asks for much
            requests(driver)
            yield driver
        finally:
            driver.quit()


def resize(driver, width, height, *, dark=False, mobile=False):
    """As a screen of this size would show it."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def requests(driver):
    """The addresses that were asked for since the last call."""
    out = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            out.append(message["params"]["request"]["url"])
    return out
