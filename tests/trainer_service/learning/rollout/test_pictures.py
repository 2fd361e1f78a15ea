"""Pictures that come as bytes stay bytes on their way to the minibatch, and are never misread on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trainer_service.learning.rollout.assembler import Decisions, Observed, TrajectoryAssembler
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import Observation, StepBatch

SPEC = BehaviorSpec((ObservationSpec("eye", (1, 2, 2)),), ActionSpec(1))
BYTES, FLOATS = np.uint8, np.float32


def picture(brightness: float, dtype: Any) -> Observation:
    """One grey picture; brightness in fifths, so that both kinds can say it exactly."""
    value = round(brightness * 255) if dtype == BYTES else brightness
    return np.full((1, 1, 2, 2), value, dtype)


def tick(eye: Observation, *, terminated: bool = False) -> StepBatch:
    return StepBatch(
        agent_ids=np.array([7]),
        observations=(eye,),
        rewards=np.zeros(1, np.float32),
        terminated=np.array([terminated]),
        truncated=np.zeros(1, np.bool_),
        allowed_actions=np.ones((1, 0), np.bool_),
        group_ids=np.zeros(1, np.int64),
        group_rewards=np.zeros(1, np.float32),
    )


def play(assembler: TrajectoryAssembler, batch: StepBatch) -> Observed:
    observed = assembler.observe(0, 0, batch)
    rows = len(observed.waiting)
    decisions = Decisions(
        continuous_actions=np.zeros((rows, 1), np.float32),
        discrete_actions=np.zeros((rows, 0), np.int64),
        log_probs=np.zeros(rows, np.float32),
        memories=assembler.memories(observed.waiting),
    )
    first = batch.num_terminal
    seen = tuple(sensor[first:] for sensor in batch.observations)
    assembler.acted(observed.waiting, seen, batch.allowed_actions[first:], decisions)
    return observed


@pytest.mark.parametrize("length", [3, 200])
def test_bytes_stay_bytes(length: int) -> None:
    assembler = TrajectoryAssembler(SPEC, horizon=1000)
    for step in range(length):
        play(assembler, tick(np.full((1, 1, 2, 2), step, BYTES)))
    observed = play(assembler, tick(np.full((1, 1, 2, 2), 255, BYTES), terminated=True))
    assert observed.trajectories is not None
    (seen,) = observed.trajectories.observations
    assert seen.dtype == BYTES
    np.testing.assert_array_equal(seen[:, 0, 1, 1], np.arange(length))
    (final,) = observed.trajectories.final_observations
    assert final.dtype == BYTES


@pytest.mark.parametrize("kinds", [(BYTES, FLOATS, BYTES), (FLOATS, BYTES, BYTES), (BYTES, BYTES, FLOATS)])
def test_a_sensor_that_changes_its_mind_is_read_as_floats(kinds: tuple[Any, ...]) -> None:
    assembler = TrajectoryAssembler(SPEC, horizon=1000)
    for step, kind in enumerate(kinds):
        play(assembler, tick(picture(step / 5, kind)))
    observed = play(assembler, tick(picture(1.0, BYTES), terminated=True))
    assert observed.trajectories is not None
    (seen,) = observed.trajectories.observations
    assert seen.dtype == FLOATS
    np.testing.assert_allclose(seen[:, 0, 0, 0], [0.0, 0.2, 0.4], rtol=1e-6)
