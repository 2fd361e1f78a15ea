"""Pictures that come as bytes stay bytes on their way to the minibatch, and are never misread on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ticking import Driver, tick

from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import Observation

SPEC = BehaviorSpec((ObservationSpec("eye", (1, 2, 2)),), ActionSpec(1, (3,)))
BYTES, FLOATS = np.uint8, np.float32


def picture(brightness: float, dtype: Any) -> Observation:
    """One grey picture; brightness in fifths, so that both kinds can say it exactly."""
    value = round(brightness * 255) if dtype == BYTES else brightness
    return np.full((1, 1, 2, 2), value, dtype)


@pytest.mark.parametrize("length", [3, 200])
def test_bytes_stay_bytes(length: int) -> None:
    drive = Driver(spec=SPEC)
    for step in range(length):
        drive(tick([7], np.full((1, 1, 2, 2), step, BYTES)))
    observed = drive(tick([7], np.full((1, 1, 2, 2), 255, BYTES), terminated=1))
    assert observed.trajectories is not None
    (seen,) = observed.trajectories.observations
    assert seen.dtype == BYTES
    np.testing.assert_array_equal(seen[:, 0, 1, 1], np.arange(length))
    (final,) = observed.trajectories.final_observations
    assert final.dtype == BYTES


@pytest.mark.parametrize("kinds", [(BYTES, FLOATS, BYTES), (FLOATS, BYTES, BYTES), (BYTES, BYTES, FLOATS)])
def test_a_sensor_that_changes_its_mind_is_read_as_floats(kinds: tuple[Any, ...]) -> None:
    drive = Driver(spec=SPEC)
    for step, kind in enumerate(kinds):
        drive(tick([7], picture(step / 5, kind)))
    observed = drive(tick([7], picture(1.0, BYTES), terminated=1))
    assert observed.trajectories is not None
    (seen,) = observed.trajectories.observations
    assert seen.dtype == FLOATS
    np.testing.assert_allclose(seen[:, 0, 0, 0], [0.0, 0.2, 0.4], rtol=1e-6)
