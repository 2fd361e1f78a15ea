"""The state of a ring that goes on while it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trainer_service.learning.replay import lent_rows
from trainer_service.learning.replay.lent_rows import Loan
from trainer_service.learning.replay.ring import Ring


def ring(capacity: int) -> Ring:
    steps = {"segment": np.empty(2, np.int64), "seen": np.empty((2, 3), np.float32)}
    return Ring(capacity, steps, {"terminated": np.empty(2, np.bool_)})


def add(buffer: Ring, number: int, rows: int, dtype: type = np.float32) -> None:
    steps: dict[str, Any] = {"segment": np.full(rows, number), "seen": np.full((rows, 3), number, dtype)}
    buffer._append(steps, {"terminated": np.array([True])})


def lend(buffer: Ring) -> dict[str, Any]:
    """The state of a buffer, with all of its rows lent."""
    state = buffer.state()
    for loan in loans_of(state).values():
        loan.lend(loan.blocks)
    return state


def loans_of(state: dict[str, Any]) -> dict[str, Loan]:
    loans = {name: getattr(array, "loan", None) for name, array in state.items()}
    return {loan.kind: loan for loan in loans.values() if loan is not None}


def read(state: dict[str, Any]) -> dict[str, list[Any]]:
    rows: dict[str, np.ndarray] = {}
    for loan in loans_of(state).values():
        blocks = [loan.take(block) for block in loan.blocks]
        rows |= {name: np.concatenate([block[name] for block in blocks]) for name in loan.layout}
    return {name: rows.get(name, array).tolist() for name, array in state.items()}


@pytest.fixture(autouse=True, params=[1, 3], ids="{} rows a block".format)
def rows_of_a_block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent_rows, "BLOCK_BYTES", request.param * 20)


@pytest.mark.parametrize("more", [1, 4, 11], ids=["some", "all", "more than once"])
@pytest.mark.parametrize("filled", [2, 5], ids=["growing", "full"])
def test_what_is_added_later_is_not_in_a_state(filled: int, more: int) -> None:
    buffer, same = ring(8), ring(8)
    for number in range(filled):
        for each in (buffer, same):
            add(each, number, rows=2)
    state, expected = lend(buffer), read(lend(same))
    for number in range(more):
        add(buffer, filled + number, rows=2)
    assert read(state) == expected
    assert read(lend(buffer)) != expected


def test_a_column_that_changes_its_type_keeps_what_it_was() -> None:
    buffer = ring(4)
    add(buffer, 0, rows=4, dtype=np.uint8)
    state = lend(buffer)
    expected = state["steps.seen"].tolist()
    add(buffer, 1, rows=2, dtype=np.float32)
    assert buffer.state()["steps.seen"].dtype == np.float32
    assert read(state)["steps.seen"] == expected


def test_nothing_is_kept_aside_for_a_state_nobody_has() -> None:
    buffer = ring(4)
    add(buffer, 0, rows=4)
    state = buffer.state()
    assert all(loan() is not None for loan in buffer._loans.values())
    del state
    assert all(loan() is None for loan in buffer._loans.values())


@pytest.mark.parametrize("before", [0, 3, 8, 13], ids="{} rows before".format)
@pytest.mark.parametrize("more", [0, 1, 3, 8, 20], ids="{} more".format)
def test_blocks_with_newer_rows_and_no_others_have_changed(before: int, more: int) -> None:
    buffer = ring(8)
    for number in range(before):
        add(buffer, number, rows=1)
    written = loan_of(buffer).written
    for number in range(before, before + more):
        add(buffer, number, rows=1)
    loan, numbers = loan_of(buffer), buffer.state()["steps.segment"]
    newer = [block for block in loan.blocks if max(numbers[slice(*block)]) >= before]
    assert loan.changed_since(written) == newer


def loan_of(buffer: Ring) -> Loan:
    return loans_of(buffer.state())["steps"]


@pytest.mark.parametrize(("capacity", "changed"), [(8, False), (6, True), (9, True)])
def test_a_ring_of_the_same_capacity_is_loaded_without_a_change(capacity: int, changed: bool) -> None:
    saved, loaded = ring(8), ring(capacity)
    for number in range(11):
        add(saved, number, rows=1)
    loaded.load_state(saved.state())
    loan = loan_of(loaded)
    assert loan.changed_since(0) == (loan.blocks if changed else [])


@pytest.mark.parametrize(
    "changes",
    [
        {"final_slots": np.array(2**50)},
        {"final_slots": np.array(0)},
        {"final_slots": np.array(11)},
        {"counters": np.array([8, 3, 2**50])},
        {"steps.segment": np.full(8, -(2**60))},
        {"finals.terminated": np.zeros(12, np.bool_)},
    ],
    ids=lambda changes: f"{next(iter(changes))} {np.max(next(iter(changes.values())))}",
)
def test_ends_of_trajectories_that_are_not_there_are_refused(changes: dict[str, Any]) -> None:
    saved = ring(8)
    for number in range(11):
        add(saved, number, rows=1)
    assert saved.state()["final_slots"] == 8
    with pytest.raises(ValueError, match="trajectories"):
        ring(8).load_state({**saved.state(), **changes})
    ring(8).load_state(saved.state())


@pytest.mark.parametrize("counters", [[7, 3, 11], [8, 8, 11], [8, -1, 11]], ids=["rows", "head", "negative"])
def test_rows_that_do_not_fit_a_ring_are_refused(counters: list[int]) -> None:
    saved = ring(8)
    for number in range(11):
        add(saved, number, rows=1)
    with pytest.raises(ValueError, match=f"8 rows, the next at {counters[1]}, in a buffer of {counters[0]}"):
        ring(8).load_state({**saved.state(), "counters": np.array(counters)})
