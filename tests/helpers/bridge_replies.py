"""Messages between the bridge and its test simulators, read as a test compares them."""

from __future__ import annotations

from uuid import UUID

from unity_bridge.server.bridge import Tick
from unity_bridge.side_channels import SideChannelRecord, unpack_records
from unity_bridge.wire.unity_message_pb2 import UnityMessageProto

BALL = "Ball?team=0"


def records_in(reply: UnityMessageProto) -> list[SideChannelRecord]:
    """Returns the side channel records of a reply."""
    return unpack_records(reply.unity_input.rl_input.side_channel)


def actions_in(reply: UnityMessageProto) -> list[list[float]]:
    """Returns the continuous actions of a reply, a list for each agent."""
    return [list(row.continuous_actions) for row in reply.unity_input.rl_input.agent_actions[BALL].value]


def numbered(number: int) -> SideChannelRecord:
    """Returns a side channel record that a test can tell from others."""
    return SideChannelRecord(UUID(int=7), bytes([number]))


def pid_of(tick: Tick) -> int:
    """Returns the only observation of the program of ``simulator_program``: its process."""
    return int(tick.steps[BALL].observations[0][0, 0])
