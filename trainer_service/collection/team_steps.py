"""The record of one tick of one simulator, for one team of a behavior."""

from __future__ import annotations

from dataclasses import dataclass

from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.steps import StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class TeamSteps:
    """One tick of one simulator, for the agents of one team of the behavior."""

    simulator: int
    team: int
    batch: StepBatch

    behavior_id: str = ""
    """The simulator's name for the behavior and its team."""

    messages: tuple[SideChannelRecord, ...] = ()
    """All that came with the tick on side channels: the actions of a scene's expert, where they are wanted."""
