"""The record of one tick of one simulator, for one behavior id."""

from __future__ import annotations

from dataclasses import dataclass

from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.steps import StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class BehaviorTick:
    """One tick of one simulator, for the agents of one behavior id: a name and a team id."""

    simulator: int
    team: int
    batch: StepBatch

    behavior_id: str = ""
    """The simulator's spelling of the behavior id, such as ``Ball?team=0``."""

    messages: tuple[SideChannelRecord, ...] = ()
    """The side-channel messages of the tick, such as the actions of a scene's expert."""
