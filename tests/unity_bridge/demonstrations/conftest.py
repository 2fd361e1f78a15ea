"""Recordings made by hand, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

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
