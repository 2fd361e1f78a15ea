"""The file of a behavior's replay buffer: plain arrays, beside its checkpoint."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from trainer_service.errors import UserError
from trainer_service.runs.archive import open_plain
from trainer_service.runs.files import write_atomic_by
from trainer_service.runs.lent_rows import LentRows

_STEP, _CHECKPOINT = "saved.step", "saved.checkpoint"
"""Names of the stamp's numbers among the arrays."""
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
    """``archive_digest`` of the checkpoint that was saved with it."""


def save_replay_file(
    arrays: Mapping[str, NDArray[Any]], path: Path, stamp: ReplayStamp | None = None
) -> None:
    """Replaces the file of a replay buffer alone, without its checkpoint. Raises SaveError."""
    write_atomic_by(path, partial(write_replay, arrays, stamp))


def write_replay(arrays: Mapping[str, NDArray[Any]], stamp: ReplayStamp | None, file: BinaryIO) -> None:
    """Writes the arrays as ``np.savez`` does, one after the other: no second copy of them in memory."""
    said = {} if stamp is None else {_STEP: stamp.step, _CHECKPOINT: stamp.checkpoint}
    numbers = {name: np.array(number, np.int64) for name, number in said.items()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {**arrays, **numbers}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                _write_array(array, part)


def _write_array(array: NDArray[Any], part: IO[bytes]) -> None:
    if not isinstance(array, LentRows) or array.loan is None:
        np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)
        return
    header = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    np.lib.format.write_array_header_1_0(part, header)
    for chunk in array.chunks():
        part.write(chunk.reshape(-1).view(np.uint8).data)


def held(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays that can be written while their owner goes on: lent rows as they are, copies of all others."""
    return {
        name: array if isinstance(array, LentRows) and array.loan is not None else np.array(array)
        for name, array in arrays.items()
    }


def load_replay_file(path: Path, into: Callable[[Mapping[str, NDArray[Any]]], None]) -> ReplayStamp | None:
    """Passes the arrays to ``into``, each read when it is accessed. Executes nothing of the file.

    Returns when it was saved; None where an earlier version did not write that down.

    Raises:
        UserError: the file is damaged, or holds something else than ``into`` expects.
    """
    try:
        # Opened here, for numpy forgets to close what turns out to be damaged.
        with path.open("rb") as file:
            _require_true_sizes(file)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                into(arrays)
                return ReplayStamp(int(arrays[_STEP]), int(arrays[_CHECKPOINT])) if _STEP in arrays else None
    except _DAMAGED as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise UserError(
            f"replay buffer '{path}' cannot be used: {reason}. Remove it to go on with an empty one"
        ) from None


def _require_true_sizes(file: BinaryIO) -> None:
    """Raises ValueError where an array claims more numbers than there are: numpy makes room before it reads."""
    with open_plain(file) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as part:
                shape, _, dtype = _HEADERS[np.lib.format.read_magic(part)](part)
                if dtype.hasobject:
                    raise ValueError(f"'{entry.filename}' holds Python objects, which are never unpickled")
                if math.prod(shape) * dtype.itemsize != entry.file_size - part.tell():
                    raise ValueError(f"'{entry.filename}' claims to be {shape} of {dtype}, which it is not")
