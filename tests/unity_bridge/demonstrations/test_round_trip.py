"""Round trips: recordings of any behavior are read as they were written."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationFile, DemonstrationWriter
from unity_bridge.specs import (
    PICTURE,
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)


def make_segment(
    spec: BehaviorSpec, steps: int, *, end: str = "terminated", pictures: str = "bytes"
) -> DemonstratedSegment:
    """Random steps of a behavior."""
    rng = np.random.default_rng(steps)

    def seen(sensor: ObservationSpec, rows: int) -> Any:
        shape = (rows, *sensor.shape)
        if len(sensor.shape) == 3 and pictures == "bytes":
            return rng.integers(0, 256, shape).astype(np.uint8)
        return rng.normal(size=shape).astype(np.float32)

    continuous, branches = spec.action_spec.continuous_size, spec.action_spec.discrete_branches
    return DemonstratedSegment(
        observations=tuple(seen(sensor, steps) for sensor in spec.observation_specs),
        continuous_actions=rng.uniform(-1, 1, (steps, continuous)).astype(np.float32),
        discrete_actions=rng.integers(0, np.array(branches, np.int64), (steps, len(branches))),
        rewards=rng.normal(size=steps).astype(np.float32),
        group_rewards=rng.normal(size=steps).astype(np.float32),
        final_observations=tuple(seen(sensor, 1) for sensor in spec.observation_specs),
        terminated=end == "terminated",
        truncated=end == "truncated",
        starts_episode=True,
    )


def test_segments_of_a_recording_make_the_same_recording(tmp_path: Path) -> None:
    sensors = (ObservationSpec("speed", (4,)), ObservationSpec("eye", (3, 5, 6), PICTURE))
    rich = BehaviorSpec(sensors, ActionSpec(2, (3, 200)))

    def write(name: str, segments: Any) -> Path:
        with DemonstrationWriter(tmp_path / name, "Ball", rich, name="same") as writer:
            for segment in segments:
                writer.write(segment)
        return tmp_path / name

    first = write("a.demo", [make_segment(rich, 30), make_segment(rich, 8, end="cut"), make_segment(rich, 9)])
    for longest in (1, 4, 100):
        assert write("b.demo", DemonstrationFile(first).segments(longest)).read_bytes() == first.read_bytes()


def sensors() -> st.SearchStrategy[ObservationSpec]:
    size = st.integers(1, 4)
    kinds = st.sampled_from(ObservationType)
    none, entities = DimensionProperty.NONE, (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
    return st.one_of(
        st.builds(ObservationSpec, st.just("v"), st.tuples(size), st.just((none,)), kinds),
        st.builds(ObservationSpec, st.just("e"), st.tuples(size, size), st.just(entities), kinds),
        st.builds(ObservationSpec, st.just("p"), st.tuples(size, size, size), st.just(PICTURE), kinds),
    )


specs = st.builds(
    BehaviorSpec,
    st.lists(sensors(), min_size=1, max_size=3).map(tuple),
    st.builds(ActionSpec, st.integers(0, 3), st.lists(st.integers(1, 150), max_size=3).map(tuple)).filter(
        lambda actions: actions.continuous_size or actions.discrete_size
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spec=specs,
    episodes=st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from(["terminated", "truncated", "cut"])),
        min_size=1,
        max_size=5,
    ),
    pictures=st.sampled_from(["bytes", "floats"]),
)
def test_any_behavior_and_any_episodes(tmp_path: Path, spec: Any, episodes: Any, pictures: str) -> None:
    segments = [make_segment(spec, steps, end=end, pictures=pictures) for steps, end in episodes]
    with DemonstrationWriter(tmp_path / "x.demo", "Any", spec) as writer:
        for segment in segments:
            writer.write(segment)
    file = DemonstrationFile(tmp_path / "x.demo")
    assert file.spec == spec
    for got, written in zip(file.segments(), segments, strict=True):
        for field in dataclasses.fields(DemonstratedSegment):
            one, other = getattr(got, field.name), getattr(written, field.name)
            for seen, wanted in zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]:
                np.testing.assert_array_equal(seen, wanted, err_msg=field.name, strict=True)
