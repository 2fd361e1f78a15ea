"""Starts simulators' programs, watches them and stops them."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from unity_bridge.errors import LaunchError
from unity_bridge.programs.executables import Command
from unity_bridge.programs.log_size import MOST_BYTES, cut_middle
from unity_bridge.simulators import LAUNCHED

_TAIL_BYTES = 16_384
_TRACEBACK, _CRASH = "Traceback (most recent call last):", "Fatal Python error:"
_TRACEBACK_LINES = 60
"""How many of the last lines are looked through for a traceback, which is then quoted whole."""

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


class Program:
    """One simulator's process, from its start to its exit.

    A thread of its own waits for the exit, so that nothing polls; another looks at its log now and then. The process
    leads a group of its own: Ctrl-C at the terminal reaches the trainer only, which then says goodbye in its own order.
    """

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
            command: what to start.
            worker: the simulator's number; names its log.
            port: where it shall connect.
            log_folder: an existing folder for what it prints.
            on_exit: called once, in another thread, when the process is gone.
            keep_log: append to what a predecessor printed.

        Raises:
            LaunchError: the system refuses to start it.
        """
        self.log = log_folder / f"Player-{worker}.log"
        # A Unity build writes its log by itself; what little it prints goes beside it.
        self._output = self.log.with_suffix(".out") if command.is_unity_build else self.log
        if keep_log and command.is_unity_build:
            _keep_previous_log(
                self.log
            )  # the build begins its log anew, and why the last one ended may be in the old
        self._can_dump_traceback = command.is_bundled
        self._exited = threading.Event()
        with _start_lock, self._output.open("ab") as output:
            if not keep_log:
                output.truncate(0)
            self._output_start = output.seek(0, os.SEEK_END)
            try:
                line = command.line(worker=worker, port=port, log=self.log)
                content = command.environment.content if command.environment else b""
                self._process = _start(line, content, output.fileno())
            except OSError as error:
                raise LaunchError(f"env '{command.env}': cannot be started: {_start_hint(error)}") from error
            self.pid = self._process.pid
            _programs.add(self)
        threading.Thread(target=self._watch, args=(on_exit,), name=f"watch-{self.pid}", daemon=True).start()
        threading.Thread(target=self._limit_logs, name=f"logs-{self.pid}", daemon=True).start()

    def _watch(self, on_exit: Callable[[], None]) -> None:
        self._process.wait()
        self._end(force=True)  # also the processes that a wrapper script may have left behind
        self._exited.set()
        _programs.discard(self)
        on_exit()

    @property
    def running(self) -> bool:
        """Whether its exit has not been noticed yet."""
        return not self._exited.is_set()

    @property
    def was_killed(self) -> bool:
        """Whether it was ended from outside: by a user, or by a system that ran out of memory."""
        return not self.running and self._process.returncode in _KILLED

    def wait(self, timeout_s: float) -> bool:
        """Waits for the exit; False if the time was not enough."""
        return self._exited.wait(max(0.0, timeout_s))

    def terminate(self) -> None:
        """Asks the process and its children to exit."""
        if self.running:
            self._end(force=False)

    def dump_traceback(self, patience_s: float) -> None:
        """Has a bundled simulator that hangs print its traceback, which ends it."""
        if self.running and self._can_dump_traceback and sys.platform != "win32":
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGABRT)
            self.wait(patience_s)

    def kill(self) -> None:
        """Ends the process and its children."""
        if self.running:
            self._end(force=True)

    def exit_text(self) -> str:
        """Returns how it ended, in words. Only for a process that has."""
        code = self._process.returncode
        if code < 0:
            return f"was killed by {_signal_name(-code)}"
        return f"exited with code {code if code < 0x8000_0000 else hex(code)}"

    def last_lines(self, count: int = 10) -> list[str]:
        """The last non-empty lines that it printed or logged, at most ``count``, or as many as a traceback takes."""
        lines = _last_lines(self._output, self._output_start)
        if not lines and self._output != self.log:
            lines = _last_lines(self.log, 0)
        return _excerpt(lines[-_TRACEBACK_LINES:], count)

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

    def _end(self, *, force: bool) -> None:
        """Ends the process and its children, or asks them to leave."""
        if sys.platform == "win32":
            # The pid is not given to another process while we hold the handle, even after the exit.
            command = ["taskkill", *(["/F"] if force else []), "/T", "/PID", str(self.pid)]
            subprocess.run(command, capture_output=True, check=False)
            return
        # There may be no process left; macOS tells so by refusing permission.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL if force else signal.SIGTERM)


def stop_programs(programs: Sequence[Program], *, grace_s: float) -> None:
    """Ends programs: asks first, and kills those that are still there after the grace period."""
    for program in programs:
        program.terminate()
    deadline = time.monotonic() + grace_s
    for program in programs:
        program.wait(deadline - time.monotonic())
    for program in programs:
        program.kill()
    for program in programs:
        program.wait(grace_s)


@contextmanager
def ignoring_schedulers() -> Iterator[None]:
    """A context whose new processes ignore SIGUSR1 and SIGUSR2, where this one handles them.

    Schedulers send them to every process of a job, and one decides for all. In a process or thread that does not
    handle them nothing changes.
    """
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)]
        handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)  # which a new process inherits, as it does no handler
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


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


def _start(line: Sequence[str], content: bytes, output: int) -> subprocess.Popen[bytes]:
    """The process in a group of its own, ``content`` to read, everything it prints going to ``output``."""
    if sys.platform == "win32":
        new_session, flags = False, subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        new_session, flags = True, 0
    with _to_read(content) as stdin, ignoring_schedulers():
        return subprocess.Popen(
            line,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(os.environ),
            start_new_session=new_session,
            creationflags=flags,
        )


@contextmanager
def _to_read(content: bytes) -> Iterator[IO[bytes] | int]:
    """The standard input of a process that finds this there. No other can open it, and it leaves nothing behind."""
    if not content:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:  # not a pipe, which would have to be fed while it is read
        file.write(content)
        file.seek(0)
        yield file


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
    """Player-0.log becomes Player-0-prev.log, as Unity calls what came before."""
    with suppress(FileNotFoundError):
        log.replace(log.with_name(f"{log.stem}-prev{log.suffix}"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names of their own
        return f"signal {number}"


def has_traceback(lines: Iterable[str]) -> bool:
    """Whether an exception of Python is among lines of a log."""
    return any(line.startswith(_TRACEBACK) for line in lines)


def _excerpt(lines: list[str], count: int) -> list[str]:
    """The last lines, from an exception's traceback on if there is one; or the upper end of where Python crashed."""
    for start, line in enumerate(lines):
        if line.startswith(_CRASH):
            return lines[start : start + count]  # the innermost call comes first there
        if line.startswith(_TRACEBACK):
            return lines[min(start, max(0, len(lines) - count)) :]
    return lines[-count:]


def _last_lines(path: Path, start: int) -> list[str]:
    """Non-empty lines of the end of a file, from ``start`` on; it may be huge, hold anything or not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()]
