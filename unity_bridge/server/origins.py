"""Origins of simulators: attached, launched or hosted. Each decides the effect of a conversation's end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from unity_bridge.errors import SimulatorLost
from unity_bridge.programs.executables import Command
from unity_bridge.programs.hosted_simulator import HostedSimulator
from unity_bridge.transport.endpoint import readable


@dataclass(frozen=True, slots=True)
class Failure:
    """The state of a simulator when its conversation ended."""

    reason: str
    """Why the conversation ended and how the process did."""

    was_killed: bool = False

    log_tail: str = ""
    """The last lines of the program's output."""

    news: str = ""
    """Text about the restart; empty if the simulator is not started again."""


class Origin(ABC):
    """The origin of one simulator."""

    is_own: ClassVar[bool] = True
    """Whether the bridge started it, so that its faults are the run's; otherwise it attached by itself."""

    exit_wait_s: ClassVar[float] = 0.0
    """Seconds that it may take to exit after its conversation is over."""

    @property
    @abstractmethod
    def source(self) -> Hashable:
        """The endpoint of its calls; their peer where simulators share an endpoint."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The description of it in its name."""

    @property
    def command(self) -> Command | None:
        """The command of a program that the bridge started, otherwise None."""
        return None

    @property
    def pid(self) -> int | None:
        """The number of its process; None where the bridge started none."""
        return None

    def note_step(self) -> None:  # noqa: B027  # only launched programs need it
        """Notes that it has come to its first step."""

    def failure(self, why: str, *, hangs: bool) -> Failure:
        """Returns its state after the conversation. hangs: whether it let its time pass."""
        return Failure(why)

    @abstractmethod
    def successor(self, name: str, failure: Failure) -> Origin | None:
        """Returns the origin of its successor after its end; None where it has none.

        Raises:
            LaunchError: it never came to its first step.
            SimulatorLost: it may not be started again.
        """

    def close(self) -> None:  # noqa: B027
        """Ends a simulator of this process; others are told to stop."""

    def is_leaving(self, *, told: bool) -> bool:
        """Whether the bridge waits for it when it closes. told: whether it has just been told to stop."""
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Attached(Origin):
    """A simulator that connected to an open port by itself."""

    peer: str
    """Its connection as gRPC names it."""

    is_own = False

    @property
    def source(self) -> str:
        return self.peer

    @property
    def label(self) -> str:
        return readable(self.peer)

    def successor(self, name: str, failure: Failure) -> None:
        return None

    def is_leaving(self, *, told: bool) -> bool:
        return not told


@dataclass(frozen=True, slots=True, eq=False)
class Hosted(Origin):
    """A simulator in this process, which would fail again if it were started again."""

    simulator: HostedSimulator

    @property
    def source(self) -> HostedSimulator:
        return self.simulator

    @property
    def label(self) -> str:
        return f"{self.simulator.command.env}, in this process"

    @property
    def command(self) -> Command:
        return self.simulator.command

    def note_step(self) -> None:
        self.simulator.has_stepped = True

    def close(self) -> None:
        self.simulator.close()

    def successor(self, name: str, failure: Failure) -> None:
        raise SimulatorLost(f"{name}: {failure.reason}")
