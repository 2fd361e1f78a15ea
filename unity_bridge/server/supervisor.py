"""The supervisor of simulators that the bridge starts: in processes, which it starts again, or in this process."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from unity_bridge.errors import LaunchError, SimulatorLost
from unity_bridge.programs.child_process import stop_processes
from unity_bridge.programs.executables import Command
from unity_bridge.programs.hosted_simulator import HostedSimulator
from unity_bridge.programs.launched_process import LaunchedProcess, LaunchPlan, RestartBudget
from unity_bridge.server.origins import Failure, Hosted, Origin
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.transport.endpoint import Endpoint
from unity_bridge.transport.inbox import Inbox

EXIT_WAIT_S = 1.0
"""How long a launched simulator that hung up or stopped may take to exit and tell its exit code."""

TRACEBACK_S = 0.5
"""How long a launched simulator that hangs may take to print its traceback."""


@dataclass(frozen=True, slots=True, eq=False)
class LaunchedSimulator(Origin):
    """A simulator whose process the bridge started, and starts again when it fails."""

    process: LaunchedProcess
    supervisor: Supervisor

    exit_wait_s = EXIT_WAIT_S

    @property
    def source(self) -> Endpoint:
        return self.process.endpoint

    @property
    def label(self) -> str:
        return f"{self.process.plan.command.env}, pid {self.pid}"

    @property
    def command(self) -> Command:
        return self.process.plan.command

    @property
    def pid(self) -> int:
        return self.process.program.pid

    def note_step(self) -> None:
        """Notes that a simulator of this program has stepped, so that its next failure is no proof that it cannot."""
        self.supervisor.working_commands.add(self.process.plan.command)

    def failure(self, why: str, *, hangs: bool) -> Failure:
        """Returns the state of a process after its conversation; one that hangs prints its traceback first."""
        program = self.process.program
        was_killed, reason = program.was_killed, self.process.exit_report(why)
        if hangs:
            program.dump_traceback(TRACEBACK_S)
        news = f"; starting it again{self.process.log_summary()}"
        return Failure(reason, was_killed, self.process.log_tail(), news=news)

    def successor(self, name: str, failure: Failure) -> LaunchedSimulator:
        """Ends a process that failed, whatever it does, and returns its successor."""
        process, supervisor = self.process, self.supervisor
        process.end(supervisor.grace_s)
        # A program that ends by itself before it ever worked would do so again; one that was killed says nothing of it.
        if process.plan.command not in supervisor.working_commands and not failure.was_killed:
            raise LaunchError(f"{name}: {failure.reason}, before its first step{failure.log_tail}")
        refusal = process.plan.restarts.spend(time.monotonic())
        if refusal:
            raise SimulatorLost(f"{name}: {failure.reason}; {refusal}{failure.log_tail}")
        return LaunchedSimulator(process.plan.start(again=True), supervisor)

    def is_leaving(self, *, told: bool) -> bool:
        return True


class Supervisor:
    """A supervisor of simulators, which starts each process again as often as its budget allows."""

    def __init__(self, settings: BridgeSettings, inbox: Inbox) -> None:
        self._settings = settings
        self._inbox = inbox
        self._run_logs = settings.run_logs or Path(tempfile.mkdtemp(prefix="run_logs-"))
        self.grace_s = settings.shutdown_grace_s
        self.working_commands: set[Command] = set()
        """Programs of which a simulator has stepped."""

    def start(self, number: int, command: Command) -> LaunchedSimulator:
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
        return LaunchedSimulator(plan.start(), self)

    def host(self, number: int, command: Command) -> Hosted:
        """Makes simulator ``number`` a part of this process; it is opened when the inbox is read."""
        name = f"simulator {number} ({command.env}, in this process)"
        patience_s = self._settings.timeout_wait_s
        return Hosted(HostedSimulator(command, name, self._inbox, patience_s=patience_s))

    def stop(self, origins: Iterable[Origin]) -> None:
        """Ends launched processes, frees their ports, and removes logs that the settings do not ask for."""
        processes = [each.process for each in origins if isinstance(each, LaunchedSimulator)]
        stop_processes([each.program for each in processes], grace_s=self.grace_s)
        for each in processes:
            each.endpoint.stop()
        if self._settings.run_logs is None:
            shutil.rmtree(self._run_logs, ignore_errors=True)
