"""A simulator's process together with its own port, so that each conversation is tied to a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unity_bridge.errors import LaunchError
from unity_bridge.programs.child_process import has_traceback
from unity_bridge.programs.executables import Command
from unity_bridge.programs.program import Program
from unity_bridge.transport.endpoint import Endpoint
from unity_bridge.transport.inbox import Inbox

_CAPACITY = 8  # one call is in flight in practice; any other is read, and refused by name


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """The event that the process behind an endpoint is gone."""

    endpoint: Endpoint


class RestartBudget:
    """A limit to how often one simulator is started again, over its lifetime and in any period. −1 is no limit."""

    def __init__(self, *, lifetime: int, per_period: int, period_s: float) -> None:
        self._lifetime = lifetime
        self._per_period = per_period
        self._period_s = period_s
        self._spent_at: list[float] = []

    def spend(self, now: float) -> str:
        """Takes one restart from the budget, at a time in seconds. Returns the refusal; empty if there was one left."""
        recent = sum(now - spent < self._period_s for spent in self._spent_at)
        if 0 <= self._lifetime <= len(self._spent_at):
            return f"it was already started again {len(self._spent_at)} of at most {self._lifetime} times"
        if 0 <= self._per_period <= recent:
            return (
                f"it was already started again {recent} of at most {self._per_period} times "
                f"in the last {self._period_s:g} s"
            )
        self._spent_at.append(now)
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Everything needed to start one simulator, and to start it again."""

    number: int
    command: Command
    port: int
    """0 lets the system choose."""
    run_logs: Path
    inbox: Inbox
    """Receives the endpoint's events and the Exit."""
    restarts: RestartBudget

    def start(self, *, again: bool = False) -> LaunchedProcess:
        """Returns a running process and its open port. ``again`` keeps what its predecessor printed.

        Raises:
            LaunchError: the system refuses to start it.
            PortInUse: the port is taken.
        """
        endpoint = Endpoint("127.0.0.1", self.port, self.inbox, capacity=_CAPACITY)
        try:
            program = Program(
                self.command,
                worker=self.number,
                port=endpoint.port,
                log_folder=self.run_logs,
                on_exit=lambda: self.inbox.put(Exit(endpoint)),
                keep_log=again,
            )
        except LaunchError:
            endpoint.stop()
            raise
        return LaunchedProcess(self, program, endpoint)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchedProcess:
    """A process that was started and the port where it is expected."""

    plan: LaunchPlan
    program: Program
    endpoint: Endpoint

    def exit_report(self, why: str) -> str:
        """Returns one line on why the conversation ended, and how the process ended."""
        if self.program.running:
            return f"{why}, while its process still runs"
        exit_text = self.program.exit_text()
        return f"{why}, then {exit_text}" if why else exit_text

    def log_tail(self) -> str:
        """Returns the program's last output, as the end of a longer message."""
        lines = self.program.last_lines()
        if not lines:
            return f"; it printed nothing (see {self.program.log})"
        return f"; its last lines ({self.program.log}):\n" + "\n".join(f"  {line}" for line in lines)

    def log_summary(self) -> str:
        """Returns ``log_tail``, of a traceback the last line only: if it comes again, the run ends with all of it."""
        lines = self.program.last_lines()
        if not has_traceback(lines):
            return self.log_tail() if lines else ""
        return f"; its last line ({self.program.log}):\n  {lines[-1]}"

    def end(self, grace_s: float) -> None:
        """Kills the process, whatever it does, and frees the port."""
        self.program.kill()
        self.program.wait(grace_s)
        self.endpoint.stop()
