"""Rows of actions, many at once, however they are written."""

from __future__ import annotations

import struct

import pytest

from unity_bridge.demonstrations.actions import ActionReader
from unity_bridge.errors import WireError
from unity_bridge.specs import ActionSpec


def number(value: float) -> bytes:
    return struct.pack("<f", value)


def packed(field: int, value: float) -> bytes:
    return bytes([field << 3 | 2, 4]) + number(value)


def test_unusual_rows_of_equal_length_keep_their_actions() -> None:
    usual = [packed(1, 9.0) + packed(6, value) for value in (0.25, 0.5)]
    turned = packed(6, 0.75) + packed(1, 9.0)
    assert {len(row) for row in (*usual, turned)} == {12}
    for rows in ([usual[0], turned, usual[1]], [turned, *usual]):
        actions, choices, given = ActionReader(ActionSpec(1)).read(rows)
        assert sorted(actions.ravel().tolist()) == [0.25, 0.5, 0.75]
        assert actions[rows.index(turned), 0] == 0.75
        assert choices.shape == (3, 0)
        assert given.all()


def test_numbers_one_by_one_are_a_list_too() -> None:
    rows = [b"\x35" + number(0.5) + b"\x38\x02", packed(6, -0.5) + b"\x3a\x01\x01"]
    actions, choices, _ = ActionReader(ActionSpec(1, (3,))).read(rows)
    assert actions.tolist() == [[0.5], [-0.5]]
    assert choices.tolist() == [[2], [1]]


def test_a_large_choice_is_not_taken_for_two_small_ones() -> None:
    two_bytes = b"\x3a\x02\xc8\x01"  # 200
    with pytest.raises(WireError, match="row 0: expected 2 discrete actions, got 1"):
        ActionReader(ActionSpec(0, (128, 128))).read([two_bytes])
    _, choices, _ = ActionReader(ActionSpec(0, (300,))).read([two_bytes, b"\x3a\x01\x07"])
    assert choices.tolist() == [[200], [7]]


def test_rows_without_an_action_differ_from_zeros() -> None:
    rows = [b"", packed(6, 0.0), packed(1, 0.0)]
    actions, _, given = ActionReader(ActionSpec(1)).read(rows)
    assert actions.tolist() == [[0.0]] * 3
    assert given.tolist() == [False, True, True]
