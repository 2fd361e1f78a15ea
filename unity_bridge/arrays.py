"""Type names of the arrays that all modules pass around, and memory for large arrays."""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AnyFloats = NDArray[np.floating[Any]]

Rows = Integers
"""Numbers of rows of preallocated arrays."""

_SMALLEST = 1 << 22
"""Bytes of an array from which on NumPy asks the system for huge pages."""


def sparse_array(shape: tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
    """Returns an array that takes memory only where it is written, in small pages; its values are undefined.

    With ``np.empty`` a single number may take a huge page of 2 MiB on Linux, and the time to fill it with zeros.
    """
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size < _SMALLEST or sys.platform != "linux":
        return np.empty(shape, kind)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {size} bytes") from error
    with contextlib.suppress(OSError):  # of a system without huge pages
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, kind).reshape(shape)
