"""Rollout workers as the source of a run's experience: their quotas and their results.

Synchronous collection has rounds. Every worker gets a quota of the steps for the next update, and collects it with the
newest policies. No result is used until all workers are done. Then results are used in the order of the workers'
numbers, so that runs with deterministic simulators are reproducible bit for bit. Asynchronous collection never waits.
A worker has up to two requests, and its results are used at once unless their policy is too old.

Workers have no learner state. The steps that are lost with a worker's process are requested again, and only counted.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer_service.config.distributed import DistributedSettings
from trainer_service.distributed.collection_quotas import Demand, quota_of
from trainer_service.distributed.records import (
    CollectionQuota,
    PublishedOpponent,
    PublishedPolicy,
    SampleRequest,
    SampleResult,
    as_arrays,
    writable,
)
from trainer_service.distributed.worker_statistics import WorkerState, WorkerStatistics, add_statistic
from trainer_service.errors import UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.registry import Behaviors
from trainer_service.running.collection.opponents import FixedOpponent
from trainer_service.running.collection.router import BehaviorId
from trainer_service.running.curriculum import Curriculum
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.checkpoint import plain_checkpoint
from unity_bridge.errors import SimulatorLost
from unity_bridge.side_channels import Aggregation
from unity_bridge.specs import BehaviorSpec

_logger = logging.getLogger(__name__)

_POLL_S = 0.5
"""Seconds that ``collect`` waits for results before its caller checks whether to stop."""

FRAGMENT_STEPS = 64
"""Agent steps in one quota of a worker, for a learner that updates continuously."""

ASYNC_FRACTION = 4
"""Number of quotas that a worker's part of an update is divided into in asynchronous collection."""

IN_FLIGHT = 2
"""Requests of a worker in asynchronous collection: the present one and the next."""


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The end of a worker's process, or of its simulators."""

    worker: int
    reason: str
    comes_back: bool = True
    """Whether it is restarted."""


class WorkerPool(Protocol):
    """The processes of the workers. Ready workers are called, and lost workers are restarted."""

    def ready(self) -> Sequence[int]:
        """Numbers of the ready workers."""
        ...

    def publish(self, request: SampleRequest) -> None:
        """Publishes a request for the following calls of ``ask``, so that common inputs are sent once."""
        ...

    def ask(self, worker: int, quota: CollectionQuota | None) -> None:
        """Makes a worker collect for the last published request. quota: None continues with its present quota."""
        ...

    def wait(self, timeout_s: float) -> Sequence[tuple[int, SampleResult] | WorkerLost]:
        """Waits for the first result, and returns all results. Raises an error if workers can never work."""
        ...


class RolloutWorkers:
    """A run's workers, as the source of ``learn``: ``collect`` uses their results, ``act`` requests more."""

    def __init__(
        self,
        pool: WorkerPool,
        settings: DistributedSettings,
        behaviors: Behaviors,
        curriculum: Curriculum,
        added: Callable[[Behavior], None],
        timers: Timers | None = None,
        show: Callable[[Sequence[str]], None] = lambda lines: None,
        *,
        timeout_wait_s: float = 60.0,
    ) -> None:
        """
        Args:
            pool: the workers' processes.
            settings: the settings of collection.
            behaviors: the behaviors of the run.
            curriculum: the environment parameters.
            added: called with each new behavior.
            timers: of the trainer's process.
            show: shows lines on the workers.
            timeout_wait_s: seconds that fewer workers than ``min_workers`` may be ready.
        """
        self._pool = pool
        self._settings = settings
        self._behaviors = behaviors
        self._curriculum = curriculum
        self._added = added
        self._timers = timers or Timers()
        self._show = show
        self._timeout_wait_s = timeout_wait_s
        self._workers: dict[int, WorkerState] = {
            number: WorkerState() for number in range(settings.num_workers)
        }
        self._request: SampleRequest | None = None
        self._published: Hashable = None
        """Key of the newest request's contents."""
        self._topics: set[str] = set()
        """Topics of logged notices."""
        self._quotas_made = 0
        self._restarts = 0
        self._statistics = WorkerStatistics(self._timers)
        self._begin_at = time.monotonic() + timeout_wait_s
        self._has_begun = self._had_enough = False
        self._too_few_since: float | None = None

    @property
    def is_async(self) -> bool:
        """Whether workers collect during updates."""
        return self._settings.collection == "async"

    @property
    def num_simulators(self) -> int:
        """Number of ready workers."""
        return len(self._pool.ready())

    @property
    def num_restarts(self) -> int:
        """Number of ended worker processes."""
        return sum(worker.losses for worker in self._workers.values())

    def collect(self) -> None:
        """Waits briefly for results, and adds complete experience to the behaviors.

        Raises:
            UserError: A simulator does not fit the configuration.
            BridgeError: Simulators could not be started, or too few workers were ready for too long.
        """
        with self._timers("wait"):
            events = self._pool.wait(_POLL_S)
        for event in events:
            if isinstance(event, WorkerLost):
                self._handle_loss(event)
            else:
                self._handle_result(*event)
        self._require_enough()
        self._statistics.update(self._workers, len(self._pool.ready()), self._behaviors.values())
        self._show(self._statistics.lines)
        if self.is_async or not self._is_round_open:
            with self._timers("add"):
                self._take_in_all()

    def _take_in_all(self) -> None:
        """Adds all waiting results to the behaviors, in the order of the workers' numbers.

        Environment steps are counted last, so that all steps up to the end of the budget are learned from.
        """
        env_steps = sum(result.env_steps for worker in self._workers.values() for result in worker.results)
        for number, worker in sorted(self._workers.items()):
            results, worker.results = worker.results, []
            if results and not self.is_async:
                results = [SampleResult.merged(results)]
            for result in results:
                self._take_in(number, worker, result)
        self._behaviors.env_steps.taken += env_steps

    def act(self) -> None:
        """Requests more experience from the workers, with the present policies."""
        ready = self._pool.ready()
        if not self.is_async and (self._is_round_open or not self._have_all_started(ready)):
            return
        free = {number: self._limit - len(self._workers[number].promised) for number in ready}
        if not any(free.values()):
            return
        with self._timers("publish"):
            self._publish()
        for _ in range(self._limit):
            for number, quota in self._quotas(ready).items():
                if free[number] > 0 and quota is not None:
                    free[number] -= 1
                    self._ask(number, quota)

    def send_parameters(self) -> None:
        """Does nothing, since every request has the current lessons."""

    def restart(self) -> None:
        """Restarts all episodes with the next request."""
        self._restarts += 1

    @property
    def _is_round_open(self) -> bool:
        """Whether any worker has not fulfilled its quota."""
        return any(worker.promised for worker in self._workers.values())

    def _have_all_started(self, ready: Sequence[int]) -> bool:
        """Whether all workers are ready or were, or their time to start is over.

        The order of starts is random, so a reproducible run begins with all workers.
        """
        self._has_begun = (
            self._has_begun
            or len(ready) == self._settings.num_workers
            or any(worker.losses for worker in self._workers.values())
            or time.monotonic() >= self._begin_at
        )
        return self._has_begun

    @property
    def _limit(self) -> int:
        return IN_FLIGHT if self.is_async else 1

    def _ask(self, number: int, quota: CollectionQuota) -> None:
        worker = self._workers[number]
        worker.promised.append(quota)
        self._pool.ask(number, quota)

    def _publish(self) -> None:
        """Publishes the present policies, unless the workers have them."""
        lessons = self._curriculum.numbers
        key = (*lessons.values(), self._restarts, *map(_version, self._behaviors.values()))
        if self._request is not None and key == self._published and self.is_async:
            return
        self._published = key
        self._request = SampleRequest(
            number=0 if self._request is None else self._request.number + 1,
            policies={name: published(behavior) for name, behavior in self._behaviors.items()},
            lessons=lessons,
            restarts=self._restarts,
        )
        self._pool.publish(self._request)

    def _quotas(self, ready: Sequence[int]) -> dict[int, CollectionQuota | None]:
        """Returns the quotas of workers, by number; None for a worker without remaining steps."""
        wanted = {name: behavior for name, behavior in self._behaviors.items() if not behavior.finished}
        holders = {name: self._holders(name, ready) for name in wanted}
        demands = {
            name: Demand(
                steps=self._wanted_steps(behavior, len(holders[name])),
                left=self._left(behavior) if behavior.training else None,
                at_once=self._steps_at_once(name),
            )
            for name, behavior in wanted.items()
        }
        self._quotas_made += 1
        return {
            number: quota_of(demands, holders, number, self._quotas_made, bounded=self.is_async)
            for number in ready
        }

    def _holders(self, name: str, ready: Sequence[int]) -> Sequence[int]:
        """Returns the workers that may have agents of a behavior; all if none has.

        Other workers never fulfill such a quota. With all remaining steps in it, the run would not end.
        """
        known = {number: self._behaviors.names(number) for number in ready}
        return [number for number in ready if not known[number] or name in known[number]] or ready

    def _wanted_steps(self, behavior: Behavior, workers: int) -> int:
        """Returns the agent steps of a behavior that this number of workers collects at once."""
        if self._settings.fragment_steps is not None:
            return self._settings.fragment_steps * workers
        collected = behavior.collected
        if collected is None:
            return FRAGMENT_STEPS * workers
        have, of = collected
        return -(-of // ASYNC_FRACTION) if self.is_async else of - have

    def _left(self, behavior: Behavior) -> int:
        """Returns the remaining agent steps of a behavior's ``max_steps`` that are in no quota."""
        promised = [quota for worker in self._workers.values() for quota in worker.promised]
        asked = sum(quota.budget.get(behavior.name, 0) for quota in promised)
        return max(behavior.settings.max_steps - behavior.step - asked, 0)

    def _steps_at_once(self, name: str) -> int:
        """Returns a common divisor of the agent steps of all workers' ticks."""
        return math.gcd(*(worker.steps_at_once.get(name, 0) for worker in self._workers.values())) or 1

    def _handle_result(self, number: int, result: SampleResult) -> None:
        worker = self._workers[number]
        worker.is_lost = False
        for level, text, topic in result.log:
            if not topic or topic not in self._topics:
                _logger.log(level, "worker %d: %s", number, text)
            self._topics.add(topic)
        self._timers.processes[f"worker {number}"] = result.timers
        worker.collected += sum(batch.transitions for _, batch in result.batches)
        worker.steps_at_once = result.steps_at_once
        worker.version = min(result.versions.values(), default=0)
        worker.results.append(result)
        if result.complete or self.is_async:
            worker.promised.pop(0)
        else:
            self._pool.ask(number, None)

    def _take_in(self, number: int, worker: WorkerState, result: SampleResult) -> None:
        """Adds a worker's result to the behaviors."""
        for declared in result.declared:
            self._declare(number, declared.behavior_id, declared.spec, declared.group_size)
        for behavior_id in sorted(result.behavior_ids):
            if (behavior := self._behaviors.get(behavior_id.name)) is not None:
                self._declare(number, behavior_id, behavior.spec, 1)
        known = {each for each in result.behavior_ids if each.name in self._behaviors}
        gone = worker.is_lost
        self._behaviors.keep(
            number, set() if gone else known | {each.behavior_id for each in result.declared}
        )
        for name, batch in result.batches:
            behavior = self._behaviors[name]
            lag = behavior.updates - result.versions.get(name, behavior.updates)
            steps = 0 if batch.trajectories is None else len(batch.trajectories)
            if self._is_too_old(result, lag):
                add_statistic(behavior, "Dropped Steps", steps, Aggregation.SUM)
                continue
            if steps:
                add_statistic(behavior, "Policy Lag", lag, Aggregation.AVERAGE)
            behavior.add(writable(batch))
        for name, stat in result.stats:
            # The most recent value of several simulators is arbitrary, so the first worker's counts.
            first = self._holders(name, range(number + 1))[0]
            if stat.aggregation is not Aggregation.MOST_RECENT or number == first:
                self._behaviors[name].add_stat(stat)

    def _is_too_old(self, result: SampleResult, lag: int) -> bool:
        """Whether a result's policy is too old, or its episodes are of a past lesson or turn."""
        if not self.is_async:
            return False
        return lag > self._settings.max_policy_lag or result.restarts != self._restarts

    def _declare(self, number: int, behavior_id: BehaviorId, spec: BehaviorSpec, group_size: int) -> None:
        is_new = behavior_id.name not in self._behaviors
        try:
            behavior = self._behaviors.declare(number, behavior_id, spec, group_size)
        except UserError as error:
            raise UserError(f"worker {number}: {error}") from None
        if is_new:
            self._added(behavior)
            _logger.info("Connected new brain: %s", behavior_id.in_words(behavior.spec))

    def _handle_loss(self, loss: WorkerLost) -> None:
        """Counts the lost steps. Other workers collect them instead, and the process is restarted."""
        worker = self._workers[loss.worker]
        _logger.warning("Worker %d is lost: %s", loss.worker, loss.reason)
        # In asynchronous collection, results do not belong to promised quotas any more.
        in_hand = 0 if self.is_async else worker.in_hand
        lost = max(worker.wanted - in_hand, 0)
        for behavior in self._behaviors.values():
            add_statistic(behavior, "Lost Steps", lost, Aggregation.SUM)
            add_statistic(behavior, "Restarts", loss.comes_back, Aggregation.SUM)
        worker.promised, worker.is_lost = [], True
        worker.losses += 1
        worker.is_gone = not loss.comes_back
        self._behaviors.remove(loss.worker)

    def _require_enough(self) -> None:
        """Raises SimulatorLost if too few workers are ready for too long, or too few are left.

        Before enough workers were ready for the first time, they may wait for a place on the cluster without a limit.
        Log messages repeat that, and the user decides.
        """
        ready, least = len(self._pool.ready()), self._settings.min_workers
        if ready >= least:
            self._had_enough, self._too_few_since = True, None
            return
        left = sum(not worker.is_gone for worker in self._workers.values())
        asked = f"{ready} of {len(self._workers)} rollout workers are ready, min_workers is {least}"
        if left < least:
            raise SimulatorLost(f"{asked}; {left} may be started again (max_worker_restarts)")
        if not self._had_enough:
            return
        now = time.monotonic()
        if self._too_few_since is None:
            self._too_few_since = now
        if now - self._too_few_since >= self._timeout_wait_s:
            raise SimulatorLost(f"{asked}; none started within {self._timeout_wait_s:g} s (timeout_wait)")


def _version(behavior: Behavior) -> Hashable:
    """Returns a key of a behavior's published policy, without its normalizer, which changes with every record."""
    rules = behavior.self_play
    if rules is None:
        return behavior.name, behavior.updates, behavior.training
    opponents = tuple((team, id(snapshot)) for team, snapshot in rules.opponents().items())
    return behavior.name, behavior.updates, behavior.training, rules.learning_team, opponents


def published(behavior: Behavior) -> PublishedPolicy:
    """Returns a behavior's present policy for publication."""
    learning_team, opponents, fixed_opponents = None, {}, {}
    if (rules := behavior.self_play) is not None:
        learning_team = rules.learning_team
        for team, opponent in rules.opponents().items():
            if isinstance(opponent, FixedOpponent):
                checkpoint = opponent.checkpoint
                plain = None if checkpoint is None else as_arrays(plain_checkpoint(checkpoint))
                fixed_opponents[team] = PublishedOpponent(opponent.name, plain)
            else:
                opponents[team] = as_arrays(opponent.weights)
    return PublishedPolicy(
        spec=behavior.spec,
        settings=behavior.settings,
        version=behavior.updates,
        step=behavior.step,
        state=as_arrays(behavior.learner.actor.state_dict()),
        seed=behavior.compute.seed,
        training=behavior.training,
        precision=behavior.compute.precision,
        learning_team=learning_team,
        opponents=opponents,
        fixed_opponents=fixed_opponents,
    )
