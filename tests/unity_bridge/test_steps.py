from __future__ import annotations

import numpy as np

from unity_bridge.steps import as_floats, join_observations

BYTES = np.array([[0, 51], [255, 102]], np.uint8)
FLOATS = np.array([[0.25, 0.75]], np.float32)


def test_bytes_stand_for_parts_of_255() -> None:
    np.testing.assert_allclose(as_floats(BYTES), [[0.0, 0.2], [1.0, 0.4]], rtol=1e-6)
    assert as_floats(BYTES).dtype == np.float32


def test_floats_are_not_copied() -> None:
    assert as_floats(FLOATS) is FLOATS


def test_bytes_joined_with_bytes_stay_bytes() -> None:
    joined = join_observations([BYTES, BYTES[:1]])
    assert joined.dtype == np.uint8
    np.testing.assert_array_equal(joined, [[0, 51], [255, 102], [0, 51]])


def test_bytes_joined_with_floats_become_what_they_stand_for() -> None:
    joined = join_observations([BYTES, FLOATS])
    assert joined.dtype == np.float32
    np.testing.assert_allclose(joined, [[0.0, 0.2], [1.0, 0.4], [0.25, 0.75]], rtol=1e-6)
