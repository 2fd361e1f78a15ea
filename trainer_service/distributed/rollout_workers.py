"""Rollout workers as the source of a run's experience: who is asked for how much, and what has come.

Synchronous collection goes in rounds: every worker gets a share of what the next update needs, to be collected with the
newest policies, and nothing is taken in until all are done. Results are taken in by the workers' numbers, so that with
deterministic simulators a run can be repeated bit for bit. Asynchronous collection never waits: a worker has up to two
requests before it, and what comes is taken in at once unless its policy is too old.

No worker has learnt state. What one of them loses with its process is asked for again, and only counted.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainer_service.behaviors.behavior import Behavior
from trainer_service.behaviors.registry import Behaviors
from trainer_service.collection.collectors import TeamName
from trainer_service.config.distributed import DistributedSettings
from trainer_service.curriculum import Curriculum
from trainer_service.distributed.records import (
    PublishedPolicy,
    SampleRequest,
    SampleResult,
    Share,
    as_arrays,
    writable,
)
from trainer_service.metrics.timers import Timers
from unity_bridge.errors import SimulatorLost
from unity_bridge.side_channels import Aggregation, StatMessage
from unity_bridge.specs import BehaviorSpec

_logger = logging.getLogger(__name__)

_POLL_S = 0.5
"""How long ``collect`` waits for results before its caller looks whether it shall stop."""

FRAGMENT_STEPS = 64
"""Agent steps that a worker collects at once for a learner that updates all the time."""

ASYNC_FRACTION = 4
"""Fragments that a worker's share of an update is cut into where collecting never waits."""

_LARGEST_BUDGET = 4
"""Steps, complete or not, that a worker counts at most for each one that it is asked for, where others wait for it."""

IN_FLIGHT = 2
"""Requests that a worker has before it where collecting never waits: one that it works on, and the next."""


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The end of a worker's process, or of its simulators."""

    worker: int
    reason: str


class WorkerPool(Protocol):
    """The processes of the workers: those that are there are asked, those that die are started again."""

    def ready(self) -> Sequence[int]:
        """Numbers of the workers that can be asked."""
        ...

    def publish(self, request: SampleRequest) -> None:
        """Makes a request that ``ask`` refers to from now on: what all workers are told is sent once."""
        ...

    def ask(self, worker: int, share: Share | None) -> None:
        """Lets a worker collect for the request that was published last; None goes on with its share."""
        ...

    def wait(self, timeout_s: float) -> Sequence[tuple[int, SampleResult] | WorkerLost]:
        """Waits until something has come, and returns it. Raises where no worker could ever work."""
        ...


@dataclass(slots=True)
class _Worker:
    """What is known of one worker."""

    promised: list[Share] = field(default_factory=list)
    """Shares that it has not fulfilled, oldest first."""

    is_lost: bool = False
    """Whether its last process ended, and the next has not delivered anything."""

    results: list[SampleResult] = field(default_factory=list)
    """Results of this round that wait until all are there."""

    wanted: int = 0
    """Agent steps that it was asked for and has not delivered."""

    collected: int = 0
    """Agent steps that it has delivered in all."""

    version: int = 0
    """The oldest policy that its last result was collected with."""

    lost: int = 0
    """How often its process ended."""

    timers: str = "{}"


class RolloutWorkers:
    """The workers of a run, as ``learn`` sees them: ``collect`` takes in what came, ``act`` lets them go on."""

    def __init__(
        self,
        pool: WorkerPool,
        settings: DistributedSettings,
        behaviors: Behaviors,
        curriculum: Curriculum,
        added: Callable[[Behavior], None],
        timers: Timers | None = None,
        *,
        timeout_wait_s: float = 60.0,
    ) -> None:
        """
        Args:
            pool: the processes.
            settings: how they collect.
            behaviors: what is collected for.
            curriculum: the environment parameters.
            added: called with each behavior that is new.
            timers: of the trainer's process.
            timeout_wait_s: how long fewer workers than ``min_workers`` may be there.
        """
        self._pool = pool
        self._settings = settings
        self._behaviors = behaviors
        self._curriculum = curriculum
        self._added = added
        self._timers = timers or Timers()
        self._timeout_wait_s = timeout_wait_s
        self._workers: dict[int, _Worker] = {number: _Worker() for number in range(settings.num_workers)}
        self._specs: dict[str, BehaviorSpec] = {}
        self._requests = 0
        self._restarts = 0
        self._lost_steps = 0
        self._dropped_steps = 0
        self._enough_until = time.monotonic() + timeout_wait_s

    @property
    def is_async(self) -> bool:
        """Whether workers collect while the learner learns."""
        return self._settings.collection == "async"

    def collect(self) -> None:
        """Waits for results, though not for long, and gives the behaviors what is complete.

        Raises:
            UserError: a simulator that does not fit the configuration.
            BridgeError: simulators that could not be started, or too few workers for too long.
        """
        with self._timers("wait"):
            events = self._pool.wait(_POLL_S)
        for event in events:
            if isinstance(event, WorkerLost):
                self._handle_loss(event)
            else:
                self._handle_result(*event)
        self._require_enough()
        if self.is_async or not any(worker.promised for worker in self._workers.values()):
            with self._timers("add"):
                self._take_in_all()

    def _take_in_all(self) -> None:
        """Gives the behaviors every result that waits, by the workers' numbers."""
        for number, worker in sorted(self._workers.items()):
            results, worker.results = worker.results, []
            for result in results:
                self._take_in(number, worker, result)

    def act(self) -> None:
        """Asks the workers for more, with the policies as they are now."""
        if not self.is_async and any(worker.promised for worker in self._workers.values()):
            return
        ready = self._pool.ready()
        free = {number: self._limit - len(self._workers[number].promised) for number in ready}
        if not any(free.values()):
            return
        with self._timers("publish"):
            self._pool.publish(self._request())
        for _ in range(self._limit):
            shares = [self._share(index, len(ready)) for index in range(len(ready))]
            for number, share in zip(ready, shares, strict=True):
                if free[number] > 0 and share is not None:
                    free[number] -= 1
                    self._ask(number, share)

    def send_parameters(self) -> None:
        """Does nothing: every request has the lessons that are in force."""

    def restart(self) -> None:
        """Lets all episodes begin anew with the next request."""
        self._restarts += 1

    @property
    def _limit(self) -> int:
        return IN_FLIGHT if self.is_async else 1

    def _ask(self, number: int, share: Share) -> None:
        worker = self._workers[number]
        worker.promised.append(share)
        worker.wanted += sum(share.steps.values())
        self._pool.ask(number, share)

    def _request(self) -> SampleRequest:
        self._requests += 1
        return SampleRequest(
            number=self._requests - 1,
            policies={name: published(behavior) for name, behavior in self._behaviors.items()},
            parameters=self._curriculum.messages(),
            restarts=self._restarts,
        )

    def _share(self, index: int, workers: int) -> Share | None:
        """The share of one of so many workers; None where nothing is left for it."""
        steps: dict[str, int] = {}
        budget: dict[str, int] = {}
        for name, behavior in self._behaviors.items():
            if behavior.finished:
                continue
            steps[name] = self._steps(behavior, index, workers)
            budget[name] = self._budget(behavior, steps[name], index, workers)
        if not self._behaviors:
            return Share({}, {})
        wanted = [name for name in steps if steps[name] and budget[name]]
        if not wanted:
            return None
        return Share({name: steps[name] for name in wanted}, {name: budget[name] for name in wanted})

    def _steps(self, behavior: Behavior, index: int, workers: int) -> int:
        """Agent steps that a worker shall collect at once for a behavior."""
        if self._settings.fragment_steps is not None:
            return self._settings.fragment_steps
        collected = behavior.collected
        if collected is None:
            return FRAGMENT_STEPS
        have, of = collected
        if self.is_async:
            return max(-(-of // (workers * ASYNC_FRACTION)), 1)
        return _part(max(of - have, 1), index, workers)

    def _budget(self, behavior: Behavior, steps: int, index: int, workers: int) -> int:
        """Agent steps that a worker may add to a behavior's count, so that all together keep to ``max_steps``."""
        if not behavior.training:
            return steps  # it has no budget, and nothing that is complete is wanted of it
        promised = [share for worker in self._workers.values() for share in worker.promised]
        left = behavior.settings.max_steps - behavior.step
        left -= sum(share.budget.get(behavior.name, 0) for share in promised)
        part = _part(max(left, 0), index, workers)
        return min(part, _LARGEST_BUDGET * steps) if self.is_async else part

    def _handle_result(self, number: int, result: SampleResult) -> None:
        worker = self._workers[number]
        worker.is_lost = False
        for level, text in result.log:
            _logger.log(level, "worker %d: %s", number, text)
        worker.timers = result.timers
        worker.results.append(result)
        if result.complete or self.is_async:
            worker.promised.pop(0)
        else:
            self._pool.ask(number, None)

    def _take_in(self, number: int, worker: _Worker, result: SampleResult) -> None:
        """Gives the behaviors what a worker has collected."""
        for declared in result.declared:
            self._declare(number, declared.team, declared.spec, declared.group_size)
        for team in sorted(result.teams):
            if team.name in self._specs:
                self._declare(number, team, self._specs[team.name], 1)
        known = {team for team in result.teams if team.name in self._specs}
        gone = worker.is_lost
        self._behaviors.keep(number, set() if gone else known | {each.team for each in result.declared})
        for name, batch in result.batches:
            behavior = self._behaviors[name]
            lag = behavior.updates - result.versions.get(name, behavior.updates)
            steps = 0 if batch.trajectories is None else len(batch.trajectories)
            worker.collected += batch.transitions
            worker.wanted = max(worker.wanted - steps, 0)
            worker.version = result.versions.get(name, 0)
            if self.is_async and lag > self._settings.max_policy_lag:
                self._dropped_steps += steps
                _add(behavior, "Dropped Steps", steps, Aggregation.SUM)
                continue
            if steps:
                _add(behavior, "Policy Lag", lag, Aggregation.AVERAGE)
            behavior.add(writable(batch))
        for name, stat in result.stats:
            # The most recent among several simulators is chance, so the first worker's counts.
            if stat.aggregation is not Aggregation.MOST_RECENT or number == 0:
                self._behaviors[name].add_stat(stat)

    def _declare(self, number: int, team: TeamName, spec: BehaviorSpec, group_size: int) -> None:
        is_new = team.name not in self._behaviors
        behavior = self._behaviors.declare(number, team, spec, group_size)
        if is_new:
            self._specs[team.name] = spec
            self._added(behavior)
            _logger.info("Connected new brain: %s?team=%d", *team)

    def _handle_loss(self, loss: WorkerLost) -> None:
        """Counts what is lost; the others will be asked for it, and the process is started again."""
        worker = self._workers[loss.worker]
        _logger.warning("Worker %d is lost: %s", loss.worker, loss.reason)
        in_hand = sum(
            len(batch.trajectories)
            for result in worker.results
            for _, batch in result.batches
            if batch.trajectories is not None
        )
        lost = max(worker.wanted - in_hand, 0)
        self._lost_steps += lost
        for behavior in self._behaviors.values():
            _add(behavior, "Lost Steps", lost, Aggregation.SUM)
        worker.promised, worker.wanted, worker.is_lost = [], 0, True
        worker.lost += 1
        self._behaviors.remove(loss.worker)

    def _require_enough(self) -> None:
        """Raises SimulatorLost where too few workers are there for too long."""
        now = time.monotonic()
        ready = len(self._pool.ready())
        if ready >= self._settings.min_workers:
            self._enough_until = now + self._timeout_wait_s
        elif now >= self._enough_until:
            raise SimulatorLost(
                f"{ready} of {self._settings.num_workers} rollout workers are there, and min_workers: "
                f"{self._settings.min_workers} asks for more; none came for {self._timeout_wait_s:g} s (timeout_wait)"
            )

    def timers(self) -> Mapping[str, Any]:
        """The workers' timers, as ``timers.json`` has them."""
        return {f"worker {number}": json.loads(worker.timers) for number, worker in self._workers.items()}


def published(behavior: Behavior) -> PublishedPolicy:
    """A behavior's policy as it is now."""
    learning_team, opponents = None, {}
    if (rules := behavior.self_play) is not None:
        learning_team = rules.learning_team
        opponents = {team: as_arrays(snapshot.weights) for team, snapshot in rules.opponents().items()}
    return PublishedPolicy(
        spec=behavior.spec,
        settings=behavior.settings,
        version=behavior.updates,
        step=behavior.step,
        state=as_arrays(behavior.acting_state()),
        seed=behavior.seed,
        training=behavior.training,
        learning_team=learning_team,
        opponents=opponents,
    )


def _part(whole: int, index: int, workers: int) -> int:
    """Part number ``index`` of so many that add up to the whole and differ by one at most."""
    return whole // workers + (index < whole % workers)


def _add(behavior: Behavior, name: str, value: float, aggregation: Aggregation) -> None:
    behavior.add_stat(StatMessage(f"Distributed/{name}", float(value), aggregation))
