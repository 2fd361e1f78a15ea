"""Recordings that were changed: read, or refused as recordings are."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from fuzzing import DICE, MIB, examples, peak_memory
from hypothesis import given
from mutations import mutated_bytes, require_fit_to_print

from unity_bridge.demonstrations import (
    DemonstratedSegment,
    DemonstrationError,
    DemonstrationFile,
    DemonstrationWriter,
)
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("body", (3,)),), ActionSpec(2, (3,)))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "expert.demo"
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    with DemonstrationWriter(path, "Shown", SPEC) as writer:
        for _ in range(3):
            writer.write(
                DemonstratedSegment(
                    observations=(rows[:3],),
                    continuous_actions=np.zeros((3, 2), np.float32),
                    discrete_actions=np.zeros((3, 1), np.int64),
                    rewards=np.ones(3, np.float32),
                    group_rewards=np.zeros(3, np.float32),
                    final_observations=(rows[3:],),
                    terminated=True,
                    truncated=False,
                    starts_episode=True,
                )
            )
    assert sum(segment.rewards.sum() for segment in DemonstrationFile(path).segments()) == 9
    return path


@examples(400)
@given(dice=DICE)
def test_a_recording_that_was_changed(recording: Path, dice: random.Random) -> None:
    path = recording.with_name("changed.demo")
    path.write_bytes(mutated_bytes(dice, recording.read_bytes()))
    before = peak_memory()
    try:
        for segment in DemonstrationFile(path).segments():
            assert np.isfinite(segment.rewards).all()
    except DemonstrationError as error:
        require_fit_to_print(str(error))
    assert peak_memory() - before < 64 * MIB
