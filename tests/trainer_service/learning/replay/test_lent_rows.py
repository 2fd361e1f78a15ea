"""Rows that are read while they are overwritten. Which blocks changed is tested with the ring."""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainer_service.learning.replay import lent_rows
from trainer_service.learning.replay.lent_rows import Block, Loan

Columns = dict[str, NDArray[Any]]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> Columns:
    """A hundred rows of 40,001 bytes, of which 26 are a block."""
    monkeypatch.setattr(lent_rows, "BLOCK_BYTES", 26 * 40_001)
    wide = np.arange(100 * 10_000, dtype=np.float32).reshape(100, 10_000)
    return {"wide": wide, "flag": np.arange(100, dtype=np.uint8)}


def lent(columns: Columns, size: int, *blocks: int) -> Loan:
    loan = Loan("steps", columns, size, head=size % 100, capacity=100, written=size)
    loan.lend([loan.blocks[number] for number in blocks])
    return loan


def put(loan: Loan, columns: Columns, rows: list[int], value: int) -> None:
    def write() -> None:
        for column in columns.values():
            column[rows] = value

    loan.overwrite(np.array(rows), write)


def test_rows_are_divided_into_blocks_that_never_move(columns: Columns) -> None:
    assert lent(columns, 90).blocks == [Block(0, 26), Block(26, 52), Block(52, 78), Block(78, 90)]
    assert lent(columns, 52).blocks == [Block(0, 26), Block(26, 52)]
    assert lent(columns, 0).blocks == []


def test_lent_blocks_are_read_as_they_were_lent(columns: Columns) -> None:
    before = {name: column.copy() for name, column in columns.items()}
    loan = lent(columns, 90, 0, 3)
    put(loan, columns, [3, 4, 30, 95], 200)
    put(loan, columns, [4, 89], 201)  # the second time is not the moment either
    for block in (Block(0, 26), Block(78, 90)):
        taken = loan.take(block)
        for name, column in before.items():
            assert np.array_equal(taken[f"steps.{name}"], column[slice(*block)])
    assert columns["flag"][[3, 4, 30, 89, 95]].tolist() == [200, 201, 200, 201, 200]


def test_nobody_takes_a_block_while_its_rows_are_written(columns: Columns) -> None:
    loan = lent(columns, 90, 0)
    reader = Thread(target=loan.take, args=(Block(0, 26),))

    def write() -> None:
        reader.start()
        reader.join(0.2)
        assert reader.is_alive()

    loan.overwrite(np.array([3]), write)
    reader.join()
