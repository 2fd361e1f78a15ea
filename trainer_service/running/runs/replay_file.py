"""The files of a behavior's replay buffer: plain arrays, beside its checkpoint.

``replay.npz`` holds what changes everywhere, says when it was saved, and names the files of rows. Each of those holds a
block of rows, and is never changed: a save writes the blocks that changed under new names, then replaces
``replay.npz``, then removes files that it names no more.
"""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.errors import UserError
from trainer_service.learning.replay.lent_rows import Block, LentRows, Loan
from trainer_service.running.runs.archive import open_plain
from trainer_service.running.runs.files import Replacement
from trainer_service.running.runs.layout import replay_rows, replay_rows_numbers
from unity_bridge.untrusted_text import first_line

Arrays = Mapping[str, NDArray[Any]]
Layout = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Type, and shape of a row, of each column."""

_STEP, _CHECKPOINT, _ROWS = "saved.step", "saved.checkpoint", "saved.rows."
"""Names of the stamp's numbers among the arrays, and what begins those of the lists of files of rows of each kind."""
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_DAMAGED = (
    OSError, EOFError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, MemoryError, RuntimeError,
    zipfile.BadZipFile,
)  # fmt: skip
"""Exceptions of reading a file that is not what it claims to be, and of loading its arrays."""


@dataclass(frozen=True, slots=True)
class ReplayStamp:
    """The moment at which a replay buffer was saved."""

    step: int
    """Agent steps of its behavior."""
    checkpoint: int
    """``checkpoint_digest`` of the checkpoint that was saved with it."""


class _RowsFile(NamedTuple):
    """A file of rows, as ``replay.npz`` lists it."""

    first: int
    end: int
    number: int
    """Number of the save that wrote it."""
    size: int
    """Bytes."""
    checksum: int

    def path(self, replay: Path, kind: str) -> Path:
        """Its path."""
        return replay_rows(replay, self.number, kind, self.first)


@dataclass(frozen=True, slots=True, eq=False)
class _Saved:
    """The rows of a kind that are on the disk."""

    files: tuple[_RowsFile, ...]
    layout: Layout
    written: int = 0
    """``Loan.written`` then."""


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Rows of a kind that are to be saved."""

    loan: Loan
    kept: Mapping[Block, _RowsFile]
    """Blocks that are on the disk as they are."""

    @property
    def changed(self) -> list[Block]:
        """All other blocks."""
        return [block for block in self.loan.blocks if block not in self.kept]


ReplaySave = Callable[[Replacement, ReplayStamp], None]
"""Writes a replay buffer in the state at the time of ``hold``. Raises SaveError."""


class ReplayFile:
    """The saved replay buffer of a behavior. It tracks the saved blocks, and writes only blocks that changed since."""

    def __init__(self, path: Path) -> None:
        """path: of ``replay.npz``, which need not be there."""
        self.path = path
        self._saved: Mapping[str, _Saved] = {}

    def hold(self, arrays: Arrays) -> ReplaySave:
        """Prepares to write the current state of arrays while their owner continues. Rows are lent, the rest is copied.

        An earlier state that is not written by then is never written.
        """
        loans = {loan.kind: loan for loan in map(_loan_of, arrays.values()) if loan is not None}
        others = {name: np.array(array) for name, array in arrays.items() if _loan_of(array) is None}
        held = [_Held(loan, self._unchanged(loan)) for loan in loans.values()]
        for each in held:
            each.loan.lend(each.changed)
        return partial(self._write, others, held)

    def _unchanged(self, loan: Loan) -> dict[Block, _RowsFile]:
        """The files of blocks that did not change since they were saved."""
        saved = self._saved.get(loan.kind)
        if saved is None or saved.layout != loan.layout:
            return {}
        files = {Block(file.first, file.end): file for file in saved.files}
        unchanged = set(loan.blocks) - set(loan.changed_since(saved.written))
        return {block: file for block, file in files.items() if block in unchanged}

    def _write(self, others: Arrays, held: list[_Held], files: Replacement, stamp: ReplayStamp) -> None:
        # The step, unless a file has a later one: none is written over, for the present replay.npz may name it.
        later = [number + 1 for number in replay_rows_numbers(self.path).values()]
        number = max([stamp.step, *later])
        saved = {each.loan.kind: self._write_rows(each, number, files) for each in held}
        said: dict[str, Any] = {_ROWS + kind: rows.files for kind, rows in saved.items()}
        said |= {_STEP: stamp.step, _CHECKPOINT: stamp.checkpoint}
        numbers = {name: np.array(number, np.int64) for name, number in said.items()}
        files.write(self.path, partial(_write_arrays, {**others, **numbers}))
        files.then(partial(self._settle, saved))

    def _write_rows(self, held: _Held, number: int, files: Replacement) -> _Saved:
        loan, listed = held.loan, list(held.kept.values())
        for block in held.changed:
            path = replay_rows(self.path, number, loan.kind, block.first)
            temporary = files.write(path, partial(_write_arrays, loan.take(block)))
            with temporary.open("rb") as file:
                _, checksum = _checked(file)
            listed.append(_RowsFile(*block, number, temporary.stat().st_size, checksum))
        return _Saved(tuple(sorted(listed)), loan.layout, loan.written)

    def _settle(self, saved: Mapping[str, _Saved]) -> None:
        """Records the rows on the disk, and removes files of rows that are no longer needed."""
        self._saved = saved
        named = {file.path(self.path, kind) for kind, rows in saved.items() for file in rows.files}
        for path in replay_rows_numbers(self.path).keys() - named:
            with contextlib.suppress(OSError):  # the next save tries again
                path.unlink()

    def load(self, into: Callable[[Arrays], None]) -> ReplayStamp:
        """Passes the arrays to ``into``, each read when it is accessed. Executes no code of the files.

        ``into`` must load the arrays into the replay buffer, because the next save writes only changes to them.
        Returns the stamp of the save.

        Raises:
            UserError: a file is damaged or missing, or holds something else than ``into`` expects.
        """
        try:
            # Opened here, for numpy forgets to close what turns out to be damaged.
            with self.path.open("rb") as file:
                _checked(file)
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    kinds = [name.removeprefix(_ROWS) for name in arrays if name.startswith(_ROWS)]
                    saved = {kind: self._saved_rows(kind, arrays[_ROWS + kind]) for kind in kinds}
                    into(_SavedArrays(self.path, arrays, saved))
                    stamp = _stamp_among(arrays)
        except _DAMAGED as error:
            raise UserError(
                f"replay buffer '{self.path}' cannot be used: {first_line(error)}. Remove it to continue with an empty "
                "one"
            ) from None
        self._saved = saved
        return stamp

    def _saved_rows(self, kind: str, listed: NDArray[Any]) -> _Saved:
        """The files of rows that a list names. Raises ValueError where one is not what the list says."""
        if listed.dtype != np.int64 or not listed.size or listed.shape[1:] != (len(_RowsFile._fields),):
            raise ValueError(f"'{_ROWS}{kind}' is no list of files")
        files = tuple(map(_RowsFile._make, listed.tolist()))
        layouts = []
        for file, end in zip(files, [0, *(file.end for file in files)], strict=False):
            path = file.path(self.path, kind)
            with _named(path):
                if not end == file.first < file.end:
                    raise ValueError(f"rows {file.first} to {file.end} do not follow on {end}")
                layouts.append(_layout_of(file, path))
                if layouts[-1] != layouts[0]:
                    raise ValueError("it has other columns than the files before it")
        return _Saved(files, layouts[0])


class _SavedArrays(Mapping[str, NDArray[Any]]):
    """Arrays of ``replay.npz``, and columns that are put together from files of rows, each read when accessed."""

    def __init__(self, path: Path, whole: Arrays, saved: Mapping[str, _Saved]) -> None:
        self._path = path
        self._whole = whole
        self._columns = {name: (kind, rows) for kind, rows in saved.items() for name in rows.layout}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._columns:
            return self._whole[name]
        kind, rows = self._columns[name]
        dtype, shape = rows.layout[name]
        column = np.empty((rows.files[-1].end, *shape), dtype)
        for file in rows.files:
            path = file.path(self._path, kind)
            with _named(path), path.open("rb") as content, np.load(content, allow_pickle=False) as arrays:
                column[file.first : file.end] = arrays[name]
        return column

    def __iter__(self) -> Iterator[str]:
        return iter({**dict.fromkeys(self._whole), **self._columns})

    def __len__(self) -> int:
        return len(list(iter(self)))


def read_stamp(path: Path) -> ReplayStamp | None:
    """When a replay buffer was saved; None where its file does not say that or is damaged."""
    try:
        with path.open("rb") as file:
            _checked(file)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return _stamp_among(arrays)
    except _DAMAGED:
        return None


def _stamp_among(arrays: Arrays) -> ReplayStamp:
    return ReplayStamp(int(arrays[_STEP]), int(arrays[_CHECKPOINT]))


def _loan_of(array: NDArray[Any]) -> Loan | None:
    """The loan through which an array is read; None where it is copied, as what has no rows is."""
    return array.loan if isinstance(array, LentRows) and len(array) else None


def _write_arrays(arrays: Arrays, file: BinaryIO) -> None:
    """Writes the arrays as ``np.savez`` does, one after the other."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                _write_array(array, part)


def _write_array(array: NDArray[Any], part: IO[bytes]) -> None:
    """Does what ``np.lib.format.write_array`` does, which copies, and keeps other threads waiting for that."""
    if array.dtype.hasobject:
        raise ValueError("Python objects are never pickled")
    header = np.lib.format.header_data_from_array_1_0(np.ascontiguousarray(array))
    np.lib.format.write_array_header_1_0(part, {**header, "shape": array.shape})
    part.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _checked(file: BinaryIO) -> tuple[dict[str, tuple[np.dtype[Any], tuple[int, ...]]], int]:
    """Type and shape of each array in a file, and a checksum of all: made of those of its parts, which are not read.

    Raises ValueError where an array claims more numbers than there are: numpy makes room before it reads.
    """
    found, sums = {}, []
    with open_plain(file) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as part:
                shape, _, dtype = _HEADERS[np.lib.format.read_magic(part)](part)
                if dtype.hasobject:
                    raise ValueError(f"'{entry.filename}' holds Python objects, which are never unpickled")
                if math.prod(shape) * dtype.itemsize != entry.file_size - part.tell():
                    raise ValueError(f"'{entry.filename}' claims to be {shape} of {dtype}, which it is not")
            found[entry.filename.removesuffix(".npy")] = dtype, shape
            sums.append((entry.filename, entry.CRC, entry.file_size))
    return found, zlib.crc32(repr(sums).encode())


def _layout_of(listed: _RowsFile, path: Path) -> Layout:
    """The columns in a file of rows. Raises OSError or ValueError where it is not what the list says."""
    if (size := path.stat().st_size) != listed.size:
        raise ValueError(f"it has {size} bytes, {listed.size} were written")
    with path.open("rb") as file:
        found, checksum = _checked(file)
    if checksum != listed.checksum:
        raise ValueError("it is not what was written (checksum)")
    if any(shape[:1] != (listed.end - listed.first,) for _, shape in found.values()):
        raise ValueError(f"it does not hold {listed.end - listed.first} rows")
    return {name: (dtype, shape[1:]) for name, (dtype, shape) in found.items()}


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns errors of reading a file of rows into a ValueError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"'{path.name}' is missing") from None
    except _DAMAGED as error:
        raise ValueError(f"'{path.name}': {first_line(error)}") from None
