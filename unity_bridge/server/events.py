"""Events that the bridge reports to the trainer: ticks of simulators and their departures."""

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
    """Its side channel messages, in order."""

    replaced: Mapping[str, int] = field(default_factory=dict)
    """Values that could not be used and became 0, of behaviors with any, by full id."""

    num_areas: int = 1
    """Copies of the task in the simulator."""


@dataclass(frozen=True, slots=True)
class Departure:
    """The end of a conversation: its agents' unfinished trajectories are worth nothing.

    A launched simulator that was started again keeps its number; its specs and agents are new.
    """

    simulator: int

    reason: str
    """One line that names the simulator."""

    restarted: bool = False
    """Whether it is a launched process that is started again."""


@dataclass(frozen=True, slots=True)
class SimulatorInfo:
    """The introduction of a simulator."""

    package_version: str
    """The version of ML-Agents in Unity; empty if it names none."""

    communication_version: str

    capabilities: frozenset[str]
    """Names of the flags that it set, such as ``trainingAnalytics``."""

    launched: bool = False
    """Whether the bridge launched it; otherwise it attached by itself."""
