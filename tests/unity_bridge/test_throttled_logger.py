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


def test_endless_kinds_are_as_quiet_as_one(
    throttled: ThrottledLogger, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in range(MAX_KINDS + 500):
        throttled.log(kind, f"{kind}", most=MAX_LOGGED)

    assert len(caplog.messages) == MAX_KINDS + MAX_LOGGED
