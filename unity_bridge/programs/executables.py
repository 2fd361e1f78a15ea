"""The program that ``--env`` stands for, and its command line. Nothing is started here."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unity_bridge.errors import LaunchError
from unity_bridge.programs.program_environment import ProgramEnvironment
from unity_bridge.simulators.foreign.lookup.nearest import closest_environment
from unity_bridge.simulators.schemes import PROGRAM, known_schemes, scheme_of

_PLAYER_SUFFIXES = (".app", ".exe", ".x86_64", ".x86")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to start, once per simulator."""

    env: str
    """The value of ``--env`` as the user wrote it, by which messages call the program."""

    executable: tuple[str, ...]
    """The program, with the leading arguments that choose the environment."""

    arguments: tuple[str, ...] = ()
    """The user's own, always last."""

    is_bundled: bool = False
    """Whether it is the bundled simulator, which hosts a Python environment."""

    is_unity_build: bool = False
    """Whether it writes its log where ``-logFile`` says, instead of printing it."""

    environment: ProgramEnvironment | None = None
    """The object that it hosts, where that is one of this program's."""

    no_graphics: bool = False
    no_graphics_monitor: bool = False
    """``no_graphics`` for all simulators but number 0."""

    def line(self, *, worker: int, port: int, log: Path) -> list[str]:
        """Returns the command line of simulator ``worker``, which shall connect to ``port``."""
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
    """Returns what ``--env`` stands for: a bundled environment (``sim:``, ``gym:``, ``FILE.py:NAME``) or a path.

    Args:
        env: as the user wrote it. Player suffixes (.x86_64, .exe, .app) may be left out.
        arguments: passed on to the program, after everything of ours.
        no_graphics: start programs without a window. Bundled environments have none.
        no_graphics_monitor: only simulator 0 gets a window.
        system: as ``platform.system()`` says; that of this machine if None.

    Raises:
        LaunchError: nothing there can be started. Names the tried paths.
    """
    scheme, (word, _, name) = scheme_of(env), env.partition(":")
    if scheme is PROGRAM:
        raise LaunchError(
            f"env '{env}': it was an object of a Python program, which alone can make it again: pass it as "
            "env= in Python, or name another environment (env= in Python, --env on a command line)"
        )
    if scheme is not None:
        if not name:
            raise LaunchError(f"env '{env}': expected a name after '{word}:'")
        return bundled_command(env, arguments)
    path = find_executable(env, system or platform.system())
    return Command(
        env=env,
        executable=(str(path),),
        arguments=tuple(arguments),
        is_unity_build=_looks_like_unity(path),
        no_graphics=no_graphics,
        no_graphics_monitor=no_graphics_monitor,
    )


def bundled_command(
    env: str, arguments: Sequence[str] = (), environment: ProgramEnvironment | None = None
) -> Command:
    """Returns the bundled simulator with an environment that has a name, or with an object of this program."""
    executable = (sys.executable, "-m", "unity_bridge.simulators", env)
    return Command(
        env=env, executable=executable, arguments=tuple(arguments), is_bundled=True, environment=environment
    )


def find_executable(env: str, system: str) -> Path:
    """Returns the file that ML-Agents would start for this path on this system (Linux, Darwin, Windows).

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
    """Returns the paths where the program may be, best guess first."""
    bare = path.with_suffix("") if path.suffix.lower() in _PLAYER_SUFFIXES else path
    if system == "Darwin":
        binaries = Path(f"{bare}.app") / "Contents" / "MacOS"
        visible = [file for file in sorted(binaries.glob("*")) if not file.name.startswith(".")]
        return [binaries / bare.name, *visible, path]
    if system == "Windows":
        inside = [exe for exe in sorted(bare.glob("*.exe")) if not exe.name.startswith("UnityCrashHandler")]
        return [Path(f"{bare}.exe"), *inside, path]
    return [Path(f"{bare}.x86_64"), Path(f"{bare}.x86"), bare, path]


def _not_found(env: str, candidates: Sequence[Path]) -> LaunchError:
    folder = next((path for path in reversed(candidates) if path.is_dir()), None)
    if folder is not None:
        return LaunchError(f"env '{env}': {folder} is a folder, expected the program inside it")
    tried = ", ".join(dict.fromkeys(map(str, candidates)))
    schemes = ", ".join(each.form for each in known_schemes())
    near = closest_environment(env)
    hint = f"; did you mean {near}?" if near else ""
    return LaunchError(
        f"env '{env}': no such program{hint} (tried {tried}); expected a path or one of {schemes}"
    )


def _executable_hint(path: Path) -> str:
    command = f"run: chmod 755 {shlex.quote(str(path))}"
    if path.suffix == ".py":
        return (
            f"begin it with the line '#!/usr/bin/env python3' and {command}; or name a class or function in it: "
            f"{shlex.quote(str(path))}:NAME"
        )
    return command


def _looks_like_unity(path: Path) -> bool:
    beside = path.parent
    return (
        path.suffix in (".x86_64", ".x86")  # no other programs are called so
        or (beside / f"{path.stem}_Data").is_dir()
        or any((beside / library).is_file() for library in ("UnityPlayer.so", "UnityPlayer.dll"))
        or path.match("*.app/Contents/MacOS/*")
    )
