"""A command that gets so much time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LEAVE_S = 120.0
"""After an interrupt: the last checkpoint, and simulators that end."""

_LAST_LINES = 12


class RunFailed(Exception):
    """A command did not come to its end. The text has the last lines of its output."""


@dataclass(frozen=True, slots=True)
class Spent:
    """The time and memory of a command."""

    seconds: float
    """From its start until it was interrupted, or ended."""

    cpu_seconds: float
    """On all cores, of the command and of those of its processes that it waited for, until all had ended."""


def run_timed(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    interrupt_after_s: float | None = None,
    limit_s: float | None = None,
) -> Spent:
    """Runs a command, with Ctrl-C when its time is over.

    Args:
        command: what to run; what it prints is lost if it succeeds.
        folder: where it runs; its log is left there.
        environment: its variables.
        interrupt_after_s: when it is interrupted, counted from its start; it must end with status 0 all the same.
        limit_s: when it is killed, and counts as failed.

    Raises:
        RunFailed: it ended with another status, or did not end.
    """
    log = folder / "log.txt"
    began, cpu_before_s = time.perf_counter(), _cpu_of_children_s()
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C at the terminal is ours to pass on
        ) as process,
    ):
        try:
            elapsed_s = _wait(process, began, interrupt_after_s, limit_s)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"did not end in time:\n    {_last_lines(log)}") from error
        finally:
            _kill(process)
    if process.returncode:
        raise RunFailed(f"ended with {process.returncode}:\n    {_last_lines(log)}")
    return Spent(elapsed_s, _cpu_of_children_s() - cpu_before_s)


def _cpu_of_children_s() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def _wait(
    process: subprocess.Popen[bytes], began: float, interrupt_after_s: float | None, limit_s: float | None
) -> float:
    if interrupt_after_s is None:
        process.wait(limit_s)
        return time.perf_counter() - began
    try:
        process.wait(interrupt_after_s)
        return time.perf_counter() - began
    except subprocess.TimeoutExpired:
        elapsed_s = time.perf_counter() - began
        process.send_signal(signal.SIGINT)
        process.wait(LEAVE_S)
        return elapsed_s


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Its remaining processes: the command, and processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_lines(log: Path) -> str:
    # A bar of progress draws over itself: what counts is its last state.
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n    ".join(line for line in said[-_LAST_LINES:] if line.strip())
