"""Real channels at a port with TLS and tokens."""

from __future__ import annotations

import dataclasses
import logging
import re
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from secured_ports import SecuredPort, secured_port

from unity_bridge.remote import admission, dialing, tokens
from unity_bridge.remote.access import RemoteAccess
from unity_bridge.remote.dialing import (
    EXCHANGE,
    TrainerConnection,
    TrainerUnreachable,
    authorization,
    find_trainer,
)
from unity_bridge.remote.key_pair import make_key_pair
from unity_bridge.remote.ping import Pinger, PingRefused

PATIENCE_S = 60.0
REFUSED = grpc.StatusCode.UNAUTHENTICATED


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def outcome_of(channel: grpc.Channel, metadata: tuple[tuple[str, str], ...], data: bytes = b"evil") -> object:
    try:
        channel.unary_unary(EXCHANGE)(data, timeout=PATIENCE_S, metadata=metadata)
    except grpc.RpcError as error:
        return error.code()
    return "accepted"


def test_no_wrong_absent_ended_or_revoked_token_is_accepted(
    either_port: SecuredPort, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MOST_FAILURES", 10**9)  # so that every single one is looked at
    path, code = user / "remote" / "tokens", either_port.code
    revoked = code.token
    path.write_text("an-ended-token-of-ours 2020-01-01\nthe-token-that-holds-now\n")
    right = authorization("the-token-that-holds-now")
    with find_trainer(code).open_channel() as channel:
        assert outcome_of(channel, right, b"good") == "accepted"
        for number in range(250):
            wrong = [secrets.token_urlsafe(16), "the-token-that-holds-no", "the-token-that-holds-nowX"][
                number % 3
            ]
            for metadata in (
                authorization(wrong),
                (),
                authorization("an-ended-token-of-ours"),
                authorization(revoked),
            ):
                assert outcome_of(channel, metadata) is REFUSED
        assert outcome_of(channel, right, b"good") == "accepted"
    assert either_port.seen == [b"good"] * 2, "and no message of theirs was read"


def test_guesses_are_told_of_and_disturb_nobody_at_their_address(
    either_port: SecuredPort, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        TrainerConnection(either_port.code) as admitted,
        find_trainer(either_port.code).open_channel() as channel,
    ):
        admitted.exchange(b"good")
        guesses = [outcome_of(channel, authorization(secrets.token_urlsafe(16))) for _ in range(20)]
        assert guesses == [REFUSED] * 5 + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 15
        admitted.exchange(b"good")
        admitted.close()
        admitted.exchange(b"good")
        with TrainerConnection(either_port.code) as newcomer:
            newcomer.exchange(b"good")
    assert either_port.seen == [b"good"] * 4
    wait_until(lambda: "Refused calls without a valid token" in caplog.text)


def test_a_token_that_was_accepted_is_sent_again_while_its_file_is_spoilt(
    either_port: SecuredPort, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "PATIENCE", timedelta(0))  # the trainer loses it at once
    monkeypatch.setattr(dialing, "_READMISSION_PAUSE_S", 0.01)
    code, path = either_port.code, user / "remote" / "tokens"
    before = path.read_text()
    with TrainerConnection(code) as connection:
        connection.exchange(b"good")
    path.write_text("")
    wait_until(lambda: either_port.access.join_code() is None)
    with (
        find_trainer(code).open_channel() as stranger,
        TrainerConnection(code) as another_of_the_relay,
        ThreadPoolExecutor(1) as pool,
    ):
        exchange = pool.submit(another_of_the_relay.exchange, b"good again")
        for _ in range(20):
            assert outcome_of(stranger, ()) != "accepted"
        assert not exchange.done()
        path.write_text(before)
        assert exchange.result(PATIENCE_S) == b"good again"


def test_a_caller_that_is_told_to_wait_hears_for_how_long(either_port: SecuredPort) -> None:
    code = dataclasses.replace(either_port.code, token="another-token-of-24-char")
    with TrainerConnection(code) as connection:
        for _ in range(admission.MOST_FAILURES):
            with pytest.raises(grpc.RpcError) as caught:
                connection.exchange(b"evil")
            assert caught.value.code() is REFUSED
        with pytest.raises(TrainerUnreachable, match="too many calls without a valid token; wait") as asked:
            connection.exchange(b"evil")
    assert 0.0 < asked.value.wait_s <= admission.WINDOW_S


def test_an_admission_that_fails_admits_nobody_and_ends_nothing(
    either_port: SecuredPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: object, given: bytes) -> bool:
        raise OverflowError("date value out of range")

    with TrainerConnection(either_port.code) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(tokens.TokenFile, "accepts", fails)
            for _ in range(3):
                with pytest.raises(grpc.RpcError) as caught:
                    connection.exchange(b"good", timeout=PATIENCE_S)
                assert caught.value.code() is grpc.StatusCode.UNKNOWN, "it is told at once"
        assert connection.exchange(b"good") == b"good"
    assert either_port.seen == [b"good"]


def test_large_messages_of_callers_without_token_are_not_read(either_port: SecuredPort) -> None:
    with find_trainer(either_port.code).open_channel() as channel:
        assert outcome_of(channel, (), bytes(32 * 2**20)) is REFUSED
    assert either_port.seen == []


def test_a_client_without_tls_gets_nowhere(either_port: SecuredPort) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{either_port.port}") as channel:
        metadata = authorization(either_port.code.token)
        assert outcome_of(channel, metadata) is grpc.StatusCode.UNAVAILABLE
    assert either_port.seen == []


def test_a_ping_tells_the_time_and_is_no_message(either_port: SecuredPort) -> None:
    found = find_trainer(either_port.code)
    with Pinger(found, either_port.code.token) as pinger:
        for _ in range(20):
            took_s, difference_s = pinger.ping(timeout_s=PATIENCE_S)
            assert abs(difference_s) <= took_s, "both have one clock"
    with Pinger(found, "wrong" * 5) as pinger, pytest.raises(PingRefused, match="UNAUTHENTICATED"):
        pinger.ping(timeout_s=PATIENCE_S)
    assert either_port.seen == []


def test_many_exchanges_of_one_connection(either_port: SecuredPort) -> None:
    with TrainerConnection(either_port.code) as connection:
        for number in range(200):  # calls that stayed would be refused by now
            assert connection.exchange(b"%d" % number) == b"%d" % number


def test_a_token_is_rotated_while_the_port_is_open(
    port: SecuredPort, user: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tokens, "PATIENCE", timedelta(0))
    monkeypatch.setattr(dialing, "READMISSION_S", 0.0)
    before = port.code
    with TrainerConnection(before) as old:
        old.exchange(b"old")
        (user / "remote" / "tokens").unlink()
        wait_until(lambda: port.access.join_code() not in (None, before))
        with pytest.raises(grpc.RpcError) as caught:
            old.exchange(b"old again")
        assert caught.value.code() is REFUSED
    with TrainerConnection(port.code) as new:
        new.exchange(b"new")
    assert port.seen == [b"old", b"new"]
    wait_until(lambda: f"join: {port.code.text()}" in caplog.messages)
    assert port.code.fingerprint == before.fingerprint


def test_a_certificate_is_renewed_while_the_port_is_open(port: SecuredPort, user: Path) -> None:
    code, path = port.code, user / "remote" / "trainer.pem"
    before = find_trainer(code).certificate
    with TrainerConnection(code) as old:
        old.exchange(b"old")
        path.write_bytes(make_key_pair(path.read_bytes()))
        wait_until(lambda: find_trainer(code).certificate != before)
        old.exchange(b"old again")
        with TrainerConnection(code) as new:
            new.exchange(b"new")
    assert port.seen == [b"old", b"old again", b"new"]


def test_the_code_and_its_end_are_told_once_and_the_code_to_the_console_only(
    port: SecuredPort, caplog: pytest.LogCaptureFixture, user: Path
) -> None:
    caplog.set_level(logging.INFO)
    with secured_port(RemoteAccess.open()) as opened:
        text = opened.code.text()
    told = [record for record in caplog.records if text in record.getMessage()]
    assert [record.getMessage() for record in told] == [f"join: {text}"]
    assert told[0].is_secret is True  # type: ignore[attr-defined]
    assert re.search(r"The token holds until (\d{4}-\d\d-\d\d), the certificate until \1\.", caplog.text)
    assert str(user / "remote" / "tokens") in caplog.text
