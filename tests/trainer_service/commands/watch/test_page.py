"""The page over HTTP, and the commands that open it."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from processes import wait_until
from watched_page import Page

from trainer_service.commands.main import main
from trainer_service.commands.watch.server import Access

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.process


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[list[Page]]:
    pages: list[Page] = []
    yield pages
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def one_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page("watch", "sim:basic", "--expert", cwd=tmp_path_factory.mktemp("page"))
    page.enter()
    yield page
    page.close()
    assert "Traceback" not in page.rest


def test_the_token_opens_the_page_once(opened: list[Page], tmp_path: Path) -> None:
    page = Page("watch", "sim:basic", "--expert", cwd=tmp_path)
    opened.append(page)
    assert page.ask("/").status == 403
    assert page.ask("/?token=wrong").status == 403
    assert page.ask("/events").status == 403
    assert page.do(do="pause") == 403
    page.enter()
    assert page.ask("/").status == 200
    for path in ("/page.js", "/page.css", "/about"):
        assert page.ask(path).status == 200
    assert page.ask("/server.py").status == 404
    for name in ("evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example:80", ""):
        assert page.ask("/", Host=name).status == 403
    assert page.ask("/", Host="localhost:1").status == 200
    assert page.ask("/control", "POST", '{"do": "pause"}', Sec_Fetch_Site="cross-site").status == 403
    page.cookie = ""
    assert page.ask(f"/?token={page.token}").status == 403


def test_a_look_at_the_address_does_not_use_it_up(opened: list[Page], tmp_path: Path) -> None:
    page = Page("watch", "sim:basic", "--expert", cwd=tmp_path)
    opened.append(page)
    assert page.ask(f"/?token={page.token}").status == 303, "a preview, which keeps no cookie"
    page.enter()
    assert page.ask("/").status == 200
    assert page.ask(f"/?token={page.token}").status == 200, "the same browser again"
    page.cookie = ""
    assert page.ask(f"/?token={page.token}").status == 403


def test_pages_of_one_browser_have_cookies_of_their_own() -> None:
    assert Access().cookie != Access().cookie


@pytest.mark.skipif(os.name != "posix", reason="other systems have other permissions")
def test_the_browsers_arguments_hold_no_secret(opened: list[Page], tmp_path: Path) -> None:
    told, browser = tmp_path / "told", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {told}.new && mv {told}.new {told}\n')
    browser.chmod(0o700)
    page = Page("watch", "sim:basic", "--expert", cwd=tmp_path, browser=browser)
    opened.append(page)
    wait_until(told.exists, "the browser")
    arguments = told.read_text()
    assert page.token not in arguments
    file = Path(unquote(urlsplit(arguments.strip()).path))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert f"url=http://127.0.0.1:{page.port}/?token={page.token}" in file.read_text()
    assert "samesite=lax" in page.ask(f"/?token={page.token}").cookie.lower(), "the file is another site"
    page.close()
    assert not file.parent.exists()


def test_sigterm_ends_a_page_like_ctrl_c(opened: list[Page], tmp_path: Path) -> None:
    """pygame, which draws it, would keep the signal for itself."""
    pytest.importorskip("pygame")
    page = Page("watch", "gym:CartPole-v1", "--random", cwd=tmp_path)
    opened.append(page)
    page.enter()
    with page.frames() as frames:
        next(frame for frame in frames if frame.get("picture"))
        page.process.terminate()
        *_, last = frames
    assert last["over"]
    out, _ = page.process.communicate(timeout=60)
    assert (page.process.returncode, "Traceback" in out) == (0, False)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("[" * 9000, 400),
        ('{"do": ' * 1400, 400),
        ('{"do": "input", "discrete": [], "continuous": [1' + "0" * 400 + "]}", 400),
        ('{"do": "input", "discrete": [1e999], "continuous": []}', 400),
        ('{"do": "input", "pressed": ["ArrowLeft"], "axes": []}', 400),
        ('{"do": "speed", "value": NaN}', 400),
        ('"\\ud800"', 400),
        ("\0", 400),
        ("", 400),
        (" " * 10_001, 413),
    ],
)
def test_bodies_that_are_no_command(one_page: Page, body: str, status: int) -> None:
    assert one_page.ask("/control", "POST", body).status == status
    assert one_page.do(do="pause") == 204


def test_the_page_shows_and_controls_a_scene(opened: list[Page], tmp_path: Path) -> None:
    page = Page("watch", "sim:basic", "--expert", cwd=tmp_path)
    opened.append(page)
    page.enter()
    about = json.loads(page.ask("/about").body)
    assert about["environment"] == "sim:basic"
    assert about["actions"] == {"Basic?team=0": {"continuous_size": 0, "discrete_branches": [3]}}
    with page.frames() as frames:
        first = next(frame for frame in frames if frame.get("picture"))
        assert first["policy"] == "expert"
        assert page.do(do="speed", value=16.0) == 204
        returned = next(frame for frame in frames if frame.get("returns"))
        assert returned["returns"][0] == pytest.approx(0.93)
        assert page.do(do="pause") == 204
        paused = next(frame for frame in frames if frame["paused"])
        assert page.do(do="step") == 204
        assert next(frame for frame in frames if frame["step"] > paused["step"])["paused"]
    assert page.do(do="fly") == 400
    assert page.ask("/control", "POST", "no json").status == 400


def test_a_demonstration_is_recorded_by_keys(opened: list[Page], tmp_path: Path) -> None:
    page = Page(
        "record-demo", "sim:basic", "--policy=keyboard", "--episodes=2", "-o", "own.demo", cwd=tmp_path
    )
    opened.append(page)
    page.enter()
    assert page.do(do="input", continuous=[], discrete=[2]) == 204
    assert page.do(do="speed", value=16.0) == 204
    with page.frames() as frames:
        assert page.do(do="play") == 204
        *_, last = frames
    assert last["over"]
    out, _ = page.process.communicate(timeout=60)
    assert "Recorded 2 episodes of Basic" in out
    assert (tmp_path / "own.demo").stat().st_size > 100


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["watch", "nothing"], "nothing"),
        (["watch", "sim:switch9"], "switch9"),
        (["watch", "sim:basic", "--expert", "--random"], "give one of them"),
        (["watch", "sim:basic", "--random", "--env", "sim:basic"], "--env"),
        (["watch", "gym:CartPole-v1", "--expert"], "no expert"),
        (["watch", "sim:basic", "--random", "--port=70000"], "expected a port from 0 to 65535, got 70000"),
        (["watch", "sim:basic", "--random", "--port=-1"], "expected a port from 0 to 65535, got -1"),
        (["record-demo", "sim:spread", "--policy=keyboard", "-o", "x.demo"], "one agent, got 3"),
        (["record-demo", "sim:basic", "--policy=keyboard", "--stochastic", "-o", "x.demo"], "--stochastic"),
        (["evaluate", "random", "--against", "human", "expert", "--env", "sim:duel"], "human alone"),
        (
            ["evaluate", "random", "--against", "human", "--env", "sim:basic"],
            "no opponent: all agents are on one side",
        ),
    ],
)
def test_what_cannot_be_watched_is_said(
    mlagents_style, workplace: Path, line: list[str], message: str
) -> None:
    said = mlagents_style(*line, "--no-browser")
    assert said.code == 2, said.err
    assert message in said.err
    assert "Traceback" not in said.err


def test_a_demo_without_the_packages_of_the_page_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["demo"]) == 2
    assert "watch: uvicorn not installed: pip install" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
