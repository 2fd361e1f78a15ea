"""Jobs: commands of this trainer as child processes, a limited number at a time.

A job ends with this process, however that ends: it is asked to save, and killed if it does not. Its output goes to a
log file. Where jobs run is a ``Place``: processes on this machine, unless another one is given.
"""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from trainer_service.commands.common.command import require_at_least
from trainer_service.errors import UserError
from trainer_service.running.training.stop_signals import StopSignals
from unity_bridge.programs.child_process import ChildProcess
from unity_bridge.programs.cores import cores_of_each
from unity_bridge.programs.watchdog import Watchdog

GRACE_S = 120
"""Seconds in which a job that was asked to end can save."""
_KILL_S = 5.0
"""Seconds in which a killed job is gone."""
_LOOK_S = 0.5
"""Seconds between two looks at the stop request."""
_TAIL_LINES = 10
_SIGNALLED = 128
"""The smallest exit code by which a process says that a signal ended it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One command of this trainer."""

    name: str
    """Unique among the jobs of a pool."""

    arguments: tuple[str, ...]
    """Those of ``mlagents-style``, the command first: ``("learn", "walker.yaml", "--run-id=walker-1")``."""

    log: Path
    """A file to which its output is appended. Its folder is made if it is missing."""


class RunningJob(Protocol):
    """A job that was started. ``ChildProcess`` is one."""

    @property
    def running(self) -> bool:
        """Whether its exit has not been noticed yet."""

    @property
    def exit_code(self) -> int:
        """The exit code, negative for the signal that killed it. Only for a job that has ended."""

    def wait(self, timeout_s: float) -> bool:
        """Waits for the exit; False if the time was not enough."""

    def terminate(self) -> None:
        """Asks the job to save and end, as SIGTERM does."""

    def kill(self) -> None:
        """Ends the job at once."""

    def exit_text(self) -> str:
        """Returns how it ended, in words. Only for a job that has."""

    def last_lines(self, count: int = 10) -> list[str]:
        """The last non-empty lines that it printed."""


class Place(Protocol):
    """Where jobs run."""

    def start(self, job: Job, threads: int, on_exit: Callable[[], None]) -> RunningJob:
        """Starts a job. Raises OSError or UserError if that is impossible.

        Args:
            job: the job.
            threads: the number of CPU threads that it may use.
            on_exit: called once, in any thread, when it has ended.
        """

    def close(self) -> None:
        """Releases the resources of the place, after all jobs have ended."""


class LocalProcesses:
    """Processes on this machine. They end with this one, also if it is killed."""

    def __init__(self) -> None:
        self._watchdog = Watchdog(grace_s=GRACE_S, asks_first=True)
        self._processes: list[ChildProcess] = []

    def start(self, job: Job, threads: int, on_exit: Callable[[], None]) -> ChildProcess:
        """Starts a job; see ``Place.start``."""
        process = ChildProcess(
            [sys.executable, "-m", "trainer_service", *job.arguments],
            log=job.log,
            environment={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"},
            on_exit=on_exit,
            keep_log=True,
        )
        self._processes = [*(each for each in self._processes if each.running), process]
        self._watchdog.watch([each.pid for each in self._processes])
        return process

    def close(self) -> None:
        """Ends the watch over the processes."""
        self._watchdog.close()


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended."""

    job: Job
    exit_code: int
    """0 also where a command ended early, and saved, because it was asked to."""

    stopped: bool
    """Whether it was asked to end."""

    message: str
    """How it ended and the last lines of its output, if it failed; empty otherwise."""

    @property
    def is_failed(self) -> bool:
        """Whether the command itself failed. A job that a signal ended has not, and may be started again."""
        return 0 < self.exit_code < _SIGNALLED


class JobPool:
    """A context that runs jobs, a limited number at a time. Its end asks running jobs to save, and waits for them.

    Use it from one thread.
    """

    def __init__(self, limit: int, place: Place | None = None) -> None:
        """limit: jobs at a time, which share the cores of this machine. place: where they run; None is this machine."""
        require_at_least(1, **{"--jobs": limit})
        self.limit = limit
        self._threads = cores_of_each(limit)
        self._place = place or LocalProcesses()
        self._running: dict[str, tuple[Job, RunningJob]] = {}
        self._stopped: set[str] = set()
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    @property
    def running(self) -> list[str]:
        """The names of the jobs that run, in the order of their start."""
        return [*self._running]

    @property
    def has_room(self) -> bool:
        """Whether another job may start."""
        return len(self._running) < self.limit

    def start(self, job: Job) -> None:
        """Starts a job. Raises UserError if the system refuses; RuntimeError without room, or if its name is taken."""
        if not self.has_room or job.name in self._running:
            raise RuntimeError(f"no room for a job '{job.name}' beside {self.running}")
        try:
            job.log.parent.mkdir(parents=True, exist_ok=True)
            running = self._place.start(job, self._threads, lambda: self._ended.put(job.name))
        except OSError as error:
            raise UserError(f"'{job.name}' cannot be started: {error}") from error
        self._running[job.name] = (job, running)

    def stop(self, name: str) -> None:
        """Asks a job to save and end; ``wait`` returns its end. A second call does nothing."""
        if name in self._running and name not in self._stopped:
            self._stopped.add(name)
            self._running[name][1].terminate()

    def stop_all(self) -> None:
        """Asks every running job to save and end."""
        for name in self.running:
            self.stop(name)

    def wait(self, timeout_s: float) -> list[JobEnd]:
        """Waits until a job ends. Returns the ends since the last call; empty if the time was not enough."""
        ends: list[JobEnd] = []
        try:
            ends.append(self._take(self._ended.get(timeout=timeout_s)))
            while True:
                ends.append(self._take(self._ended.get_nowait()))
        except queue.Empty:
            return ends

    def _take(self, name: str) -> JobEnd:
        job, process = self._running.pop(name)
        stopped = name in self._stopped
        self._stopped.discard(name)
        message = ""
        if process.exit_code != 0:
            lines = process.last_lines(_TAIL_LINES)
            tail = "; its last lines" if lines else "; it printed nothing"
            message = "\n  ".join([f"{name}: {process.exit_text()}{tail} ({job.log}):", *lines])
        return JobEnd(job, process.exit_code, stopped, message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop_all()
        deadline = time.monotonic() + GRACE_S
        for _, process in self._running.values():
            if not process.wait(deadline - time.monotonic()):
                process.kill()
                process.wait(_KILL_S)
        self._place.close()


def run_jobs(
    jobs: Iterable[Job],
    limit: int,
    *,
    stop: StopSignals,
    on_look: Callable[[Sequence[str], Sequence[JobEnd]], None],
) -> list[JobEnd]:
    """Runs jobs here, in their order and at most ``limit`` at a time, until all have ended or a stop is requested.

    Args:
        jobs: the jobs. After a stop request no other is started, and the running ones are asked to save and end.
        limit: jobs at a time.
        stop: the stop request.
        on_look: called a few times a second with the names of running jobs and all ends so far.

    Returns:
        The ends, in the order in which they came. A failed job does not keep the others from running.
    """
    ends: list[JobEnd] = []
    waiting = list(jobs)
    with JobPool(limit) as pool:
        while pool.running or (waiting and not stop.requested):
            if stop.requested:
                pool.stop_all()
            while waiting and pool.has_room and not stop.requested:
                pool.start(waiting.pop(0))
            on_look(pool.running, ends)
            ends += pool.wait(_LOOK_S)
    on_look((), ends)
    return ends
