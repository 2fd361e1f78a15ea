"""Starts simulators' programs, watches them and stops them."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from unity_bridge.errors import LaunchError
from unity_bridge.programs.child_process import ChildProcess, excerpt, last_lines
from unity_bridge.programs.executables import Command
from unity_bridge.programs.log_size import MOST_BYTES, cut_middle
from unity_bridge.simulators import LAUNCHED

_KILLED = frozenset(
    -getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
"""Exit codes of a process that another one ended, as Python tells them."""
_LAST_START_S = 0.5
"""How long ``kill_programs`` waits for a program that is being started just then."""

_LOOK_S = 1.0
"""Seconds between two looks at how much a program has printed."""

_start_lock = threading.Lock()
_programs: set[Program] = set()
"""Programs that this process has started and not seen end."""

_logger = logging.getLogger(__name__)


class Program(ChildProcess):
    """One simulator's process, from its start to its exit. A thread looks at its log now and then."""

    def __init__(
        self,
        command: Command,
        *,
        worker: int,
        port: int,
        log_folder: Path,
        on_exit: Callable[[], None],
        keep_log: bool = False,
    ) -> None:
        """Starts the process.

        Args:
            command: the program and its arguments.
            worker: the simulator's number; names its log.
            port: the port to connect to.
            log_folder: an existing folder for the log of its output.
            on_exit: called once, in another thread, when the process is gone.
            keep_log: append to the log of a predecessor.

        Raises:
            LaunchError: the system refuses to start it.
        """
        self.log = log_folder / f"Player-{worker}.log"
        if keep_log and command.is_unity_build:
            _keep_previous_log(
                self.log
            )  # the build begins its log again, and why the last one ended may be in the old
        self._can_dump_traceback = command.is_bundled

        def forget() -> None:
            _programs.discard(self)
            on_exit()

        with _start_lock:
            try:
                super().__init__(
                    command.line(worker=worker, port=port, log=self.log),
                    # A Unity build writes its log by itself; what little it prints goes beside it.
                    log=self.log.with_suffix(".out") if command.is_unity_build else self.log,
                    environment=_environment(os.environ),
                    on_exit=forget,
                    content=command.environment.content if command.environment else b"",
                    keep_log=keep_log,
                )
            except OSError as error:
                raise LaunchError(f"env '{command.env}': cannot be started: {_start_hint(error)}") from error
            _programs.add(self)
            if not self.running:  # it was forgotten already
                _programs.discard(self)
        threading.Thread(target=self._limit_logs, name=f"logs-{self.pid}", daemon=True).start()

    @property
    def was_killed(self) -> bool:
        """Whether it was ended from outside: by a user, or by a system that ran out of memory."""
        return not self.running and self.exit_code in _KILLED

    def dump_traceback(self, patience_s: float) -> None:
        """Has a bundled simulator that hangs print its traceback, which ends it."""
        if self.running and self._can_dump_traceback and sys.platform != "win32":
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGABRT)
            self.wait(patience_s)

    def last_lines(self, count: int = 10) -> list[str]:
        """The last non-empty lines that it printed or logged, at most ``count``, or as many as a traceback takes."""
        lines = super().last_lines(count)
        return lines or (excerpt(last_lines(self.log, 0), count) if self._output != self.log else [])

    def _limit_logs(self) -> None:
        """Cuts logs that have grown too long, and warns of it once."""
        has_told = False
        while not self._exited.wait(_LOOK_S):
            for log in {self._output, self.log}:
                if not cut_middle(log):
                    continue
                if log == self._output:
                    self._output_start = 0
                if not has_told:
                    has_told = True
                    _logger.warning(
                        "A simulator prints very much: the middle of '%s' is cut out whenever it takes %d MiB.",
                        log, MOST_BYTES // 2**20,
                    )  # fmt: skip


def running_groups() -> list[int]:
    """The process groups of programs that this process has started and not seen end."""
    return sorted(program.pid for program in list(_programs))


def kill_programs() -> None:
    """Ends every program that this process has started, and lets it start no other.

    For a process that ends at once, in any thread, whatever the others do; nothing else is to follow.
    """
    _start_lock.acquire(timeout=_LAST_START_S)
    for program in list(_programs):
        program.kill()


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Returns our environment, without buffered output that an exit would lose, and without a proxy to this machine."""
    no_proxy = ours.get("no_grpc_proxy") or ours.get("no_proxy")
    exceptions = ",".join(filter(None, (no_proxy, "localhost", "127.0.0.1")))
    return {**ours, "PYTHONUNBUFFERED": "1", LAUNCHED: "1", "no_grpc_proxy": exceptions}


def _start_hint(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno == errno.ENOEXEC:
        return f"{reason}; a script needs a first line that names its interpreter, such as #!/bin/sh"
    if error.errno == errno.EACCES:
        return f"{reason}; make sure that it and all beside it may be read and executed: chmod -R 755"
    if error.errno == errno.ENOENT:
        return f"{reason}; if it is a script, the interpreter that its first line names is missing"
    return reason


def _keep_previous_log(log: Path) -> None:
    """Player-0.log becomes Player-0-prev.log, as Unity names earlier logs."""
    with suppress(FileNotFoundError):
        log.replace(log.with_name(f"{log.stem}-prev{log.suffix}"))
