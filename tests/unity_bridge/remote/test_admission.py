from __future__ import annotations

import logging
from pathlib import Path

import grpc
import pytest

from unity_bridge.remote.admission import MOST_FAILURES, WINDOW_S, Admission
from unity_bridge.remote.tokens import TokenFile
from unity_bridge.transport.service import Refusal

TOKEN = "a-token-of-the-user"
RIGHT = (("user-agent", "x"), ("authorization", f"Bearer {TOKEN}"))
WRONG = (("authorization", "Bearer another-token-than-that"),)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(tmp_path: Path, clock: Clock) -> Admission:
    path = tmp_path / "tokens"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return Admission(TokenFile(path), clock)


def answer(admission: Admission, peer: str, metadata: tuple[tuple[str, str | bytes], ...]) -> Refusal:
    refused = admission.refusal(peer, metadata)
    assert refused is not None
    return refused


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        WRONG,
        (("authorization", TOKEN),),
        (("authorization", f"bearer {TOKEN}"),),
        (("authorization", "Bearer "),),
        (("authorization", b"Bearer \xff\xfe"),),
        (("token", f"Bearer {TOKEN}"),),
        (("authorization", "Bearer x"), ("authorization", f"Bearer {TOKEN}")),
    ],
)
def test_calls_that_are_refused(admission: Admission, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
    assert admission.refusal("ipv4:10.0.0.7:1", metadata)
    assert not admission.refusal("ipv4:10.0.0.7:2", RIGHT)


def test_an_address_that_failed_too_often_is_told_to_wait(admission: Admission, clock: Clock) -> None:
    for port in range(MOST_FAILURES):
        refused = answer(admission, f"ipv4:10.0.0.7:{port}", WRONG)
        assert "wrong, has ended or was revoked" in refused.why
        assert (refused.code, refused.metadata) == (grpc.StatusCode.UNAUTHENTICATED, ())
    clock.now = 20.0
    refused = answer(admission, "ipv4:10.0.0.7:99", WRONG)
    assert refused.why == "too many calls without a valid token; wait 40 s"
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.metadata == (("x-wait-s", "40.0"),)
    assert "too many" not in answer(admission, "ipv4:10.0.0.8:99", WRONG).why, "another address is not"
    clock.now = WINDOW_S
    assert "too many" not in answer(admission, "ipv4:10.0.0.7:99", WRONG).why


def test_wrong_tokens_of_its_address_keep_no_right_one_out(admission: Admission) -> None:
    for port in range(100):
        assert admission.refusal("ipv4:10.0.0.7:2", WRONG)
        assert not admission.refusal(f"ipv4:10.0.0.7:{port}", RIGHT), "on a connection of its own"
        assert not admission.refusal("ipv4:10.0.0.7:2", RIGHT), "and on the same"


def test_failures_count_a_minute_long(admission: Admission, clock: Clock) -> None:
    for second in range(MOST_FAILURES * 3):
        clock.now = second * WINDOW_S / (MOST_FAILURES - 1)
        assert "too many" not in answer(admission, "ipv6:%5B::1%5D:5", WRONG).why


def test_refused_calls_are_reported_once_a_minute(
    admission: Admission, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        admission.report()
        assert not caplog.messages
        for host in range(7):
            for _ in range(host + 1):
                admission.refusal(f"ipv4:10.0.0.{host}:1", WRONG)
        admission.report()
        assert caplog.messages == [
            "Refused calls without a valid token: 28, of 10.0.0.6 (7), 10.0.0.5 (6), 10.0.0.4 (5), 10.0.0.3 (4), "
            "10.0.0.2 (3) and 2 other addresses."
        ]
        admission.refusal("ipv6:%5B2001:db8::7%5D:1", ())
        clock.now = WINDOW_S - 1
        admission.report()
        assert len(caplog.messages) == 1
        clock.now = WINDOW_S
        admission.report()
        admission.report()
        assert caplog.messages[1:] == ["Refused calls without a valid token: 1, of [2001:db8::7] (1)."]
        admission.refusal("ipv4:10.0.0.1:1", WRONG)
        admission.report()
        assert len(caplog.messages) == 2
        admission.report(is_last=True)
        assert caplog.messages[2:] == ["Refused calls without a valid token: 1, of 10.0.0.1 (1)."]
    assert "token-than" not in caplog.text


def test_addresses_without_end_take_no_memory_without_end(
    admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unity_bridge.remote.admission._MOST_ADDRESSES", 10)
    for number in range(100):
        assert admission.refusal(f"ipv4:10.0.1.{number}:1", WRONG)
    assert len(admission._failures) == len(admission._unreported) == 10
