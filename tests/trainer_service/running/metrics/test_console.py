import io
import logging
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from notebook_display import CellDisplay

from trainer_service.commands.report.live_curve import live_curve
from trainer_service.running.metrics import ConsoleWriter, EpisodeStats, Summary
from trainer_service.running.metrics import console as console_module
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.notebook import in_notebook
from unity_bridge.throttled_logger import DETAIL


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def visible(text: str) -> str:
    """The written text, without the codes that colour it and move the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "\n")


def last_table(text: str) -> list[str]:
    """The rows of the table in its last drawing."""
    return visible(text).rsplit("Behavior", 1)[1].splitlines()[1:]


def summary(behavior: str = "Ball") -> Summary:
    stats = EpisodeStats(np.array([1.0, 5.0]), np.array([10.0, 30.0]))
    return Summary(behavior=behavior, step=1000, wall_s=7.6991, steps_per_s=130.0, stats=stats)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("LINES", "40")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_terminal_there_are_plain_lines() -> None:
    stream = io.StringIO()
    with Console(stream=stream) as console:
        console.log("Connected new brain: Ball?team=0")
        ConsoleWriter().write(summary())
        console.summary(summary(), 50_000)
        console.progress("Ball", 1200, 50_000, 130.0)
        console.checkpoint("Ball", 1000)
        console.log("disk is nearly full", logging.WARNING)
    assert stream.getvalue() == (
        "[INFO] Connected new brain: Ball?team=0\n"
        "[INFO] Ball. Step: 1000. Time Elapsed: 7.699 s. Mean Reward: 3.000. Std of Reward: 2.000. Training.\n"
        "[WARNING] disk is nearly full\n"
    )


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_logged_text_is_escaped_and_cut_to_a_length(kind: type[io.StringIO]) -> None:
    stream = kind()
    with Console(stream=stream, tty=kind is Terminal):
        logging.getLogger("unity_bridge.server.bridge").warning(
            "%s", "\x1b]0;title\x07\x9b2J" + "x" * 1_000_000
        )
    written = stream.getvalue()
    assert "\\x1b]0;title\\x07\\x9b2J" in written
    assert not {"\x1b]0;", "\x07", "\x9b"} & {part for part in ("\x1b]0;", "\x07", "\x9b") if part in written}
    assert len(written) < 10_000


@pytest.mark.parametrize(
    ("how", "shown"),
    [({}, False), ({"verbose": 2}, True), ({"debug": True}, True), ({"log_format": "json"}, True)],
)
def test_details_are_shown_where_everything_is_to_be(how: dict[str, Any], shown: bool) -> None:
    stream = io.StringIO()
    with Console(stream=stream, **how):
        logging.getLogger("trainer_service.some").info("the settings", extra=DETAIL)
        logging.getLogger("trainer_service.some").warning("a warning")
    assert ("the settings" in stream.getvalue()) == shown
    assert "a warning" in stream.getvalue()


def test_a_terminal_gets_a_table_with_a_row_per_behavior() -> None:
    stream = Terminal()
    with Console(stream=stream) as console:
        console.summary(summary(), 50_000)
        console.progress("Ball", 12_345, 50_000, 4321.0)
        console.checkpoint("Ball", 12_000)
        console.progress("Pad", 7, 100, 1.0)
    ball, pad = (row.split() for row in last_table(stream.getvalue())[:2])
    assert ball[0] == "Ball"
    assert ball[-10:] == [
        "12,345",
        "/",
        "50,000",
        "3.000",
        "±",
        "2.000",
        "20.0",
        "4,321",
        "0:00:00",
        "12,000",
    ]
    assert pad[0] == "Pad"
    assert pad[-8:] == ["7", "/", "100", "–", "–", "1", "0:00:00", "–"]


LONG_NAMES = ("simple_tag_v3_adversary?team=0", "simple_tag_v3_prey_with_a_long_name?team=1")


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ("80", ("78.8k / 3M", "6.58 ± 13.7 (group 19.7)", "4,321", "0:00:00")),
        (
            "120",
            ("78,768 / 3,000,000", "6.575 ± 13.694 (group 19.725)", "20.0", "4,321", "0:00:00", "70,000"),
        ),
    ],
)
def test_every_number_is_whole_beside_long_names(
    columns: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = Terminal()
    returns = np.array([6.575 - 13.694, 6.575 + 13.694])
    stats = EpisodeStats(returns, np.array([10.0, 30.0]), np.array([19.725]))
    with Console(stream=stream) as console:
        for name in LONG_NAMES:
            told = Summary(behavior=name, step=78_768, wall_s=1.0, steps_per_s=4321.0, stats=stats)
            console.checkpoint(name, 70_000)
            console.summary(told, 3_000_000)
        console.activity("", at_once=True)
    rows = last_table(stream.getvalue())[: len(LONG_NAMES)]
    for name, row in zip(LONG_NAMES, rows, strict=True):
        assert len(row) <= int(columns)
        assert row.startswith(name[:12])
        for part in parts:
            assert re.search(rf"(?:^|\s){re.escape(part)}(?:\s|$)", row), (part, row)


def test_log_lines_stand_above_the_table_as_they_are() -> None:
    stream = Terminal()
    with Console(stream=stream) as console:
        console.progress("Ball", 1, 10, 1.0)
        console.log("[bold]Ball[/bold] :smile: " + "x" * 200)
    text = visible(stream.getvalue())
    assert "[INFO] [bold]Ball[/bold] :smile: " + "x" * 200 + "\n" in text
    assert text.index("x" * 200) < text.rindex("Behavior")


def test_the_table_is_drawn_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(console_module.time, "monotonic", lambda: now_s)
    stream = Terminal()
    with Console(stream=stream) as console:
        console.progress("Ball", 0, 1000, 1.0)
        drawn = len(stream.getvalue())
        for step in range(1000):
            console.progress("Ball", step, 1000, 1.0)
        assert len(stream.getvalue()) == drawn
        now_s += 1.0
        console.progress("Ball", 1000, 1000, 1.0)
        assert len(stream.getvalue()) > drawn


def test_in_a_notebook_the_table_is_drawn_anew_in_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    display = CellDisplay(monkeypatch)
    assert in_notebook()
    stream = io.StringIO()
    with Console(tty=False, notebook=True, stream=stream) as console:
        console.progress("[Ball]", 1200, 50_000, 130.0)
        console.log("Connected new brain: Ball?team=0")
    assert "1,200 / 50,000" in display.shown[-1]["text/plain"]
    assert "[Ball]" in display.shown[-1]["text/html"]
    assert stream.getvalue() == "[INFO] Connected new brain: Ball?team=0\n"
    display.leave()
    assert not in_notebook()


def test_below_the_table_of_a_notebook_is_the_curve_of_each_behavior(monkeypatch: pytest.MonkeyPatch) -> None:
    display = CellDisplay(monkeypatch)
    with Console(tty=False, notebook=True, chart=live_curve, stream=io.StringIO()) as console:
        console.progress("Ball", 500, 50_000, 130.0)
        assert "<svg" not in display.shown[-1]["text/html"]
        for behavior in ("Ball", "<Bat>"):
            for step in (1000, 2000, 3000):
                console.summary(replace(summary(behavior), step=step), 50_000)
        console.summary(replace(summary(), step=4000, stats=EpisodeStats()), 50_000)  # no episode ended
        console.forget("nobody")
    html = display.shown[-1]["text/html"]
    assert html.count("<polyline") == 2
    assert html.count("<title>Ball: 3 at ") == 3
    assert "&lt;Bat&gt;" in html
    assert "<Bat>" not in html
    assert "<script" not in html
