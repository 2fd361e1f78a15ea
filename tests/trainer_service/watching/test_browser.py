"""The page in a real browser: Chromium without a window."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from watched_page import Page

webdriver = pytest.importorskip("selenium.webdriver")
pytest.importorskip("starlette")
pytestmark = pytest.mark.process

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


@pytest.fixture
def browser(processes: Any) -> Iterator[Any]:
    """A browser that logs every request and every message of its console."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("Chromium and its chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.chrome.service.Service(DRIVER))
    yield driver
    driver.quit()


def resize(browser: Any, width: int, scheme: str) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def key(browser: Any, kind: str, code: str) -> None:
    browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": kind, "code": code, "key": code})


def text(browser: Any, name: str) -> str:
    return str(browser.find_element("id", name).text)


def test_a_person_records_by_the_browsers_own_keys(browser: Any, tmp_path: Path) -> None:
    page = Page(
        "record-demo", "sim:basic", "--policy=keyboard", "--episodes=1", "-o", "own.demo", cwd=tmp_path
    )
    try:
        browser.get(f"http://127.0.0.1:{page.port}/?token={page.token}")
        wait_for(lambda: text(browser, "play") == "Play" and "Recording" in text(browser, "policy"))
        for width, scheme in ((1400, "light"), (400, "dark")):
            resize(browser, width, scheme)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        browser.find_element("id", "play").click()
        key(browser, "keyDown", "ArrowRight")
        wait_for(lambda: "terminal" in text(browser, "note"))
        key(browser, "keyUp", "ArrowRight")
        out, _ = page.process.communicate(timeout=60)
        found = re.search(r"Recorded 1 episode of Basic: \d+ steps, mean return (\S+),", out)
        assert found is not None
        assert float(found[1]) > 0.5  # the goal on the right; a step of idling costs 0.01
        assert browser.get_log("browser") == []
        events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        urls = [
            each["params"]["request"]["url"]
            for each in events
            if each["method"] == "Network.requestWillBeSent"
        ]
        assert len(urls) > 4
        assert all(url.startswith((f"http://127.0.0.1:{page.port}/", "data:")) for url in urls), urls
    finally:
        page.close()
