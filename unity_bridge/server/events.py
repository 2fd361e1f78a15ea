"""What the bridge tells about simulators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class Tick:
    """One message of one simulator, which now waits for ``Bridge.reply``."""

    simulator: int

    new_specs: Mapping[str, BehaviorSpec]
    """Behaviors that this simulator describes for the first time, by full id (``Ball?team=0``)."""

    steps: Mapping[str, StepBatch]
    """Behaviors with at least one row, by full id in alphabetical order. May be empty."""

    messages: tuple[SideChannelRecord, ...] = ()
    """What it said on side channels, in order."""

    replaced: Mapping[str, int] = field(default_factory=dict)
    """Values that could not be used and became 0, of behaviors with any, by full id."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A conversation is over: its agents' unfinished trajectories are worth nothing.

    A launched simulator that was started again keeps its number and begins anew, with new specs and agents.
    """

    simulator: int

    reason: str
    """One line that names the simulator."""

    restarted: bool = False
    """A process of ours, and its successor is on the way."""


@dataclass(frozen=True, slots=True)
class SimulatorInfo:
    """How a simulator introduced itself."""

    package_version: str
    """Of ML-Agents in Unity; empty if it names none."""

    communication_version: str

    capabilities: frozenset[str]
    """Names of the flags that it set, such as ``trainingAnalytics``."""

    launched: bool = False
    """It is a process of ours; otherwise it came by itself."""
