"""Rollout workers as Ray actors: started, asked, watched, and started again when their processes die.

Ray places processes and moves arrays. What it does not know is here: how long an answer may take, and how often and how
soon a worker is started again.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import torch
from ray.exceptions import RayActorError, RayError, RayTaskError

from trainer_service.config import RunOptions
from trainer_service.config.distributed import DistributedSettings
from trainer_service.distributed.ray_cluster import RayCluster
from trainer_service.distributed.records import SampleRequest, SampleResult, Share, WorkerFailure
from trainer_service.distributed.rollout_workers import WorkerLost
from trainer_service.distributed.worker import REPORT_S, RolloutWorker
from trainer_service.errors import UserError
from unity_bridge.errors import BridgeError, LaunchError, PortInUse

_logger = logging.getLogger(__name__)

_CLOSE_S = 4.0
"""How long workers may take to end their simulators."""

_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 60.0
"""How long a worker that died is away; twice as long after each life in which it collected nothing."""

_PLACEMENT_S = 10.0
"""How often it is said that a worker waits for a place."""


class WorkerProcess:
    """A rollout worker in a process of Ray's, which answers with records and never with exceptions of ours."""

    def __init__(self, number: int, options: RunOptions, folder: str | None, directory: str) -> None:
        torch.set_num_threads(1)
        with suppress(OSError):
            os.chdir(directory)  # environments of users may be there; on other machines they need not
        self._number = number
        self._options = options
        self._folder = folder
        self._worker: RolloutWorker | None = None

    def start(self) -> str | WorkerFailure:
        """Starts the simulators. Returns the name of the machine."""
        run_logs = None
        if self._folder is not None and Path(self._folder).is_dir():
            run_logs = Path(self._folder) / "run_logs" / f"worker-{self._number}"
        try:
            self._worker = RolloutWorker(self._number, self._options, run_logs)
            self._worker.start()
        except Exception as error:
            return failure_of(error)
        return socket.gethostname()

    def collect(self, request: SampleRequest | None, share: Share | None) -> SampleResult | WorkerFailure:
        """Collects; see ``RolloutWorker.collect``."""
        assert self._worker is not None
        try:
            return self._worker.collect(request, share)
        except Exception as error:
            return failure_of(error)

    def close(self) -> None:
        """Ends the simulators."""
        if self._worker is not None:
            self._worker.close()


def failure_of(error: Exception) -> WorkerFailure:
    """What the trainer hears of an exception in a worker."""
    if isinstance(error, UserError):
        return WorkerFailure("user", str(error))
    if isinstance(error, LaunchError | PortInUse):
        return WorkerFailure("launch", str(error))
    if isinstance(error, BridgeError):
        return WorkerFailure("simulators", str(error))
    return WorkerFailure("internal", "".join(traceback.format_exception(error)))


@dataclass(slots=True, eq=False)
class _Life:
    """One process of a worker."""

    number: int
    actor: Any
    born: float = field(default_factory=time.monotonic)
    host: str = ""
    """The machine; empty until the simulators were started."""
    has_collected: bool = False


@dataclass(frozen=True, slots=True)
class _Call:
    life: _Life
    deadline: float


class RayWorkers:
    """The actors of a run's workers; a ``WorkerPool``."""

    def __init__(
        self,
        cluster: RayCluster,
        settings: DistributedSettings,
        options: RunOptions,
        folder: Path | None,
    ) -> None:
        """
        Args:
            cluster: where they run.
            settings: how many there are, and how often they are started again.
            options: of the run, with its seed.
            folder: of the run; None where nothing is written.
        """
        self._cluster = cluster
        self._settings = settings
        self._options = ray.put(options)
        self._folder = None if folder is None else str(folder.absolute())
        self._answer_s = REPORT_S + options.env_settings.timeout_wait
        self._request: Any = None
        self._lives: dict[int, _Life] = {}
        self._calls: dict[Any, _Call] = {}
        self._starting: dict[Any, _Life] = {}
        self._respawn_at: dict[int, float] = {}
        self._deaths = dict.fromkeys(range(settings.num_workers), 0)
        self._backoff_s = dict.fromkeys(range(settings.num_workers), _FIRST_BACKOFF_S)
        self._placement_at = time.monotonic() + _PLACEMENT_S
        for number in range(settings.num_workers):
            self._spawn(number)

    def ready(self) -> Sequence[int]:
        """Numbers of the workers whose simulators were started, in order."""
        return sorted(number for number, life in self._lives.items() if life.host)

    def publish(self, request: SampleRequest) -> None:
        """Puts a request into Ray's object store, from where each node fetches it once."""
        self._request = ray.put(request)

    def ask(self, worker: int, share: Share | None) -> None:
        """Lets a worker collect for the newest request; None goes on with its share."""
        life = self._lives[worker]
        request = None if share is None else self._request
        ref = life.actor.collect.remote(request, share)
        waiting = sum(call.life is life for call in self._calls.values())
        self._calls[ref] = _Call(life, time.monotonic() + (1 + waiting) * self._answer_s)

    def wait(self, timeout_s: float) -> list[tuple[int, SampleResult] | WorkerLost]:
        """Returns what has come, after waiting for the first of it; starts workers again that are due.

        Raises:
            UserError: a simulator does not fit the configuration.
            LaunchError: a worker's simulators could not be started.
        """
        now = time.monotonic()
        for number in [number for number, at in self._respawn_at.items() if at <= now]:
            del self._respawn_at[number]
            self._spawn(number)
        refs = [*self._starting, *self._calls]
        if not refs:
            time.sleep(timeout_s)
            return []
        ray.wait(refs, num_returns=1, timeout=timeout_s, fetch_local=False)
        done, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        came: list[tuple[int, SampleResult] | WorkerLost] = []
        for ref in done:
            if ref in self._starting:
                self._handle_start(ref)
            elif ref in self._calls:  # not one of a life that ended a moment ago
                came += self._handle_answer(ref)
        came += self._end_silent()
        self._log_placement()
        return came

    def close(self) -> None:
        """Ends all workers and their simulators, those that do not answer by force."""
        closing = []
        for life in self._lives.values():
            with suppress(RayError):
                closing.append(life.actor.close.remote())
        with suppress(RayError):
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S) if closing else None
        for life in self._lives.values():
            _kill(life)
        self._lives.clear()

    def _spawn(self, number: int) -> None:
        options = {
            "num_cpus": self._settings.cpus_per_worker,
            "max_restarts": 0,
            "max_task_retries": 0,
            "name": None,
        }
        actor = (
            ray.remote(WorkerProcess)
            .options(**options)
            .remote(number, self._options, self._folder, os.getcwd())
        )
        life = self._lives[number] = _Life(number, actor)
        self._starting[actor.start.remote()] = life

    def _handle_start(self, ref: Any) -> None:
        life = self._starting.pop(ref)
        try:
            answer = ray.get(ref)
        except RayError as error:
            answer = WorkerFailure("internal", _reason(error))
        if isinstance(answer, WorkerFailure):
            if not self._deaths[life.number]:
                _raise(life.number, answer)
            self._end(life, answer.message)
            return
        life.host = answer
        _logger.info("Worker %d runs on %s.", life.number, life.host)

    def _handle_answer(self, ref: Any) -> list[tuple[int, SampleResult] | WorkerLost]:
        life = self._calls.pop(ref).life
        try:
            answer = ray.get(ref)
        except RayError as error:
            return [self._end(life, _reason(error))]
        if isinstance(answer, SampleResult):
            if not life.has_collected and answer.batches:
                life.has_collected = True
                self._backoff_s[life.number] = _FIRST_BACKOFF_S
            return [(life.number, answer)]
        if answer.kind in ("user", "launch"):
            _raise(life.number, answer)
        return [self._end(life, answer.message)]

    def _end_silent(self) -> list[WorkerLost]:
        """Ends workers that have not answered in time."""
        now = time.monotonic()
        silent = {call.life for call in self._calls.values() if call.deadline <= now}
        return [self._end(life, f"no answer for {self._answer_s:g} s") for life in silent]

    def _end(self, life: _Life, reason: str) -> WorkerLost:
        """Ends a worker's process, whatever it does, and plans its next life."""
        number = life.number
        _kill(life)
        self._calls = {ref: call for ref, call in self._calls.items() if call.life is not life}
        del self._lives[number]
        self._deaths[number] += 1
        most = self._settings.max_worker_restarts
        if 0 <= most < self._deaths[number]:
            return WorkerLost(number, f"{reason}; it was restarted {most} times, and is not again")
        wait_s = self._backoff_s[number]
        self._backoff_s[number] = min(2 * wait_s, _LONGEST_BACKOFF_S)
        self._respawn_at[number] = time.monotonic() + wait_s
        return WorkerLost(number, f"{reason}; starting it again in {wait_s:g} s")

    def _log_placement(self) -> None:
        """Says why workers wait for a place, every now and then."""
        now = time.monotonic()
        if now < self._placement_at:
            return
        self._placement_at = now + _PLACEMENT_S
        if any(now - life.born >= _PLACEMENT_S for life in self._starting.values()):
            settings = self._settings
            if problem := self._cluster.placement_problem(settings.num_workers, settings.cpus_per_worker):
                _logger.warning("%s", problem)


def _raise(number: int, failure: WorkerFailure) -> None:
    message = f"worker {number}: {failure.message}"
    if failure.kind == "user":
        raise UserError(message)
    raise LaunchError(message)


def _reason(error: RayError) -> str:
    """The first line of what Ray says."""
    if isinstance(error, RayTaskError):
        return str(error).strip().splitlines()[-1]
    if isinstance(error, RayActorError):
        return "its process ended: " + " ".join(str(error).split())[:300]
    return " ".join(str(error).split())[:300]


def _kill(life: _Life) -> None:
    with suppress(RayError, ValueError):
        ray.kill(life.actor, no_restart=True)


@contextmanager
def ray_workers(
    cluster: RayCluster, settings: DistributedSettings, options: RunOptions, folder: Path | None
) -> Iterator[RayWorkers]:
    """The workers of a run, for as long as the context lasts."""
    workers = RayWorkers(cluster, settings, options, folder)
    try:
        yield workers
    finally:
        workers.close()
