from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from unity_bridge.errors import RemoteError
from unity_bridge.remote.join_code import JOIN_VARIABLE, JoinCode, split_address

CODE = JoinCode(
    ("10.0.0.7:5005", "[2001:db8::7]:5005", "trainer.lan:5005"), "correct-horse-battery", bytes(range(32))
)


def test_a_code_is_one_word_that_reads_back() -> None:
    text = CODE.text()
    assert text.startswith("TS1-")
    assert not set(" \t\n'\"$&|;<>`\\") & set(text), "a shell takes it as it is"
    assert JoinCode.parse(f"  {text}\n") == CODE


def test_a_code_that_is_logged_by_mistake_keeps_its_token() -> None:
    logged = f"{CODE} {CODE!r}"
    assert "correct" not in logged
    assert CODE.text() not in logged


def test_no_code_with_another_character_is_taken() -> None:
    text = CODE.text()
    for place in range(len("TS1-"), len(text)):
        wrong = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        with pytest.raises(RemoteError, match=r"^join code: ") as caught:
            JoinCode.parse(wrong)
        assert wrong[8:] not in str(caught.value)


def test_no_part_of_a_code_is_taken() -> None:
    text = CODE.text()
    for length in range(len(text)):
        with pytest.raises(RemoteError, match=r"^join code: "):
            JoinCode.parse(text[:length])


@pytest.mark.parametrize("text", ["", "5004", "TS2-AAAA", "TS1-ä", "TS1-" + "A" * 5000, "TS1-\0"])
def test_what_is_no_code(text: str) -> None:
    with pytest.raises(RemoteError, match=r"^join code: "):
        JoinCode.parse(text)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"token": "correct-horse\nbattery"}, "not a whole code"),
        ({"token": "correct-horse\0battery"}, "not a whole code"),
        ({"token": "correct-horse battery"}, "not a whole code"),
        ({"token": "correct"}, "not a whole code"),
        ({"addresses": ("10.0.0.7",)}, "expected HOST:PORT, got '10.0.0.7'"),
        (
            {"addresses": ("10.0.0.7:5005", "\x1b[2Jtrainer:5005")},
            r"expected HOST:PORT, got '\\x1b\[2Jtrainer:5005'",
        ),
        ({"addresses": ()}, "expected HOST:PORT, got ''"),
    ],
)
def test_a_whole_code_with_contents_that_none_has(changes: dict[str, Any], expected: str) -> None:
    """A stranger's: whatever is in it reaches neither gRPC nor the terminal."""
    with pytest.raises(RemoteError, match=expected):
        JoinCode.parse(dataclasses.replace(CODE, **changes).text())


def test_the_environment_has_the_code_where_the_flag_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JOIN_VARIABLE, raising=False)
    assert JoinCode.given(CODE.text()) == CODE
    with pytest.raises(RemoteError, match=f"or one in the environment variable {JOIN_VARIABLE}"):
        JoinCode.given("")
    monkeypatch.setenv(JOIN_VARIABLE, CODE.text())
    assert JoinCode.given("") == CODE


@pytest.mark.parametrize(
    ("address", "parts"),
    [("a.b:1", ("a.b", 1)), ("[::1]:5005", ("::1", 5005)), ("10.0.0.7:65535", ("10.0.0.7", 65535))],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "a", "a:", ":5", "a:0", "a:65536", "a:-1", "a:x", "a:²"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(RemoteError, match="address: expected HOST:PORT, got "):
        split_address(address)
