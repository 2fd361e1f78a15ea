from __future__ import annotations

import logging
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from unity_bridge.errors import RemoteError
from unity_bridge.remote import tokens
from unity_bridge.remote.tokens import LIFETIME, PATIENCE, RENEWAL, TokenFile

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "tokens"


def token_of(file: TokenFile) -> bytes:
    assert file.newest is not None
    return file.newest.text.encode()


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_token_is_made_that_only_its_user_may_read(path: Path) -> None:
    file = TokenFile(path)
    assert file.accepts(token_of(file))
    assert len(token_of(file)) == 22, "128 bits"
    assert TokenFile(path).newest == file.newest, "the next run has the same"
    assert [each.name for each in path.parent.iterdir()] == ["tokens"]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_removed_token_is_revoked_at_once(path: Path) -> None:
    file = TokenFile(write(path, "first-token-of-two\nother-token-of-two\n"))
    assert file.accepts(b"first-token-of-two")
    assert file.accepts(b"other-token-of-two")
    write(path, "# first-token-of-two\nother-token-of-two\n")
    assert not file.accepts(b"first-token-of-two")
    assert file.accepts(b"other-token-of-two")
    assert token_of(file) == b"other-token-of-two"


def test_a_deleted_file_is_made_anew_with_another_token(path: Path) -> None:
    clock = Clock()
    file = TokenFile(path, clock)
    before = token_of(file)
    path.unlink()
    assert file.accepts(before), "an editor may be about to put it back"
    assert not path.exists()
    clock.now += PATIENCE
    assert not file.accepts(before)
    assert token_of(file) != before
    assert file.accepts(token_of(file))
    assert path.exists()


def test_a_file_in_the_making_keeps_its_last_tokens(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    file = TokenFile(write(path, "a-token-of-the-user\n"), clock)
    for number, between in enumerate(["", "# Tokens\n", "a-token-", None] * 10):
        if between is None:
            path.unlink()
        else:
            write(path, between)
        assert file.accepts(b"a-token-of-the-user")
        clock.now += PATIENCE * 0.9
        assert file.accepts(b"a-token-of-the-user")
        write(path, f"a-token-of-the-user\n# {number}\n")
        assert file.accepts(b"a-token-of-the-user")
    write(path, "another-token-of-the-user\n")
    assert not file.accepts(b"a-token-of-the-user"), "a line that is gone is revoked at once"
    assert caplog.messages == []


def test_a_renewal_that_cannot_be_written_throws_nobody_out(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    file = TokenFile(path, clock)
    token, write_private = token_of(file), tokens.write_private

    def full(path: Path, content: bytes, *, replace: bool) -> None:
        raise RemoteError(f"'{path}': cannot write it: No space left on device")

    monkeypatch.setattr(tokens, "write_private", full)
    clock.now = NOW + LIFETIME - RENEWAL
    assert file.accepts(token)
    assert file.accepts(token)
    (said,) = caplog.messages
    assert said.startswith("The tokens are not renewed, which is tried again in a day: ")
    monkeypatch.setattr(tokens, "write_private", write_private)
    clock.now += timedelta(days=1)
    assert file.accepts(token)
    assert token_of(file) != token


def test_a_file_that_is_spoilt_accepts_nothing_until_it_is_mended(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    file = TokenFile(write(path, "a-token-of-the-user\n"), clock)
    write(path, "short\n")
    file.refresh()
    clock.now += PATIENCE
    with caplog.at_level(logging.WARNING):
        assert not file.accepts(b"a-token-of-the-user")
        assert not file.accepts(b"short")
    assert file.newest is None
    (said,) = caplog.messages
    assert said.startswith(
        f"No token is accepted from now on: '{path}', line 1: expected a token of 16 to 200"
    )
    write(path, "a-token-of-the-user\n")
    assert file.accepts(b"a-token-of-the-user")


def test_an_ended_token_is_not_accepted(path: Path) -> None:
    clock = Clock()
    file = TokenFile(write(path, "a-token-with-an-end 2030-01-02\na-token-without-end\n"), clock)
    assert file.accepts(b"a-token-with-an-end")
    clock.now = NOW + timedelta(days=1)
    assert not file.accepts(b"a-token-with-an-end")
    assert file.accepts(b"a-token-without-end")
    assert token_of(file) == b"a-token-without-end"


def test_the_next_token_is_made_in_time_and_both_hold_until_the_first_ends(path: Path) -> None:
    clock = Clock()
    file = TokenFile(path, clock)
    first = token_of(file)
    clock.now = NOW + LIFETIME - RENEWAL - timedelta(seconds=1)
    file.refresh()
    assert token_of(file) == first
    clock.now += timedelta(seconds=1)
    file.refresh()
    second = token_of(file)
    assert second != first
    assert file.accepts(first)
    clock.now = NOW + LIFETIME
    assert not file.accepts(first)
    assert file.accepts(second)


@pytest.mark.parametrize("end", ["0002-01-01T00:00+14:00", "9999-12-31", "9999-12-31T23:59-14:00"])
def test_the_first_and_the_last_end_are_understood(path: Path, end: str) -> None:
    file = TokenFile(write(path, f"a-token-with-an-end {end}\n"))
    assert file.accepts(b"a-token-with-an-end") == end.startswith("9999")


@pytest.mark.skipif(os.name != "posix", reason="other systems have other permissions")
def test_a_file_that_others_may_read_is_warned_of(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, "a-token-of-the-user\n").chmod(0o644)
    TokenFile(path)
    assert caplog.messages == [f"'{path}' can be read by other users (mode 0644): chmod 600 keeps it yours."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a token, got none"),
        ("# nothing\n\n", "expected a token, got none"),
        ("short\n", "line 1: expected a token of 16 to 200 ASCII characters"),
        ("x" * 201, "got 1 words, the first of 201 characters"),
        ("ä" * 20, "expected a token of 16 to 200 ASCII characters"),
        ("a-token-with-a-\x01-in-it", "all of them visible"),
        ("three words-in-a-line-of-it here", "got 3 words"),
        ("a-token-with-an-end tomorrow", "expected an end such as 2030-01-31, got 'tomorrow'"),
        ("a-token-with-an-end 0001-01-01", "line 1: expected an end such as 2030-01-31, got '0001-01-01'"),
        (
            "a-token-with-an-end 0001-02-28T23:59+14:00",
            "expected an end such as 2030-01-31, got '0001-02-28T",
        ),
    ],
)
def test_files_that_cannot_be_used(path: Path, text: str, expected: str) -> None:
    with pytest.raises(RemoteError) as caught:
        TokenFile(write(path, text))
    assert str(caught.value).startswith(f"'{path}'")
    assert expected in str(caught.value)


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="cannot read it"):
        TokenFile(tmp_path)
