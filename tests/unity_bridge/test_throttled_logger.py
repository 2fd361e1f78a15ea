from __future__ import annotations

import logging

import pytest

from unity_bridge.throttled_logger import MAX_KINDS, MAX_LOGGED, ThrottledLogger


@pytest.fixture
def throttled(caplog: pytest.LogCaptureFixture) -> ThrottledLogger:
    caplog.set_level(logging.WARNING)
    return ThrottledLogger(logging.getLogger("unity_bridge.throttled_test"))


def test_a_kind_is_logged_a_few_times_then_counted(
    throttled: ThrottledLogger, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(25):
        throttled.log("bad", "It is bad.")

    assert len(caplog.messages) == MAX_LOGGED
    assert caplog.messages[0] == "It is bad."
    assert caplog.messages[-1] == f"It is bad. (said {MAX_LOGGED} times; from now on only counted)"
    assert throttled.count("bad") == 25


def test_kinds_do_not_silence_each_other(
    throttled: ThrottledLogger, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        throttled.log("bad", "It is bad.")
    throttled.log("worse", "It is worse.")

    assert caplog.messages[-1] == "It is worse."


def test_endless_kinds_are_as_quiet_as_one(
    throttled: ThrottledLogger, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in range(MAX_KINDS + 500):
        throttled.log(kind, f"{kind}", most=MAX_LOGGED)

    assert len(caplog.messages) == MAX_KINDS + MAX_LOGGED


def test_an_error_is_logged_with_its_traceback(
    throttled: ThrottledLogger, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        {}["missing"]
    except KeyError as error:
        throttled.log("bad", "It is bad.", error=error)

    assert "It is bad." in caplog.text
    assert "KeyError: 'missing'" in caplog.text
