"""Round trips: recordings of any behavior are read as they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unity_bridge.demonstrations import DemonstrationFile, DemonstrationWriter
from unity_bridge.specs import (
    PICTURE,
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)


@pytest.mark.parametrize("pictures", ["bytes", "floats"])
def test_every_kind_of_sensor_and_action(
    tmp_path: Path, rich: BehaviorSpec, make_segment: Any, require_equal: Any, pictures: str
) -> None:
    segments = [
        make_segment(rich, 5, pictures=pictures),
        make_segment(rich, 40, end="truncated", pictures=pictures),
        make_segment(rich, 1, end="cut", pictures=pictures),
        make_segment(rich, 3, pictures=pictures),
    ]
    with DemonstrationWriter(tmp_path / "x.demo", "Ball?team=1", rich, name="x") as writer:
        for segment in segments:
            writer.write(segment)
    file = DemonstrationFile(tmp_path / "x.demo")
    assert (file.behavior_name, file.spec, file.is_shifted) == ("Ball", rich, True)
    assert (file.num_rows, file.meta.number_steps, file.meta.number_episodes) == (53, 53, 4)
    total = sum(float(segment.rewards.sum(dtype=float)) for segment in segments)
    assert file.meta.mean_reward == pytest.approx(total / 4, rel=1e-5)
    require_equal(list(file.segments()), segments)


def test_segments_of_a_recording_make_the_same_recording(
    tmp_path: Path, rich: BehaviorSpec, make_segment: Any
) -> None:
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
def test_any_behavior_and_any_episodes(
    tmp_path: Path, make_segment: Any, require_equal: Any, spec: Any, episodes: Any, pictures: str
) -> None:
    segments = [make_segment(spec, steps, end=end, pictures=pictures) for steps, end in episodes]
    with DemonstrationWriter(tmp_path / "x.demo", "Any", spec) as writer:
        for segment in segments:
            writer.write(segment)
    file = DemonstrationFile(tmp_path / "x.demo")
    assert file.spec == spec
    require_equal(list(file.segments()), segments)
