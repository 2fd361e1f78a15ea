"""The state of a ring that goes on while it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trainer_service.replay.ring import Ring
from trainer_service.runs.lent_rows import LentRows


def ring(capacity: int) -> Ring:
    steps = {"segment": np.empty(2, np.int64), "seen": np.empty((2, 3), np.float32)}
    return Ring(capacity, steps, {"terminated": np.empty(2, np.bool_)})


def add(buffer: Ring, number: int, rows: int, dtype: type = np.float32) -> None:
    steps: dict[str, Any] = {"segment": np.full(rows, number), "seen": np.full((rows, 3), number, dtype)}
    buffer._append(steps, {"terminated": np.array([True])})


def read(state: dict[str, Any]) -> dict[str, list[Any]]:
    return {
        name: (np.concatenate(list(array.chunks())) if isinstance(array, LentRows) else array).tolist()
        for name, array in state.items()
    }


@pytest.mark.parametrize("more", [1, 4, 11], ids=["some", "all", "more than once"])
@pytest.mark.parametrize("filled", [2, 5], ids=["growing", "full"])
def test_what_is_added_later_is_not_in_a_state(filled: int, more: int) -> None:
    buffer, same = ring(8), ring(8)
    for number in range(filled):
        for each in (buffer, same):
            add(each, number, rows=2)
    state, expected = buffer.state(), read(same.state())
    for number in range(more):
        add(buffer, filled + number, rows=2)
    assert read(state) == expected
    assert read(buffer.state()) != expected


def test_a_column_that_changes_its_type_keeps_what_it_was() -> None:
    buffer = ring(4)
    add(buffer, 0, rows=4, dtype=np.uint8)
    state = buffer.state()
    expected = np.array(state["steps.seen"])
    add(buffer, 1, rows=2, dtype=np.float32)
    assert buffer.state()["steps.seen"].dtype == np.float32
    assert np.array_equal(np.concatenate(list(state["steps.seen"].chunks())), expected)  # type: ignore[attr-defined]


def test_nothing_is_kept_aside_for_a_state_nobody_has() -> None:
    buffer = ring(4)
    add(buffer, 0, rows=4)
    state = buffer.state()
    assert buffer._loan is not None
    assert buffer._loan() is not None
    del state
    assert buffer._loan() is None
