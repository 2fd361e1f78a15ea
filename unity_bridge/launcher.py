"""Finds simulators' programs, starts them, watches them and stops them."""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unity_bridge.errors import LaunchError

BUNDLED_SCHEMES = ("sim", "gym", "pettingzoo")
"""``scheme:name`` environments that the bundled simulator hosts."""

_PLAYER_SUFFIXES = (".app", ".exe", ".x86_64", ".x86")
_TAIL_BYTES = 16_384
_KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start, once per simulator."""

    env: str
    """As the user wrote it: what messages call the program."""

    executable: tuple[str, ...]
    """The program, with the leading arguments that choose the environment."""

    arguments: tuple[str, ...] = ()
    """The user's own, always last."""

    is_unity_build: bool = False
    """Writes its log where ``-logFile`` says, instead of printing it."""

    no_graphics: bool = False
    no_graphics_monitor: bool = False
    """Like ``no_graphics``, except for simulator 0."""

    def line(self, *, worker: int, port: int, log: Path) -> list[str]:
        """The command line of simulator ``worker``, which shall connect to ``port``."""
        line = list(self.executable)
        if self.no_graphics or (self.no_graphics_monitor and worker != 0):
            line += ["-nographics", "-batchmode"]
        line += ["--mlagents-port", str(port)]
        if self.is_unity_build and not self._names_a_log():
            line += ["-logFile", str(log.absolute())]
        return [*line, *self.arguments]

    def _names_a_log(self) -> bool:
        return any(argument.lower() == "-logfile" for argument in self.arguments)


def resolve_program(
    env: str,
    arguments: Sequence[str] = (),
    *,
    no_graphics: bool = False,
    no_graphics_monitor: bool = False,
    system: str | None = None,
) -> Command:
    """What ``--env`` stands for: a bundled environment (``sim:``, ``gym:``, ``pettingzoo:``) or a path.

    Args:
        env: as the user wrote it. Player suffixes (.x86_64, .exe, .app) may be left out.
        arguments: passed on to the program, after everything of ours.
        no_graphics: start programs without a window. Bundled environments have none.
        no_graphics_monitor: only simulator 0 gets a window.
        system: as ``platform.system()`` says; that of this machine if None.

    Raises:
        LaunchError: nothing there can be started. Names what was tried.
    """
    scheme, _, name = env.partition(":")
    if scheme in BUNDLED_SCHEMES:
        if not name:
            raise LaunchError(f"env '{env}': expected a name after '{scheme}:'")
        executable = (sys.executable, "-m", "unity_bridge.simulators", env)
        return Command(env=env, executable=executable, arguments=tuple(arguments))
    path = find_executable(env, system or platform.system())
    return Command(
        env=env,
        executable=(str(path),),
        arguments=tuple(arguments),
        is_unity_build=_looks_like_unity(path),
        no_graphics=no_graphics,
        no_graphics_monitor=no_graphics_monitor,
    )


def find_executable(env: str, system: str) -> Path:
    """The file that ML-Agents would start for this path on this system (Linux, Darwin, Windows).

    Raises:
        LaunchError: missing, a folder, or not executable.
    """
    candidates = _candidates(Path(env.strip()).absolute(), system)
    files = [path for path in candidates if path.is_file()]
    if not files:
        raise _not_found(env, candidates)
    if system != "Windows" and not os.access(files[0], os.X_OK):
        raise LaunchError(f"env '{env}': {files[0]} is not executable; {_executable_hint(files[0])}")
    return files[0]


def _candidates(path: Path, system: str) -> list[Path]:
    """Where the program may be, best guess first."""
    bare = path.with_suffix("") if path.suffix.lower() in _PLAYER_SUFFIXES else path
    if system == "Darwin":
        binaries = Path(f"{bare}.app") / "Contents" / "MacOS"
        return [binaries / bare.name, *sorted(binaries.glob("*")), path]
    if system == "Windows":
        inside = [exe for exe in sorted(path.glob("*.exe")) if not exe.name.startswith("UnityCrashHandler")]
        return [Path(f"{bare}.exe"), *inside, path]
    return [Path(f"{bare}.x86_64"), Path(f"{bare}.x86"), bare, path]


def _not_found(env: str, candidates: Sequence[Path]) -> LaunchError:
    folder = next((path for path in reversed(candidates) if path.is_dir()), None)
    if folder is not None:
        return LaunchError(f"env '{env}': {folder} is a folder, expected the program inside it")
    tried = ", ".join(dict.fromkeys(map(str, candidates)))
    schemes = ", ".join(f"{scheme}:NAME" for scheme in BUNDLED_SCHEMES)
    return LaunchError(f"env '{env}': no such program (tried {tried}); expected a path or one of {schemes}")


def _executable_hint(path: Path) -> str:
    if path.suffix == ".py":
        return f"begin it with the line '#!/usr/bin/env python3' and run: chmod +x {path}"
    return f"run: chmod +x {path}"


def _looks_like_unity(path: Path) -> bool:
    beside = path.parent
    return (
        (beside / f"{path.stem}_Data").is_dir()
        or any((beside / library).is_file() for library in ("UnityPlayer.so", "UnityPlayer.dll"))
        or path.match("*.app/Contents/MacOS/*")
    )


class Program:
    """One simulator's process, from its start to its last word.

    A thread of its own waits for the exit, so nobody polls. The process leads a group of its own: Ctrl-C at
    the terminal reaches the trainer only, which then says goodbye in its own order.
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
        self._exited = threading.Event()
        with self._output.open("ab" if keep_log else "wb") as output:
            self._output_start = output.tell()
            try:
                self._process = _start(command.line(worker=worker, port=port, log=self.log), output.fileno())
            except OSError as error:
                raise LaunchError(f"env '{command.env}': cannot be started: {_start_hint(error)}") from error
        self.pid = self._process.pid
        threading.Thread(target=self._watch, args=(on_exit,), name=f"watch-{self.pid}", daemon=True).start()

    def _watch(self, on_exit: Callable[[], None]) -> None:
        self._process.wait()
        self._signal(_KILL)  # what a wrapper script may have left behind
        self._exited.set()
        on_exit()

    @property
    def running(self) -> bool:
        """Whether its exit has not been noticed yet."""
        return not self._exited.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the exit; False if the time was not enough."""
        return self._exited.wait(max(0.0, timeout_s))

    def terminate(self) -> None:
        """Asks the process and its children to leave."""
        if self.running:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process and its children."""
        if self.running:
            self._signal(_KILL)

    def exit_text(self) -> str:
        """How it ended, in words. Only for a process that has."""
        code = self._process.returncode
        if code < 0:
            return f"was killed by {_signal_name(-code)}"
        return f"exited with code {code if code < 0x8000_0000 else hex(code)}"

    def last_lines(self, count: int = 10) -> list[str]:
        """The last non-empty lines that it printed or logged, at most ``count``."""
        lines = _last_lines(self._output, self._output_start)
        if not lines and self._output != self.log:
            lines = _last_lines(self.log, 0)
        return lines[-count:]

    def _signal(self, number: int) -> None:
        try:
            if sys.platform == "win32":
                self._process.terminate()
            else:
                os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # nobody left; macOS says so by refusing permission


class RestartBudget:
    """How often one simulator may be started again, over its lifetime and in any period. −1 is no limit."""

    def __init__(self, *, lifetime: int, per_period: int, period_s: float) -> None:
        self._lifetime = lifetime
        self._per_period = per_period
        self._period_s = period_s
        self._spent_at: list[float] = []

    def spend(self, now: float) -> str:
        """Takes one restart from the budget, at a time in seconds. Returns why not; empty if it may be."""
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


def _start(line: Sequence[str], output: int) -> subprocess.Popen[bytes]:
    """The process in a group of its own, nothing to read, everything it prints going to ``output``."""
    if sys.platform == "win32":
        new_session, flags = False, subprocess.CREATE_NEW_PROCESS_GROUP
    else:
        new_session, flags = True, 0
    return subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=_environment(os.environ),
        start_new_session=new_session,
        creationflags=flags,
    )


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Ours, with no last words lost in a buffer and no proxy on the way to this machine."""
    no_proxy = ours.get("no_grpc_proxy") or ours.get("no_proxy")
    exceptions = ",".join(filter(None, (no_proxy, "localhost", "127.0.0.1")))
    return {**ours, "PYTHONUNBUFFERED": "1", "no_grpc_proxy": exceptions}


def _start_hint(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno == errno.ENOEXEC:
        return f"{reason}; a script needs a first line that names its interpreter, such as #!/bin/sh"
    if error.errno == errno.ENOENT:
        return f"{reason}; if it is a script, the interpreter that its first line names is missing"
    return reason


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names of their own
        return f"signal {number}"


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
