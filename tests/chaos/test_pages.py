"""Large requests to the local page of a watched scene."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from fault_counts import fault_counts
from processes import resident, wait_until
from watched_page import Page

MIB = 1 << 20


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    opened = Page("watch", "sim:basic", "--expert", cwd=tmp_path)
    opened.enter()
    yield opened
    opened.close()


def command_lines() -> Iterator[bytes]:
    """The arguments of all processes, as every user may read them."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


@pytest.mark.thorough
def test_no_list_of_processes_holds_the_token(tmp_path: Path, note) -> None:
    """Another user looks at it without an end while the page is opened in a browser."""
    pytest.importorskip("uvicorn")
    browser, opened, over = tmp_path / "browser", tmp_path / "opened", threading.Event()
    browser.write_text(f"#!/bin/sh\ntouch {opened}\nwhile [ -e {opened} ]; do sleep 0.1; done\n")
    browser.chmod(0o700)
    seen: set[bytes] = set()

    def look() -> None:
        while not over.is_set():
            seen.update(command_lines())

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    page = Page("watch", "sim:basic", "--expert", cwd=tmp_path, browser=browser)
    try:
        wait_until(opened.exists, "the browser")
        wait_until(lambda: any(str(browser).encode() in each for each in list(seen)), "a look at it")
    finally:
        over.set()
        looker.join()
        opened.unlink(missing_ok=True)  # which ends it
        page.close()
    holding = [each for each in seen if page.token.encode() in each]
    note(
        "the list of processes while a page is opened",
        f"{len(seen)} command lines",
        f"{len(holding)} hold the token",
    )
    assert holding == []


@fault_counts(None, 300)
def test_a_command_of_many_megabytes_is_not_read(page: Page, note, count: int) -> None:
    assert page.do(do="pause") == 204
    before, status, most = resident(page.process.pid), 0, 0
    with closing(http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.putrequest("POST", "/control")
            connection.putheader("Cookie", page.cookie)
            connection.putheader("Content-Length", str(count * MIB))
            connection.endheaders()
            for _ in range(count):
                connection.send(b" " * MIB)
                most = max(most, resident(page.process.pid) - before)
        with suppress(http.client.HTTPException, OSError):
            status = connection.getresponse().status
    note("a large command of the local page", f"{count} MB", f"{most / MIB:+.0f} MB at most; answer {status}")
    assert most < 16 * MIB
    assert status in (413, 0), "0 is a connection that was closed while the command was on its way"
    assert page.do(do="play") == 204
