"""The page in a real browser: Chromium without a window."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def check_requests(browser: Any, page: Page) -> None:
    """No message of the console, and no request that leaves the page's own server."""
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"
    ]
    assert len(urls) > 4
    assert all(url.startswith((f"http://127.0.0.1:{page.port}/", "data:")) for url in urls), urls


@contextmanager
def opened(browser: Any, *arguments: str, cwd: Path) -> Iterator[Page]:
    """A program whose page is open in the browser."""
    page = Page(*arguments, cwd=cwd)
    try:
        browser.get(f"http://127.0.0.1:{page.port}/?token={page.token}")
        yield page
        browser.get("about:blank")  # a program that ends below its page is an error of the console
    finally:
        page.close()


def check_fit(browser: Any) -> None:
    """The page is not wider than a phone's or a desktop's window, in light and in dark."""
    for width, scheme in itertools.product((1400, 400), ("light", "dark")):
        resize(browser, width, scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_a_person_records_by_the_browsers_own_keys(browser: Any, tmp_path: Path) -> None:
    recording = ("record-demo", "sim:basic", "--policy=keyboard", "--episodes=1", "-o", "own.demo")
    with opened(browser, *recording, cwd=tmp_path) as page:
        wait_for(lambda: text(browser, "play") == "Play" and "Recording" in text(browser, "policy"))
        check_fit(browser)
        browser.find_element("id", "play").click()
        key(browser, "keyDown", "ArrowRight")
        wait_for(lambda: "terminal" in text(browser, "note"))
        key(browser, "keyUp", "ArrowRight")
        out, _ = page.process.communicate(timeout=60)
        found = re.search(r"Recorded 1 episode of Basic: \d+ steps, mean return (\S+),", out)
        assert found is not None
        assert float(found[1]) > 0.5  # the goal on the right; a step of idling costs 0.01
        check_requests(browser, page)


GAMEPAD = """
window.pad = { id: "pad", index: 0, connected: true, mapping: "standard", axes: [0, 0, 0, 0],
               buttons: Array.from({ length: 17 }, () => ({ pressed: false, touched: false, value: 0 })) };
navigator.getGamepads = () => [null, window.pad, null, null];
"""
"""A standard gamepad in the second slot, as browsers list it."""


def taken(browser: Any) -> list[str]:
    """The labels and figures of the actions that the page shows as taken."""
    return str(browser.execute_script(ACTIONS)).split("|")


ACTIONS = """
const shown = (row) => row.className.includes("taken") || row.className.includes("number");
const said = (row) => row.firstChild.textContent + "=" + row.lastChild.textContent;
return [...document.querySelectorAll("#actions .row")].filter(shown).map(said).join("|");
"""


def test_the_agent_follows_the_sticks_and_the_cross_of_a_gamepad(browser: Any, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": GAMEPAD})
    with opened(
        browser, "watch", "sim:3dball", "--random", "--env-args", "--agents", "1", cwd=tmp_path
    ) as page:
        wait_for(lambda: text(browser, "control") == "Take control" and len(taken(browser)) == 2)
        browser.find_element("id", "control").click()
        wait_for(lambda: taken(browser) == ["tilt right=0.00", "tilt near=0.00"])
        browser.execute_script("pad.axes = [0.5, -0.75, 0, 0]")  # up is negative on a stick
        wait_for(lambda: taken(browser) == ["tilt right=0.50", "tilt near=0.75"])
        browser.execute_script("pad.axes = [0.1, 0.1, 0, 0]")  # a stick at rest is seldom at 0
        wait_for(lambda: taken(browser) == ["tilt right=0.00", "tilt near=0.00"])
        check_requests(browser, page)  # this empties the browser's logs for the next page
    with opened(
        browser, "watch", "sim:basic", "--random", "--env-args", "--agents", "1", cwd=tmp_path
    ) as page:
        wait_for(lambda: text(browser, "control") == "Take control")
        browser.find_element("id", "control").click()
        wait_for(lambda: taken(browser) == ["stay=taken"])
        for button, choice in ((15, "right"), (14, "left")):
            browser.execute_script(f"pad.buttons[{button}].pressed = true")
            wait_for(lambda choice=choice: taken(browser) == [f"{choice}=taken"])
            browser.execute_script(f"pad.buttons[{button}].pressed = false")
            wait_for(lambda: taken(browser) == ["stay=taken"])
        check_requests(browser, page)
