"""Rollout workers as Ray actors: started, called, monitored, and restarted when their processes die.

Ray places processes and transfers arrays. This module adds timeouts of answers, and the number and delays of restarts.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
)

from trainer_service.config import RunOptions
from trainer_service.config.distributed import DistributedSettings
from trainer_service.distributed.ray_cluster import RayCluster
from trainer_service.distributed.ray_watch import RayWatch
from trainer_service.distributed.records import CollectionQuota, SampleRequest, SampleResult
from trainer_service.distributed.rollout_workers import WorkerLost
from trainer_service.distributed.worker import REPORT_S
from trainer_service.distributed.worker_process import WorkerFailure, WorkerProcess
from trainer_service.errors import OutOfMemory, UserError
from unity_bridge.errors import BridgeError, LaunchError

_logger = logging.getLogger(__name__)

_CLOSE_S = 4.0
"""Seconds that workers have to end their simulators."""

_LOADING_S = 60.0
"""Seconds that a worker has to load its modules, in addition to ``timeout_wait``: shared disks may be slow."""

_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 60.0
"""Seconds until a lost worker is restarted. They double after each life without collected experience."""

_PLACEMENT_S = 10.0
"""Seconds between log messages about workers that wait for a place."""

_LONGEST_REASON = 300
"""Longest quoted reason of a loss, in characters."""

_ADDRESS = re.compile(r"\bip[=:] ?([\w.:]+)")


class ClusterLost(BridgeError):
    """The Ray cluster does not answer calls any more."""


class _Phase(Enum):
    """The kinds of calls to a worker."""

    PLACE = "place"
    START = "start"
    COLLECT = "collect"


@dataclass(slots=True, eq=False)
class _Life:
    """One process of a worker."""

    number: int
    actor: Any
    born: float
    host: str = ""
    """Name of the machine; empty before placement."""
    is_ready: bool = False
    """Whether its simulators have started."""
    has_collected: bool = False


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that a worker has not answered."""

    life: _Life
    phase: _Phase
    deadline: float
    """Time limit, by ``time.monotonic``."""


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
            cluster: the cluster of the workers.
            settings: number of workers, and of their restarts.
            options: of the run, with its seed.
            folder: of the run; None if nothing is written.

        Raises:
            ClusterLost: The cluster does not accept the workers.
        """
        self._cluster = cluster
        self._settings = settings
        self._folder = None if folder is None else str(folder.absolute())
        self._wait_s = options.env_settings.timeout_wait
        self._plugins = options.plugins
        self._request: Any = None
        self._lives: dict[int, _Life] = {}
        self._calls: dict[Any, _Call] = {}
        self._respawn_at: dict[int, float] = {}
        self._experienced: set[int] = set()
        """Workers that have collected experience, so that errors of their start are excluded."""
        self._deaths = dict.fromkeys(range(settings.num_workers), 0)
        self._backoff_s = dict.fromkeys(range(settings.num_workers), _FIRST_BACKOFF_S)
        self._placement_at = time.monotonic() + _PLACEMENT_S
        with self._cluster_calls():
            self._watch = RayWatch(cluster.name)
            self._options = ray.put(options)
            for number in range(settings.num_workers):
                self._spawn(number)

    def ready(self) -> Sequence[int]:
        """Numbers of the workers with started simulators, in order."""
        return sorted(number for number, life in self._lives.items() if life.is_ready)

    def publish(self, request: SampleRequest) -> None:
        """Stores a request in Ray's object store, from which each node fetches it once.

        Raises:
            OutOfMemory: The object store is full.
            ClusterLost: The cluster is lost.
        """
        self._require_ray(now=True)
        with self._cluster_calls():
            self._request = ray.put(request)

    def ask(self, worker: int, quota: CollectionQuota | None) -> None:
        """Makes a worker collect for the newest request. quota: None continues with its present quota."""
        life = self._lives[worker]
        request = None if quota is None else self._request
        waiting = sum(call.life is life for call in self._calls.values())
        with self._cluster_calls():
            ref = life.actor.collect.remote(request, quota)
        self._calls[ref] = _Call(life, _Phase.COLLECT, time.monotonic() + (1 + waiting) * self._answer_s)

    def wait(self, timeout_s: float) -> list[tuple[int, SampleResult] | WorkerLost]:
        """Waits for the first result, and returns all results that arrived. Restarts workers that are due.

        Raises:
            UserError: A simulator does not fit the configuration.
            LaunchError: A worker's simulators could not be started.
            ClusterLost: The cluster is lost.
        """
        self._require_ray()
        now = time.monotonic()
        for number in [number for number, at in self._respawn_at.items() if at <= now]:
            del self._respawn_at[number]
            with self._cluster_calls():
                self._spawn(number)
        if not self._calls:
            time.sleep(timeout_s)
            return []
        came: list[tuple[int, SampleResult] | WorkerLost] = []
        for ref in self._answered(timeout_s):
            if (call := self._calls.pop(ref, None)) is not None:  # otherwise its life ended a moment ago
                came += self._handle(call, ref)
        came += self._end_silent()
        self._log_placement()
        return came

    def close(self) -> None:
        """Ends all workers and their simulators. Workers that do not answer are killed."""
        closing = []
        for life in self._lives.values():
            if not life.host:
                continue  # it is not placed, or has not loaded anything yet
            with suppress(*_CLUSTER_ERRORS):
                closing.append(life.actor.leave.remote())
        with suppress(*_CLUSTER_ERRORS):
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S) if closing else None
        for life in self._lives.values():
            _kill(life)
        self._lives.clear()
        self._calls.clear()

    @property
    def _answer_s(self) -> float:
        """Seconds that a worker has for an answer."""
        return REPORT_S + self._wait_s

    def _spawn(self, number: int) -> None:
        """Requests a process from Ray. Its simulators start after placement."""
        options = {
            "num_cpus": self._settings.cpus_per_worker,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",  # simulators need cores, and a lost node then ends few workers
        }
        actor = ray.remote(WorkerProcess).options(**options).remote(number)
        life = self._lives[number] = _Life(number, actor, time.monotonic())
        self._calls[actor.place.remote(self._plugins)] = _Call(life, _Phase.PLACE, float("inf"))

    def _answered(self, timeout_s: float) -> list[Any]:
        """Waits for the first answer, and returns all answers that arrived."""
        refs = list(self._calls)
        with self._cluster_calls():
            ray.wait(refs, num_returns=1, timeout=timeout_s, fetch_local=False)
            done, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        return list(done)

    def _handle(self, call: _Call, ref: Any) -> list[tuple[int, SampleResult] | WorkerLost]:
        """Handles an answer by its kind."""
        life = call.life
        try:
            answer = ray.get(ref, timeout=self._answer_s)
        except (RayError, ConnectionError) as error:
            self._require_cluster(error)
            return [self._handle_error(life, error)]
        if isinstance(answer, WorkerFailure):
            return [self._handle_failure(life, answer)]
        if call.phase is _Phase.PLACE:
            life.host = str(answer)
            self._start(life)
        elif call.phase is _Phase.START:
            life.is_ready = True
            _logger.info("Worker %d runs on %s.", life.number, life.host)
        elif isinstance(answer, SampleResult):
            if not life.has_collected and answer.batches:
                life.has_collected = True
                self._experienced.add(life.number)
                self._backoff_s[life.number] = _FIRST_BACKOFF_S
            return [(life.number, answer)]
        return []

    def _start(self, life: _Life) -> None:
        with self._cluster_calls():
            ref = life.actor.start.remote(self._options, self._folder, os.getcwd())
        self._calls[ref] = _Call(life, _Phase.START, time.monotonic() + _LOADING_S + self._wait_s)

    def _handle_error(self, life: _Life, error: Exception) -> WorkerLost:
        """Ends the life of a worker without an answer.

        Raises:
            LaunchError: Its code cannot be loaded on its machine.
        """
        cannot_load = isinstance(error, RuntimeEnvSetupError) or getattr(error, "actor_init_failed", False)
        if cannot_load and life.number not in self._experienced:
            host = life.host or _address_in(str(error))
            raise LaunchError(
                f"worker {life.number}{f' on {host}' if host else ''}: its process cannot be started: {_reason(error)}"
                "; every machine of the cluster needs the same version of trainer-service"
            )
        return self._end(life, _reason(error))

    def _handle_failure(self, life: _Life, failure: WorkerFailure) -> WorkerLost:
        """Ends the life of a worker that cannot continue.

        Raises:
            UserError, LaunchError, BridgeError: The worker never collected, so a restart would fail in the same way.
        """
        if failure.traceback:
            _logger.error("worker %d on %s: %s", life.number, life.host, failure.traceback.rstrip())
        if life.number not in self._experienced and failure.kind != "simulators":
            where = f" on {life.host}" if life.host else ""
            message = f"worker {life.number}{where}: {failure.message}"
            raise _ERRORS[failure.kind](message)
        return self._end(life, failure.message)

    def _end_silent(self) -> list[WorkerLost]:
        """Ends workers that have not answered in time."""
        now = time.monotonic()
        silent = {call.life: call for call in self._calls.values() if call.deadline <= now}
        return [
            self._end(
                life,
                f"no answer for {self._answer_s:g} s"
                if call.phase is _Phase.COLLECT
                else f"not started after {_LOADING_S + self._wait_s:g} s",
            )
            for life, call in silent.items()
        ]

    def _end(self, life: _Life, reason: str) -> WorkerLost:
        """Ends a worker's process, even a busy one, and schedules its next life."""
        number = life.number
        _kill(life)
        self._calls = {ref: call for ref, call in self._calls.items() if call.life is not life}
        del self._lives[number]
        self._deaths[number] += 1
        most = self._settings.max_worker_restarts
        where = f"on {life.host}" if life.host else "before it had a place"
        if 0 <= most < self._deaths[number]:
            plan = f"it was restarted {most} times (max_worker_restarts), and is not again"
            return WorkerLost(number, f"{plan}; {where}: {reason}", comes_back=False)
        wait_s = self._backoff_s[number]
        self._backoff_s[number] = min(2 * wait_s, _LONGEST_BACKOFF_S)
        self._respawn_at[number] = time.monotonic() + wait_s
        return WorkerLost(number, f"starting it again in {wait_s:g} s; {where}: {reason}")

    def _log_placement(self) -> None:
        """Logs at intervals why workers wait for a place."""
        now = time.monotonic()
        if now < self._placement_at:
            return
        self._placement_at = now + _PLACEMENT_S
        homeless = [
            life.number for life in self._lives.values() if not life.host and now - life.born >= _PLACEMENT_S
        ]
        if not homeless:
            return
        settings = self._settings
        with self._cluster_calls():
            problem = self._cluster.placement_problem(settings.num_workers, settings.cpus_per_worker)
        _logger.warning(
            "Waiting for resources for %s of %d workers%s",
            len(homeless), settings.num_workers, f": {problem}" if problem else ", which Ray is starting",
        )  # fmt: skip

    @contextmanager
    def _cluster_calls(self) -> Iterator[None]:
        """A context for calls that the cluster itself answers.

        Raises:
            OutOfMemory: The shared memory is full.
            ClusterLost: The cluster does not answer, or answers with an error.
        """
        try:
            yield
        except (ObjectStoreFullError, OutOfDiskError) as error:
            raise OutOfMemory(
                "The memory that Ray's processes share is full: lower num_workers or buffer_size, or give Ray more "
                f"(ray start --object-store-memory): {_words(error)}"
            ) from error
        except _CLUSTER_ERRORS as error:
            raise self._lost(_words(error)) from error

    def _require_ray(self, *, now: bool = False) -> None:
        """Raises ClusterLost if a Ray process that this process needs has ended."""
        if missing := self._watch.missing(now=now):
            raise self._lost(missing)

    def _lost(self, reason: str) -> ClusterLost:
        return ClusterLost(
            f"Ray on {self._cluster.name} is lost: {reason}. --resume continues from what is saved"
        )

    def _require_cluster(self, error: Exception) -> None:
        """Raises ClusterLost if an error concerns the connection to the cluster instead of a worker."""
        if isinstance(error, ConnectionError) or not ray.is_initialized():
            with self._cluster_calls():
                raise error


_ERRORS: dict[str, type[UserError] | type[BridgeError]] = {
    "user": UserError,
    "launch": LaunchError,
    "internal": BridgeError,
}
_CLUSTER_ERRORS = (RayError, ConnectionError, RuntimeError, ValueError)
"""Errors of calls that the cluster cannot answer; Ray has no common class for them."""


def _reason(error: Exception) -> str:
    """Returns Ray's reason for the end of a worker, in one line."""
    if isinstance(error, GetTimeoutError):
        return "its result did not arrive"
    if isinstance(error, RayTaskError) or getattr(error, "actor_init_failed", False):
        return str(error).strip().splitlines()[-1][:_LONGEST_REASON]
    if isinstance(error, RayActorError):
        return _cause(str(error))
    return _words(error)


def _cause(text: str) -> str:
    """Returns the reason for an actor's end, without its name and Ray's advice."""
    if "connection error code" in text:
        return "its process was killed, or crashed"
    if "its node has died" in text:
        return "its node is gone"
    if "unavailable" in text:
        return "its process, or its node, cannot be reached"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines[1:] if not re.match(r"\w+: ", line)] or lines
    return "its process ended: " + " ".join(told).removeprefix("The actor is dead because ")[:_LONGEST_REASON]


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__


def _address_in(text: str) -> str:
    """Returns the address of an error's machine; empty if the text has none."""
    found = _ADDRESS.search(text)
    return "" if found is None else found[1].rstrip(",)")


def _kill(life: _Life) -> None:
    with suppress(*_CLUSTER_ERRORS):
        ray.kill(life.actor, no_restart=True)


@contextmanager
def ray_workers(
    cluster: RayCluster, settings: DistributedSettings, options: RunOptions, folder: Path | None
) -> Iterator[RayWorkers]:
    """Yields the workers of a run. They end with the context."""
    workers = RayWorkers(cluster, settings, options, folder)
    try:
        yield workers
    finally:
        workers.close()
