"""Rows of arrays that are read by one thread, as they were when they were lent, while another overwrites them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Rows

BLOCK_BYTES = 2**25
"""Bytes of a block of rows, which is copied at once and written into one file."""


class Block(NamedTuple):
    """Consecutive rows, which are copied and saved together."""

    first: int
    end: int


class LentRows(np.ndarray[Any, np.dtype[Any]]):
    """The first rows of a column, not copied, with the loan through which they can be read later."""

    loan: Loan | None = None
    """The loan that the array belongs to; None for arrays computed from such an array."""


class Loan:
    """Columns of a ring buffer in use, of which another thread reads rows. It keeps copies of overwritten blocks.

    It keeps nothing before ``lend`` names the blocks to read.
    """

    def __init__(
        self,
        kind: str,
        columns: Mapping[str, NDArray[Any]],
        size: int,
        *,
        head: int,
        capacity: int,
        written: int,
    ) -> None:
        """kind: the kind of rows, a word that begins the names of the columns in files.

        size: rows that there are. head, capacity: of the ring, which writes its rows in turn. written: how many rows
        were ever written; of two loans of a ring it tells what was written in between.
        """
        self.kind = kind
        self._columns = {f"{kind}.{name}": column for name, column in columns.items()}
        self._size = size
        self._head, self._capacity = head, capacity
        self.written = written
        self.layout = {name: (column.dtype, column.shape[1:]) for name, column in self._columns.items()}
        """Type and shape of each column's rows."""
        row = sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in self.layout.values())
        self._step = max(1, BLOCK_BYTES // max(1, row))
        self.blocks = [Block(first, min(first + self._step, size)) for first in range(0, size, self._step)]
        """All rows, in order."""
        self._lent = np.zeros(len(self.blocks), np.bool_)
        """Whether a block is still to be read."""
        self._kept: list[tuple[Rows, dict[str, NDArray[Any]]]] = []
        """Rows of such blocks that were overwritten, and what stood there, in the order of time."""
        self._lock = Lock()

    def rows(self) -> dict[str, NDArray[Any]]:
        """The rows of every column, as ``LentRows``."""
        lent = {name: column[: self._size].view(LentRows) for name, column in self._columns.items()}
        for rows in lent.values():
            rows.loan = self
        return {**lent}

    def changed_since(self, written: int) -> list[Block]:
        """Returns the blocks with rows that were written after the first ``written`` rows."""
        return [block for block in self.blocks if self._age(block) < self.written - written]

    def _age(self, block: Block) -> int:
        """The number of rows written after the newest of a block."""
        return 0 if block.first < self._head <= block.end else (self._head - block.end) % self._capacity

    def lend(self, blocks: Iterable[Block]) -> None:
        """Promises that ``take`` gives these blocks as they are now."""
        self._lent[[block.first // self._step for block in blocks]] = True

    def take(self, block: Block) -> dict[str, NDArray[Any]]:
        """A copy of a block that was lent, as it was then. To be called once for each."""
        # Copied without the lock, so that nobody waits for that; what was overwritten meanwhile is put right below.
        copy = {name: column[block.first : block.end].copy() for name, column in self._columns.items()}
        with self._lock:
            self._lent[block.first // self._step] = False
            kept = list(self._kept)
        for rows, values in reversed(kept):  # what was kept first is the oldest, so it comes last
            inside = (rows >= block.first) & (rows < block.end)
            for name, column in copy.items():
                column[rows[inside] - block.first] = values[name][inside]
        return copy

    def overwrite(self, rows: Rows, write: Callable[[], None]) -> None:
        """Keeps what stands in those of these rows that are still to be read aside, and writes."""
        with self._lock:
            rows = rows[rows < self._size]
            rows = rows[self._lent[rows // self._step]]
            if len(rows):
                self._kept.append((rows, {name: column[rows] for name, column in self._columns.items()}))
            write()
