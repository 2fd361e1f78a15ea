"""Two batches of steps that must be equal to the last bit."""

from __future__ import annotations

import numpy as np

from unity_bridge.steps import StepBatch


def require_equal_batches(batch: StepBatch, expected: StepBatch) -> None:
    """Fails where a column has another type, shape or byte."""
    for name in StepBatch.__slots__:
        ours, theirs = getattr(batch, name), getattr(expected, name)
        for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (ours, theirs)), strict=True):
            if not isinstance(one, np.ndarray):
                assert one == other, name
                continue
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
