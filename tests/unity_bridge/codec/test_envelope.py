"""Envelopes of long messages, which no protobuf library reads, beside those of short ones, which it does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_bridge.codec import envelope
from unity_bridge.codec.envelope import MOST_FIELDS, MOST_ROWS, open_envelope
from unity_bridge.codec.protocol import LARGEST_HANDSHAKE
from unity_bridge.errors import WireError

VARINT, FIXED64, LENGTH, GROUP, FIXED32 = 0, 1, 2, 3, 5


def varint(number: int) -> bytes:
    raw = bytearray()
    while number > 0x7F:
        raw.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*raw, number])


def field(number: int, payload: bytes, wire_type: int = LENGTH) -> bytes:
    return varint(number << 3 | wire_type) + (varint(len(payload)) if wire_type == LENGTH else b"") + payload


def agents(behavior: str, *rows: bytes) -> bytes:
    """An entry of the map of agents."""
    return field(2, field(1, behavior.encode()) + field(2, b"".join(field(1, row) for row in rows)))


def message(*rl_output: bytes, around: bytes = b"") -> bytes:
    return field(1, b"\x08\xc8\x01") + field(2, field(1, b"".join(rl_output)) + around)


def read(data: bytes, *, long: bool) -> tuple[object, ...]:
    """What a trainer reads of a message; why not, if it cannot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope, "LONG_MESSAGE", -1 if long else 1 << 40)
        try:
            opened, rows = open_envelope(data)
        except WireError as error:
            return ("refused", str(error))
    output = opened.unity_output
    return (
        opened.header,
        [(behavior, [bytes(row) for row in each]) for behavior, each in rows],
        output.HasField("rl_output"),
        output.rl_output.side_channel,
        output.HasField("rl_initialization_output"),
        output.rl_initialization_output.communication_version,
        [(each.brain_name, each.is_training) for each in output.rl_initialization_output.brain_parameters],
    )


DESCRIPTION = field(2, field(3, b"1.5.0") + field(5, field(7, b"Walker") + b"\x40\x01"))
NESTED_TWICE = field(1, field(3, b"again")) + field(1, agents("B", b"later"))
UNUSUAL = {
    "usual": message(agents("A", b"1", b"", b"x" * 200), agents("B", b"2"), field(3, b"side")),
    "empty": b"",
    "described": message(agents("A", b"1"), around=DESCRIPTION),
    "described twice": message(around=DESCRIPTION + DESCRIPTION),
    "header twice": field(1, b"\x08\x01") + message() + field(1, b"\x08\x02"),
    "outputs that are merged": message(agents("A", b"1")) + field(2, NESTED_TWICE),
    "a behavior twice": message(agents("A", b"1"), agents("A", b"2")),
    "a behavior twice, the second time without rows": message(agents("A", b"1"), agents("A")),
    "no behavior": message(field(2, field(2, field(1, b"1")))),
    "no rows": message(field(2, field(1, b"A"))),
    "a key twice": message(field(2, field(1, b"A") + field(2, field(1, b"1")) + field(1, b"B"))),
    "rows twice": message(field(2, field(2, field(1, b"1")) + field(1, b"A") + field(2, field(1, b"2")))),
    "unknown fields": field(9, b"")
    + message(field(77, b"abc"), field(5, b"1234", FIXED32), around=field(6, b"x" * 300)),
    "unknown fields among rows": message(
        field(2, field(2, field(3, b"\x05", VARINT) + field(1, b"1") + field(5, b"9")))
    ),
    "unknown fields beside rows": message(field(2, field(1, b"A") + field(9, b"") + field(2, field(1, b"1")))),
    "other wire types": message(field(2, b"\x05", VARINT), field(3, b"12345678", FIXED64)),
    "inputs": field(3, field(1, field(5, b"records"))) + message(agents("A", b"1")),
    "a long way to write a length": field(1, b"") + b"\x12\x82\x00" + field(1, b""),
    "a row beyond its list": message(field(2, field(2, b"\x0a\x05abc"))),
    "a list beyond its entry": message(field(2, b"\x12\x05abc")),
    "the end within a length": message() + b"\x12\xff",
    "the end within a tag": message() + b"\xff",
    "field zero": message() + b"\x02\x00",
    "wire type seven": message() + b"\x0f",
    "an endless number": message() + b"\x48" + b"\xff" * 11 + b"\x01",
    "a name that is no text": message(field(2, field(1, b"\xff\xfe") + field(2, field(1, b"1")))),
    "a header that is none": field(1, b"\x08"),
    "a length of eight exabytes": message() + b"\x12" + b"\xff" * 8 + b"\x7f",
}  # fmt: skip


@pytest.mark.parametrize("data", UNUSUAL.values(), ids=UNUSUAL)
def test_a_long_message_is_read_as_protobuf_reads_it(data: bytes) -> None:
    assert read(data, long=True) == read(data, long=False)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_long_message_with_a_place_changed_is_read_as_protobuf_reads_it(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from([UNUSUAL["usual"], UNUSUAL["described"], UNUSUAL["rows twice"]]))
    changed = bytearray(original)
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    expected, got = read(bytes(changed), long=False), read(bytes(changed), long=True)
    if got[0] == "refused":
        assert expected[0] == "refused" or b"\x0b" in changed or _has_group(bytes(changed))
    elif expected[0] != "refused":
        assert got == expected


def _has_group(data: bytes) -> bool:
    """Whether some byte may begin a group, which protobuf passes over, and a long message may not have."""
    return any(byte & 7 in (3, 4) for byte in data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (message(agents("A", *[b""] * (MOST_ROWS + 1)), around=field(9, bytes(1 << 20))), "rows of agents"),
        (field(9, bytes(1 << 20)) + field(9, b"") * MOST_FIELDS, "fields beside rows of agents"),
        (message(around=field(2, field(9, bytes(LARGEST_HANDSHAKE)))), "expected descriptions of"),
    ],
    ids=["rows", "fields", "descriptions"],
)
def test_what_no_simulator_has_to_say_is_refused_before_it_is_read(data: bytes, why: str) -> None:
    assert len(data) > envelope.LONG_MESSAGE
    with pytest.raises(WireError, match=why):
        open_envelope(data)
