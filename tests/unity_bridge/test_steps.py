from __future__ import annotations

import numpy as np

from unity_bridge.simulators.scene import step_batch
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import as_floats, first_allowed, join_observations

BYTES = np.array([[0, 51], [255, 102]], np.uint8)
FLOATS = np.array([[0.25, 0.75]], np.float32)


def test_bytes_stand_for_parts_of_255() -> None:
    np.testing.assert_allclose(as_floats(BYTES), [[0.0, 0.2], [1.0, 0.4]], rtol=1e-6)
    assert as_floats(BYTES).dtype == np.float32


def test_bytes_joined_with_floats_become_what_they_stand_for() -> None:
    joined = join_observations([BYTES, FLOATS])
    assert joined.dtype == np.float32
    np.testing.assert_allclose(joined, [[0.0, 0.2], [1.0, 0.4], [0.25, 0.75]], rtol=1e-6)


def test_without_masks_every_first_choice_is_allowed() -> None:
    batch = step_batch([], np.zeros(2, np.float32), agent_ids=np.arange(2))
    assert first_allowed(batch, ActionSpec(1, (2, 3))).discrete.tolist() == [[0, 0], [0, 0]]
