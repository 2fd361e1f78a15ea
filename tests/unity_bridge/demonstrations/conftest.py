"""Recordings made by hand, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.demonstrations import DemonstratedSegment
from unity_bridge.specs import ActionSpec, BehaviorSpec, DimensionProperty, ObservationSpec
from unity_bridge.wire.agent_info_action_pair_pb2 import AgentInfoActionPairProto
from unity_bridge.wire.brain_parameters_pb2 import BrainParametersProto
from unity_bridge.wire.demonstration_meta_pb2 import DemonstrationMetaProto

HEADER_SIZE = 33


class Hand:
    """Writes files as the format says, with nothing of ours but the messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def delimited(data: bytes) -> bytes:
        length, head = len(data), b""
        while length > 0x7F:
            head, length = head + bytes([length & 0x7F | 0x80]), length >> 7
        return head + bytes([length]) + data

    @staticmethod
    def row(
        seen: float,
        continuous: Sequence[float] = (),
        discrete: Sequence[int] = (),
        *,
        deprecated: Sequence[float] = (),
        **info: Any,
    ) -> bytes:
        """One sensor of one number, and an action."""
        pair = AgentInfoActionPairProto()
        for name, value in info.items():
            setattr(pair.agent_info, name, value)
        pair.agent_info.observations.add(shape=[1], name="number").float_data.data.append(seen)
        pair.action_info.continuous_actions.extend(continuous)
        pair.action_info.discrete_actions.extend(discrete)
        pair.action_info.vector_actions_deprecated.extend(deprecated)
        return pair.SerializeToString()

    @staticmethod
    def brain(continuous: int = 1, branches: Sequence[int] = ()) -> BrainParametersProto:
        brain = BrainParametersProto(brain_name="Ball?team=0")
        brain.action_spec.num_continuous_actions = continuous
        brain.action_spec.num_discrete_actions = len(branches)
        brain.action_spec.discrete_branch_sizes.extend(branches)
        return brain

    def file(
        self,
        rows: Sequence[bytes],
        *,
        name: str = "expert.demo",
        brain: BrainParametersProto | None = None,
        closed: bool = True,
        copy: bool = True,
        **meta: Any,
    ) -> Path:
        """A file of these rows, finished as today's writer does it unless told otherwise."""
        counts = {"number_steps": len(rows), "number_episodes": 1} if closed else {}
        head = DemonstrationMetaProto(**{"api_version": 1, "demonstration_name": "hand", **counts, **meta})
        data = self.delimited(head.SerializeToString()).ljust(HEADER_SIZE, b"\0")
        data += self.delimited((brain or self.brain()).SerializeToString())
        data += b"".join(map(self.delimited, rows))
        path = self.folder / name
        path.write_bytes(data + (head.SerializeToString() if closed and copy else b""))
        return path


@pytest.fixture
def hand(tmp_path: Path) -> Hand:
    return Hand(tmp_path)


RICH = BehaviorSpec(
    (
        ObservationSpec("speed", (4,), (DimensionProperty.NONE,)),
        ObservationSpec("things", (3, 2), (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)),
        ObservationSpec(
            "eye",
            (3, 5, 6),
            (
                DimensionProperty.NONE,
                DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
                DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
            ),
        ),
    ),
    ActionSpec(2, (3, 200)),
)
"""Sensors and actions of every kind."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.fixture
def rich() -> BehaviorSpec:
    return RICH


@pytest.fixture
def make_segment(rng: np.random.Generator) -> Callable[..., DemonstratedSegment]:
    """Random steps of a behavior; pictures are bytes, or floats if told so."""

    def make(
        spec: BehaviorSpec,
        steps: int,
        *,
        end: str = "terminated",
        starts_episode: bool = True,
        pictures: str = "bytes",
    ) -> DemonstratedSegment:
        def seen(sensor: ObservationSpec, rows: int) -> Any:
            shape = (rows, *sensor.shape)
            if len(sensor.shape) == 3 and pictures == "bytes":
                return rng.integers(0, 256, shape).astype(np.uint8)
            return rng.normal(size=shape).astype(np.float32)

        branches = spec.action_spec.discrete_branches
        return DemonstratedSegment(
            observations=tuple(seen(sensor, steps) for sensor in spec.observation_specs),
            continuous_actions=rng.uniform(-1, 1, (steps, spec.action_spec.continuous_size)).astype(
                np.float32
            ),
            discrete_actions=rng.integers(0, np.array(branches, np.int64), (steps, len(branches))),
            rewards=rng.normal(size=steps).astype(np.float32),
            group_rewards=rng.normal(size=steps).astype(np.float32),
            final_observations=tuple(seen(sensor, 1) for sensor in spec.observation_specs),
            terminated=end == "terminated",
            truncated=end == "truncated",
            starts_episode=starts_episode,
        )

    return make


@pytest.fixture
def require_equal() -> Callable[[Sequence[DemonstratedSegment], Sequence[DemonstratedSegment]], None]:
    """Holds segments against each other, number by number."""

    def check(got: Sequence[DemonstratedSegment], expected: Sequence[DemonstratedSegment]) -> None:
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            for name in ("continuous_actions", "discrete_actions", "rewards", "group_rewards"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
                assert getattr(one, name).dtype == getattr(other, name).dtype, name
            for name in ("observations", "final_observations"):
                for seen, wanted in zip(getattr(one, name), getattr(other, name), strict=True):
                    np.testing.assert_array_equal(seen, wanted, err_msg=name)
                    assert seen.dtype == wanted.dtype
            ends = ("terminated", "truncated", "starts_episode")
            assert [getattr(one, name) for name in ends] == [getattr(other, name) for name in ends]

    return check
