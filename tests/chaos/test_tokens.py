"""Secured runs whose token file is edited, and whose port strangers call at the address of an honest relay."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from fault_counts import fault_counts
from network_lines import Proxy
from processes import Process, free_port, small_settings, steps, wait_until, write_configuration

from unity_bridge.remote.admission import MOST_FAILURES
from unity_bridge.remote.dialing import EXCHANGE, find_trainer
from unity_bridge.remote.join_code import JOIN_VARIABLE, JoinCode
from unity_bridge.remote.private_files import FOLDER_VARIABLE

TOKEN = "a-token-of-the-user"


class SecuredRun:
    """A run with a token file of the user, a line to it that can be cut, and a relay behind that line."""

    def __init__(self, scene: Any) -> None:
        pytest.importorskip("cryptography")
        self.folder: Path = scene.folder
        self.tokens = self.folder / "tokens"
        self.tokens.write_text(f"{TOKEN}\n")
        self.tokens.chmod(0o600)
        write_configuration(self.folder, {"Basic": small_settings(summary_freq=200)})
        user, port = {FOLDER_VARIABLE: str(self.folder / "user")}, free_port()
        self.trainer: Process = scene.learn(
            f"--port={port}", f"--token-file={self.tokens}", "--seed=1", "--timeout-wait=20", **user
        )
        text = self.trainer.wait_for_output("join: TS1-").partition("join: ")[2].split()[0]
        self.code = JoinCode.parse(text)
        self.line = Proxy(port)
        self.start_relay = lambda token=TOKEN: scene.start(
            sys.executable, "-m", "trainer_service", "relay", "--join", "--env=sim:basic",
            f"--address=127.0.0.1:{self.line.port}", "--timeout-wait=20",
            **{JOIN_VARIABLE: replace(self.code, token=token).text(), **user},
        )  # fmt: skip
        self.relay: Process = self.start_relay()
        self.go_on()

    def go_on(self, summaries: int = 2) -> None:
        """Waits until the run has learned more."""
        wanted = len(steps(self.trainer.output)) + summaries

        def has_gone_on() -> bool:
            assert self.trainer.poll() is None, self.trainer.output[-3000:]
            assert self.relay.poll() is None, self.relay.output[-3000:]
            return len(steps(self.trainer.output)) >= wanted

        wait_until(has_gone_on, "more steps")

    def call_with_wrong_tokens(self, count: int) -> set[grpc.StatusCode]:
        answers = set()
        with find_trainer(self.code).open_channel() as channel:
            for number in range(count):
                try:
                    channel.unary_unary(EXCHANGE)(
                        b"", metadata=(("authorization", f"Bearer wrong-{number}"),), timeout=60
                    )
                except grpc.RpcError as error:
                    answers.add(error.code())
        return answers


@pytest.fixture
def secured(scene) -> Iterator[SecuredRun]:
    run = SecuredRun(scene)
    with contextlib.closing(run.line._listener), run.line:
        yield run


@fault_counts(None, 300)
def test_a_token_file_that_is_written_in_place_throws_nobody_out(secured, note, count: int) -> None:
    """``count`` times: emptied, and written again after a while. Now and then it is renamed away in between."""
    for number in range(count):
        if number % 3 == 2:
            secured.tokens.rename(secured.folder / "tokens~")
        else:
            secured.tokens.write_text("" if number % 3 else TOKEN[:5])
        until = time.monotonic() + (number % 10) / 20
        wait_until(lambda: time.monotonic() >= until, "the editor")  # noqa: B023
        secured.tokens.write_text(f"# edited {number} times\n{TOKEN}\n")
        secured.tokens.chmod(0o600)
    secured.go_on()
    note(
        "the token file is rewritten in place, by a program that keeps the token",
        f"{count} rewrites, up to 0.45 s without the token",
        f"relay exit code {secured.relay.poll()}; {secured.trainer.output.count('No token is accepted')} warnings",
    )
    assert "No token is accepted" not in secured.trainer.output
    assert "no line to the trainer" not in secured.relay.output


@pytest.mark.thorough
@fault_counts(2 * MOST_FAILURES, 1000)
def test_wrong_tokens_at_its_address_do_not_keep_a_relay_out(secured, note, count: int) -> None:
    """A program at the same address calls with wrong tokens; the relay's line breaks, and another relay comes."""
    answers = secured.call_with_wrong_tokens(count)
    secured.line.break_lines()
    secured.go_on()
    newcomer = secured.start_relay()
    secured.trainer.wait_for_output("Connected to ", times=1)
    wrong = secured.start_relay("another-token-than-that")
    wrong.wait_for_output("too many calls without a valid token")
    secured.go_on()
    note(
        "wrong tokens of an honest relay's address, whose line breaks",
        f"{count} calls, 1 break",
        f"answers {', '.join(sorted(each.name for each in answers))}; relay and newcomer: "
        f"exit codes {secured.relay.poll()}, {newcomer.poll()}",
    )
    assert answers == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert newcomer.poll() is None
    assert wrong.end() == 1, "it waits as long as it may"
    assert secured.relay.poll() is None


@pytest.mark.thorough
def test_a_date_that_cannot_be_computed_ends_nothing(secured, note) -> None:
    secured.tokens.write_text(f"{TOKEN} 0001-01-01\n")
    secured.trainer.wait_for_output("No token is accepted from now on")
    secured.tokens.write_text(f"{TOKEN}\n")
    secured.go_on()
    told = secured.trainer.output.count("line 1: expected an end such as 2030-01-31, got '0001-01-01'")
    note("a token that ends in the year 1", "written into a running trainer's file", f"told {told} times")
    assert told == 1
    assert "Traceback" not in secured.trainer.output
