"""Rows that are read while they are overwritten, and the file of a replay buffer that is written so."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trainer_service.runs.lent_rows import LentRows, Loan
from trainer_service.runs.replay_file import held, save_replay_file, write_replay


def whole(rows: LentRows) -> NDArray[Any]:
    return np.concatenate([np.zeros((0, *rows.shape[1:]), rows.dtype), *rows.chunks()])


@pytest.fixture
def columns() -> dict[str, NDArray[Any]]:
    """Rows of about 40 KB and of a byte: a chunk holds 26 of the one and all of the other."""
    return {
        "wide": np.arange(100 * 10_000, dtype=np.float32).reshape(100, 10_000),
        "flag": np.arange(100, dtype=np.uint8),
    }


def put(loan: Loan, columns: dict[str, NDArray[Any]], rows: list[int], value: int) -> None:
    def write() -> None:
        for column in columns.values():
            column[rows] = value

    loan.overwrite(np.array(rows), write)


def test_lent_rows_are_read_as_they_were_lent(columns: dict[str, NDArray[Any]]) -> None:
    before = {name: column.copy() for name, column in columns.items()}
    loan = Loan(columns, 90)
    put(loan, columns, [3, 4, 95], 200)
    put(loan, columns, [4, 89], 201)  # the second time is not the moment either
    for name in columns:
        assert np.array_equal(whole(loan.rows(name)), before[name][:90])
    assert columns["flag"][[3, 4, 89, 95]].tolist() == [200, 201, 201, 200]


def test_rows_overwritten_while_they_are_read_stay_as_lent(columns: dict[str, NDArray[Any]]) -> None:
    before = columns["wide"].copy()
    loan = Loan(columns, 100)
    chunks = []
    for number, chunk in enumerate(loan.rows("wide").chunks()):
        chunks.append(chunk)
        # one that was read, one in the middle of those that are next, and one at the end
        put(loan, columns, [5 * number, 26 * (number + 1) % 100, 99], 7)
    assert len(chunks) == 4
    assert np.array_equal(np.concatenate(chunks), before)


def test_a_file_of_lent_rows_equals_that_of_their_copies(
    tmp_path: Path, columns: dict[str, NDArray[Any]]
) -> None:
    loan = Loan(columns, 60)
    others = {"none": np.zeros((0, 3)), "count": np.array(7)}
    lent = {**{name: loan.rows(name) for name in columns}, **others}
    copied = {name: np.array(array) for name, array in lent.items()}
    keeps = held(lent)
    put(loan, columns, list(range(100)), 1)
    others["count"][()] = 8
    save_replay_file(keeps, tmp_path / "lent.npz")
    save_replay_file(copied, tmp_path / "copied.npz")
    assert (tmp_path / "lent.npz").read_bytes() == (tmp_path / "copied.npz").read_bytes()
    with np.load(tmp_path / "lent.npz") as arrays:
        assert {name: arrays[name].tolist() for name in arrays} == {
            name: array.tolist() for name, array in copied.items()
        }


def test_what_is_computed_of_lent_rows_is_an_ordinary_array(columns: dict[str, NDArray[Any]]) -> None:
    rows = Loan(columns, 50).rows("flag")
    part = rows[3:5]
    assert held({"part": part})["part"].base is None
    with pytest.raises(ValueError, match="not lent"):
        next(part.chunks())


class SmallDisk(io.BytesIO):
    """A file on a disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_disk_that_fills_up_in_a_buffer_is_told_as_such(columns: dict[str, NDArray[Any]]) -> None:
    loan, whole = Loan(columns, 60), io.BytesIO()
    arrays = {name: loan.rows(name) for name in columns}
    write_replay(arrays, None, whole)
    size = len(whole.getvalue())
    for room in (0, 40, 1000, size // 2, size - 300, size - 1):
        with pytest.raises(OSError, match="No space left"):
            write_replay(arrays, None, SmallDisk(room))
    write_replay(arrays, None, SmallDisk(size))
