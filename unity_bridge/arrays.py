"""Names for the arrays that are passed around everywhere, by what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
AnyFloats = NDArray[np.floating[Any]]

Rows = Integers
"""Numbers of rows of preallocated arrays."""
