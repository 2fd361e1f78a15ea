"""A program with a page, and the browser's part of the conversation with it."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    body: bytes
    cookie: str


class Page:
    """A program with a page, and a browser's part of the conversation."""

    def __init__(self, *arguments: str, cwd: Path, browser: Path | None = None) -> None:
        """browser: a program to be called with the address; None for none."""
        closed = [] if browser else ["--no-browser"]
        command = [sys.executable, "-m", "trainer_service", arguments[0], *closed, *arguments[1:]]
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, "BROWSER": str(browser)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", line):
                self.port, self.token = int(found[1]), found[2]
                break
        else:
            raise AssertionError(self.said)
        self.cookie, self.rest = "", ""

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            own = {key.replace("_", "-"): value for key, value in headers.items()}
            connection.request(method, path, body, {"Cookie": self.cookie, **own})
            with connection.getresponse() as found:
                return Answer(found.status, found.read(), found.getheader("Set-Cookie") or "")

    def enter(self) -> None:
        answer = self.ask(f"/?token={self.token}")
        assert answer.status == 303
        self.cookie = answer.cookie.partition(";")[0]

    @contextmanager
    def frames(self) -> Iterator[Iterator[dict]]:
        """What the page is sent, for as long as the context lasts."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", "/events", headers={"Cookie": self.cookie})
            with connection.getresponse() as answer:
                assert answer.status == 200
                yield (json.loads(line[6:]) for line in answer if line.startswith(b"data: "))

    def do(self, **command: object) -> int:
        return self.ask("/control", "POST", json.dumps(command)).status

    def close(self) -> None:
        self.process.terminate()
        try:
            self.rest += self.process.communicate(timeout=30)[0]
        finally:
            self.process.kill()  # one that goes on shall not fail other tests, too
            self.process.wait()
