"""The token of the local page of a watched scene."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from processes import wait_until
from watched_page import Page


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
