"""A child process whose exit a thread waits for, with everything that it prints in a log file."""

from __future__ import annotations

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

_TAIL_BYTES = 16_384
_TRACEBACK, _CRASH = "Traceback (most recent call last):", "Fatal Python error:"
_TRACEBACK_LINES = 60
"""How many of the last lines are looked through for a traceback, which is then quoted whole."""


class ChildProcess:
    """One process, from its start to its exit.

    A thread of its own waits for the exit, so that nothing polls. The process leads a group of its own: Ctrl-C at the
    terminal reaches this process only, which then ends its children in its own order.
    """

    def __init__(
        self,
        line: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        on_exit: Callable[[], None],
        content: bytes = b"",
        keep_log: bool = False,
    ) -> None:
        """Starts the process.

        Args:
            line: the program and its arguments.
            log: the file for its output, in an existing folder.
            environment: its environment variables.
            on_exit: called once, in another thread, when the process is gone.
            content: its standard input.
            keep_log: append to the log instead of replacing it.

        Raises:
            OSError: the system refuses to start it, or to open the log.
        """
        self._output = log
        self._exited = threading.Event()
        with log.open("ab") as output:
            if not keep_log:
                output.truncate(0)
            self._output_start = output.seek(0, os.SEEK_END)
            self._process = _start(line, content, output.fileno(), environment)
        self.pid = self._process.pid
        threading.Thread(target=self._watch, args=(on_exit,), name=f"watch-{self.pid}", daemon=True).start()

    def _watch(self, on_exit: Callable[[], None]) -> None:
        self._process.wait()
        self._end(force=True)  # also the processes that a wrapper script may have left behind
        self._exited.set()
        on_exit()

    @property
    def running(self) -> bool:
        """Whether its exit has not been noticed yet."""
        return not self._exited.is_set()

    @property
    def exit_code(self) -> int:
        """The exit code, negative for the signal that killed it. Only for a process that has ended."""
        return int(self._process.returncode)

    def wait(self, timeout_s: float) -> bool:
        """Waits for the exit; False if the time was not enough."""
        return self._exited.wait(max(0.0, timeout_s))

    def terminate(self) -> None:
        """Asks the process and its children to exit."""
        if self.running:
            self._end(force=False)

    def kill(self) -> None:
        """Ends the process and its children."""
        if self.running:
            self._end(force=True)

    def exit_text(self) -> str:
        """Returns how it ended, in words. Only for a process that has."""
        code = self.exit_code
        if code < 0:
            return f"was killed by {_signal_name(-code)}"
        return f"exited with code {code if code < 0x8000_0000 else hex(code)}"

    def last_lines(self, count: int = 10) -> list[str]:
        """The last non-empty lines that it printed, at most ``count``, or as many as a traceback takes."""
        return excerpt(last_lines(self._output, self._output_start), count)

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


def stop_processes(processes: Sequence[ChildProcess], *, grace_s: float) -> None:
    """Ends processes: asks each to exit, and kills the ones that still run after the grace period."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + grace_s
    for process in processes:
        process.wait(deadline - time.monotonic())
    for process in processes:
        process.kill()
    for process in processes:
        process.wait(grace_s)


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


def _start(
    line: Sequence[str], content: bytes, output: int, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
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
            env=environment,
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names of their own
        return f"signal {number}"


def has_traceback(lines: Iterable[str]) -> bool:
    """Whether an exception of Python is among lines of a log."""
    return any(line.startswith(_TRACEBACK) for line in lines)


def excerpt(lines: list[str], count: int) -> list[str]:
    """The last lines, from an exception's traceback on if there is one; or the upper end of where Python crashed."""
    lines = lines[-_TRACEBACK_LINES:]
    for start, line in enumerate(lines):
        if line.startswith(_CRASH):
            return lines[start : start + count]  # the innermost call comes first there
        if line.startswith(_TRACEBACK):
            return lines[min(start, max(0, len(lines) - count)) :]
    return lines[-count:]


def last_lines(path: Path, start: int) -> list[str]:
    """Non-empty lines of the end of a file, from ``start`` on; it may be huge, hold anything or not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()]
