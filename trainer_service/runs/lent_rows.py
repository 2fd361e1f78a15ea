"""Rows of arrays that are read by one thread, as they were when they were lent, while another overwrites them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Rows

_CHUNK_BYTES = 2**20


class LentRows(np.ndarray[Any, np.dtype[Any]]):
    """The first rows of an array, not copied. ``chunks`` gives them as they were when they were lent."""

    loan: Loan | None = None
    """The loan that it belongs to; None for what was computed from such an array."""
    column = ""
    """Its name in the loan."""

    def chunks(self) -> Iterator[NDArray[Any]]:
        """Yields copies of its rows, in order, a megabyte at a time."""
        if self.loan is None:
            raise ValueError("these rows are not lent")
        return self.loan.chunks(self.column, len(self))


class Loan:
    """Columns whose first rows are read while they go on being used: what is overwritten meanwhile is kept aside."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], size: int) -> None:
        """size: the number of rows that are lent."""
        self._columns = dict(columns)
        self._size = size
        self._kept: list[tuple[Rows, dict[str, NDArray[Any]]]] = []
        """Rows that were overwritten, and what stood there, in the order of time."""
        self._lock = Lock()

    def rows(self, name: str) -> LentRows:
        """The rows of a column."""
        lent = self._columns[name][: self._size].view(LentRows)
        lent.loan, lent.column = self, name
        return lent

    def overwrite(self, rows: Rows, write: Callable[[], None]) -> None:
        """Keeps what stands in these rows aside, and writes."""
        rows = rows[rows < self._size]
        with self._lock:
            if len(rows):
                self._kept.append((rows, {name: column[rows] for name, column in self._columns.items()}))
            write()

    def chunks(self, name: str, size: int) -> Iterator[NDArray[Any]]:
        """Yields copies of the rows of a column as they were lent."""
        column = self._columns[name]
        step = max(1, _CHUNK_BYTES // max(1, column.itemsize * math.prod(column.shape[1:])))
        for start in range(0, size, step):
            stop = min(start + step, size)
            with self._lock:
                chunk = column[start:stop].copy()
                kept = len(self._kept)
            # What was kept first is the oldest, so it comes last. Entries are never changed, and later ones are of
            # rows that were copied before they were overwritten.
            for rows, values in reversed(self._kept[:kept]):
                inside = (rows >= start) & (rows < stop)
                chunk[rows[inside] - start] = values[name][inside]
            yield chunk
