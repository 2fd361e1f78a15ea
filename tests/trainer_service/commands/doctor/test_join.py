"""The findings on a trainer on another machine; tests of the command are in commands/test_remote.py."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trainer_service.commands.doctor.join import certificate, clock, join, round_trip
from unity_bridge.remote.certificate import Certificate
from unity_bridge.remote.dialing import PinnedAddress
from unity_bridge.remote.join_code import JoinCode


@pytest.mark.parametrize(("ends", "verdict"), [((2030, 1, 14), "warn"), ((2030, 1, 16), "ok")])
def test_a_certificate_that_ends_soon_is_told_of(ends: tuple[int, int, int], verdict: str) -> None:
    found = PinnedAddress("trainer:5005", Certificate(b"", b"", datetime(*ends, tzinfo=UTC)), "trainer")
    finding = certificate(found, datetime(2030, 1, 1, tzinfo=UTC))
    assert finding.verdict == verdict
    assert f"valid until {datetime(*ends):%Y-%m-%d}" in finding.found


@pytest.mark.parametrize(
    ("difference_s", "verdict", "found"),
    [
        (0.04, "ok", "0.0 s behind the trainer's"),
        (-59.0, "ok", "59.0 s ahead of the trainer's"),
        (61.0, "warn", "61.0 s behind the trainer's"),
    ],
)
def test_clocks(difference_s: float, verdict: str, found: str) -> None:
    finding = clock(difference_s)
    assert (finding.verdict, finding.found) == (verdict, found)


def test_round_trips() -> None:
    near, far = round_trip(0.0005), round_trip(0.03)
    assert near.verdict == "ok"
    assert near.found == "0.50 ms: each simulator makes at most 2000 exchanges per second, its own work aside"
    assert far.verdict == "warn"
    assert "at most 33 exchanges" in far.found
    assert "rollout workers" in far.remedy


def test_nobody_at_the_address(free_port: int) -> None:
    code = JoinCode((f"127.0.0.1:{free_port}",), "a-token-of-the-user", bytes(32))
    for address, expected in (
        (None, f"127.0.0.1:{free_port}: cannot connect"),
        ("nowhere", "expected HOST:PORT"),
    ):
        first, second = join(code.text(), address)
        assert (first.subject, first.verdict) == ("join code", "ok")
        assert (second.subject, second.verdict) == ("way to the trainer", "fail")
        assert expected in second.found
        assert code.token not in str([first, second])


@pytest.mark.parametrize(
    "token", ["a-token-with-a\n-in-it", "a-token-with-a\x1b[2J-in-it", "a token with spaces"]
)
def test_a_code_that_grpc_would_choke_on_is_to_mend(free_port: int, token: str) -> None:
    code = JoinCode((f"127.0.0.1:{free_port}",), token, bytes(32))
    (finding,) = join(code.text())
    assert (finding.subject, finding.verdict) == ("join code", "fail")
    assert "not a whole code" in finding.found
