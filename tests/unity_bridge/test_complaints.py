from __future__ import annotations

import logging

import pytest

from unity_bridge.complaints import (
    LONGEST_LINE,
    LONGEST_QUOTED,
    MOST_KINDS,
    SAID,
    Complaints,
    harmless,
    quoted,
    version_text,
)


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> Complaints:
    caplog.set_level(logging.WARNING)
    return Complaints(logging.getLogger("unity_bridge.complaints_test"))


def test_a_kind_is_said_a_few_times_and_then_counted(
    complaints: Complaints, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(25):
        complaints.say("bad", "It is bad.")

    assert len(caplog.messages) == SAID
    assert caplog.messages[0] == "It is bad."
    assert caplog.messages[-1] == f"It is bad. (said {SAID} times; from now on only counted)"
    assert complaints.count("bad") == 25


def test_kinds_do_not_silence_each_other(complaints: Complaints, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        complaints.say("bad", "It is bad.")
    complaints.say("worse", "It is worse.")

    assert caplog.messages[-1] == "It is worse."


def test_endless_kinds_are_as_quiet_as_one(complaints: Complaints, caplog: pytest.LogCaptureFixture) -> None:
    for kind in range(MOST_KINDS + 500):
        complaints.say(kind, f"{kind}", most=SAID)

    assert len(caplog.messages) == MOST_KINDS + SAID


def test_what_is_quoted_stays_on_its_line() -> None:
    assert quoted("\x1b[31mPWN\n[INFO] forged") == "'\\x1b[31mPWN\\n[INFO] forged'"


def test_what_is_quoted_is_cut() -> None:
    assert quoted("x" * 5_000_000) == f"'{'x' * LONGEST_QUOTED}'… (5000000 characters)"


def test_an_error_is_told_with_its_traceback(
    complaints: Complaints, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        {}["missing"]
    except KeyError as error:
        complaints.say("bad", "It is bad.", error=error)

    assert "It is bad." in caplog.text
    assert "KeyError: 'missing'" in caplog.text


def test_what_is_printed_moves_no_cursor_and_forges_no_line() -> None:
    said = harmless("[WARNING] \x1b[31mPWN\r\x9b2J\u202egnp.exe\n[INFO] forged\n\tindented")
    assert said == "[WARNING] \\x1b[31mPWN\\x0d\\x9b2J\\u202egnp.exe\n  [INFO] forged\n\tindented"


def test_lines_that_nobody_reads_to_their_end_are_cut() -> None:
    said = harmless("x" * 3_000_000 + "\nand the rest")
    assert said == "x" * LONGEST_LINE + "…\nand the rest"


def test_a_version_is_a_version_or_quoted() -> None:
    assert version_text("2.3.0-exp.3") == "2.3.0-exp.3"
    assert version_text("2.0\x1b[2J") == "'2.0\\x1b[2J'"
    assert version_text("9" * 41) == f"'{'9' * 41}'"
