from __future__ import annotations

import logging

import pytest

from unity_bridge.complaints import LONGEST_QUOTED, MOST_KINDS, SAID, Complaints, quoted


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
