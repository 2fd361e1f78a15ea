"""The supervisor of launched programs, which starts them, starts them again and stops them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unity_bridge.errors import LaunchError, SimulatorLost
from unity_bridge.programs.executables import Command
from unity_bridge.programs.launched_process import LaunchedProcess, LaunchPlan, RestartBudget
from unity_bridge.programs.program import stop_programs
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.transport.inbox import Inbox

TRACEBACK_S = 0.5
"""How long a launched simulator that hangs may take to print its traceback."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The state of a launched process when its conversation ended."""

    reason: str
    """Why the conversation ended and how the process did."""

    was_killed: bool

    log_tail: str
    """The end of what the program printed."""

    has_output: bool


class Supervisor:
    """A supervisor of launched processes, which starts each again as often as its budget allows."""

    def __init__(self, settings: BridgeSettings, inbox: Inbox) -> None:
        self._settings = settings
        self._inbox = inbox
        self._run_logs = settings.run_logs or Path(tempfile.mkdtemp(prefix="run_logs-"))
        self._working_commands: set[Command] = set()
        """Programs of which a simulator has stepped."""

    def start(self, number: int, command: Command) -> LaunchedProcess:
        """Starts the process of simulator ``number``, with a port of its own. Raises like ``LaunchPlan.start``."""
        self._run_logs.mkdir(parents=True, exist_ok=True)
        settings = self._settings
        plan = LaunchPlan(
            number=number,
            command=command,
            port=0 if settings.base_port is None else settings.base_port + number,
            run_logs=self._run_logs,
            inbox=self._inbox,
            restarts=RestartBudget(
                lifetime=settings.max_lifetime_restarts,
                per_period=settings.restarts_rate_limit_n,
                period_s=settings.restarts_rate_limit_period_s,
            ),
        )
        return plan.start()

    def note_step(self, launched: LaunchedProcess) -> None:
        """Notes that a simulator of this program has stepped, so that its next failure is no proof that it cannot."""
        self._working_commands.add(launched.plan.command)

    def failure(self, launched: LaunchedProcess, why: str, *, hangs: bool) -> Failure:
        """Returns the state of a process after its conversation; one that hangs prints its traceback first."""
        was_killed, reason = launched.program.was_killed, launched.exit_report(why)
        if hangs:
            launched.program.dump_traceback(TRACEBACK_S)
        return Failure(reason, was_killed, launched.log_tail(), launched.has_output())

    def restart(self, name: str, launched: LaunchedProcess, failure: Failure) -> LaunchedProcess:
        """Ends a process that failed, whatever it does, and returns its successor.

        Raises:
            LaunchError: no simulator of its program ever came to its first step.
            SimulatorLost: its restarts are used up.
        """
        launched.end(self._settings.shutdown_grace_s)
        # A program that ends by itself before it ever worked would do so again; one that was killed says nothing of it.
        if launched.plan.command not in self._working_commands and not failure.was_killed:
            raise LaunchError(f"{name}: {failure.reason}, before its first step{failure.log_tail}")
        refusal = launched.plan.restarts.spend(time.monotonic())
        if refusal:
            raise SimulatorLost(f"{name}: {failure.reason}; {refusal}{failure.log_tail}")
        return launched.plan.start(again=True)

    def stop(self, processes: Sequence[LaunchedProcess]) -> None:
        """Ends the processes, frees their ports, and removes logs that the settings do not ask for."""
        stop_programs([each.program for each in processes], grace_s=self._settings.shutdown_grace_s)
        for each in processes:
            each.endpoint.stop()
        if self._settings.run_logs is None:
            shutil.rmtree(self._run_logs, ignore_errors=True)
