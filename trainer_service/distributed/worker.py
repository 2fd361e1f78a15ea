"""A rollout worker: it has its own simulators and copies of policies that act in them. It learns nothing."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from trainer_service.config import PlayerName, RunOptions
from trainer_service.distributed.records import (
    CollectionQuota,
    Declaration,
    PublishedOpponent,
    PublishedPolicy,
    SampleRequest,
    SampleResult,
    as_tensors,
)
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.running.collection.channels import Channels
from trainer_service.running.collection.collector import Collector, learner_and_collector
from trainer_service.running.collection.heterogeneous_groups import HeterogeneousGroups
from trainer_service.running.collection.launching import bridge_settings, command_of
from trainer_service.running.collection.opponents import FixedOpponent, Snapshot
from trainer_service.running.collection.records import SampleBatch
from trainer_service.running.collection.router import BehaviorId, Deliver, Router
from trainer_service.running.collection.simulators import NotYet, Simulators
from trainer_service.running.curriculum import Curriculum
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.checkpoint import parse_checkpoint, spec_mismatch
from unity_bridge.server.bridge import Bridge, BridgeSettings
from unity_bridge.side_channels import SideChannelRecord, StatMessage
from unity_bridge.side_channels.channel_hub import ChannelHub
from unity_bridge.specs import BehaviorSpec

REPORT_S = 2.0
"""Longest time of collection before a worker returns its experience, and so the largest loss when it dies."""

_MAX_STATS = 100_000
"""The most simulator statistics in one result."""

_MAX_LOG = 100
"""The most log lines in one result; the newest are kept."""

_LOGGERS = ("trainer_service", "unity_bridge")
_CPU = torch.device("cpu")
_AGENTS_OF_WORKER = 2**40
"""Agent numbers that are reserved for each worker (see ``Trajectories.agents``)."""


class RolloutWorker:
    """One worker of a run. Its simulators wait for replies while it is not collecting."""

    def __init__(
        self,
        number: int,
        options: RunOptions,
        run_logs: Path | None = None,
        *,
        make_bridge: Callable[[BridgeSettings], Bridge] = Bridge,
    ) -> None:
        """
        Args:
            number: number of the worker, from 0.
            options: of the run, with its seed.
            run_logs: folder of its simulators' output; None discards it.
            make_bridge: makes the bridge of its simulators.
        """
        self._number = number
        self._options = options
        self._policies: dict[str, _PolicyCopy] = {}
        self._request: SampleRequest | None = None
        self._quota = CollectionQuota({}, {})
        self._steps: dict[str, int] = {}
        """Steps in complete trajectories of the request, by behavior."""
        self._transitions: dict[str, int] = {}
        self._steps_at_once: dict[str, int] = {}
        self._batches: dict[tuple[str, int], list[SampleBatch]] = {}
        """Batches since the last result, by behavior and team id."""
        self._stats: list[tuple[str, StatMessage]] = []
        self._declared: dict[BehaviorId, Declaration] = {}
        self._timers = Timers()
        self._log = _LogBuffer()
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._log)
        environment = options.env_settings
        first = number * environment.num_envs
        self._curriculum = Curriculum(options.environment_parameters or {}, environment.seed)
        self._channels = Channels(
            options, lambda simulator: self._curriculum.messages(first + simulator), ChannelHub()
        )
        self._bridge = make_bridge(bridge_settings(options, run_logs, self._greeting, first=first))
        self._router = Router()
        self._simulators = Simulators(
            self._bridge,
            self._router,
            self._channels,
            self,
            self._timers,
            HeterogeneousGroups(options.teams),
        )

    def start(self) -> None:
        """Starts the simulators. Raises LaunchError, PortInUse."""
        command = command_of(self._options)
        if command is None:
            raise UserError("rollout workers start simulators themselves: set env_settings.env_path (--env)")
        self._bridge.launch(command, self._options.env_settings.num_envs)

    def close(self) -> None:
        """Ends the simulators. May be called repeatedly."""
        self._bridge.close()
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self._log)

    def collect(self, request: SampleRequest | None, quota: CollectionQuota | None = None) -> SampleResult:
        """Acts and collects until the quota is fulfilled, or for ``REPORT_S``.

        Args:
            request: the policies to act with; None continues with the last request.
            quota: the steps to collect; None continues with the last quota.

        Raises:
            UserError: A simulator does not fit the configuration.
            BridgeError: The simulators left and will not return.
        """
        if request is not None:
            self._begin(request, quota or CollectionQuota({}, {}))
        until = time.monotonic() + REPORT_S
        while True:
            self._simulators.act()
            self._simulators.collect()
            complete = self._is_complete()
            if complete or time.monotonic() >= until:
                return self._result(complete)

    def _begin(self, request: SampleRequest, quota: CollectionQuota) -> None:
        before, self._request, self._quota = self._request, request, quota
        self._steps, self._transitions, self._declared = {}, {}, {}
        if before is not None and before.number == request.number:
            return  # the policies are loaded, and their random streams continue
        for name, published in request.policies.items():
            policy = self._policies.get(name)
            if policy is None:
                policy = self._policies[name] = _PolicyCopy(name, published, self._number * _AGENTS_OF_WORKER)
            policy.update(published, (quota.number, self._number))
        self._curriculum.resume(request.lessons, {})
        if before is None:
            return
        if before.lessons != request.lessons:
            self._simulators.send_parameters()
        if before.restarts != request.restarts:
            self._simulators.restart()

    def _is_complete(self) -> bool:
        wanted = {*self._quota.steps, *self._quota.budget}
        for name in wanted:
            if self._steps.get(name, 0) >= self._quota.steps.get(name, float("inf")):
                return True
            if self._transitions.get(name, 0) >= self._quota.budget.get(name, float("inf")):
                return True
        if self._declared:
            return True
        present = {behavior_id.name for behavior_id in self._router.behavior_ids()}
        return bool(present) and not present & wanted

    def _result(self, complete: bool) -> SampleResult:
        assert self._request is not None
        batches = [(name, SampleBatch.concatenate(parts)) for (name, _), parts in self._batches.items()]
        stats, self._stats, self._batches = self._stats, [], {}
        env_steps, self._router.env_steps.taken = self._router.env_steps.taken, 0
        return SampleResult(
            number=self._request.number,
            versions={name: policy.published.version for name, policy in self._policies.items()},
            restarts=self._request.restarts,
            complete=complete,
            batches=batches,
            env_steps=env_steps,
            stats=stats,
            declared=list(self._declared.values()),
            behavior_ids=self._router.behavior_ids(),
            steps_at_once=dict(self._steps_at_once),
            timers=self._timers.to_json(),
            log=self._log.drain(),
        )

    def _deliver(self, name: str, batch: SampleBatch) -> None:
        """Stores the experience of a tick, as far as it is used."""
        published = self._policies[name].published
        learns = published.learning_team in (None, batch.team)
        if not learns:
            batch = SampleBatch(batch.team, batch.transitions, replaced_values=batch.replaced_values)
        elif not published.training and batch.trajectories is not None:
            batch = replace(batch, trajectories=None)
        self._batches.setdefault((name, batch.team), []).append(batch)
        if learns:
            self._transitions[name] = self._transitions.get(name, 0) + batch.transitions
            self._steps_at_once[name] = math.gcd(self._steps_at_once.get(name, 0), batch.transitions)
            if batch.trajectories is not None:
                self._steps[name] = self._steps.get(name, 0) + len(batch.trajectories)
                # The copy's normalizer is updated too, until the next policy has one updated by all workers, as in a
                # run without workers. Otherwise the whole first rollout would use clipped observations (numbers beyond
                # ±5 become ±5), and the first update would use unclipped ones.
                self._policies[name].collector.actor.update_normalizer(batch.trajectories)

    # The interface of the learning half (which is in another process) for Simulators:

    def declare(
        self, simulator: int, behavior_id: BehaviorId, spec: BehaviorSpec, group_size: int
    ) -> tuple[Collector, Deliver]:
        """Returns the collector of a behavior with a published policy. Otherwise its simulator waits, by ``NotYet``."""
        policy = self._policies.get(behavior_id.name)
        if policy is None:
            self._declared.setdefault(behavior_id, Declaration(behavior_id, spec, group_size))
            raise NotYet
        if changed := spec_mismatch(policy.published.spec, spec):
            raise UserError(
                f"behavior '{behavior_id.name}' differs from what was declared before: {changed[:500]}"
            )
        return policy.collector, partial(self._deliver, behavior_id.name)

    def remove(self, simulator: int) -> None:
        """Does nothing: results list the present behavior ids."""

    def add_stat(self, behavior: str, stat: StatMessage) -> bool:
        """Stores a simulator's statistic. Returns False if there are too many in one result."""
        if len(self._stats) >= _MAX_STATS:
            return False
        self._stats.append((behavior, stat))
        return True

    def _greeting(self, simulator: int) -> Sequence[SideChannelRecord]:
        return self._channels.greeting(simulator, self._bridge.simulators[simulator])


class _PolicyCopy:
    """The copy of a behavior's policy, with its collector."""

    def __init__(self, name: str, published: PublishedPolicy, first_agent: int = 0) -> None:
        self.published = published
        self._opponent_of: dict[int, Snapshot | FixedOpponent] = {}
        """Opponents by team id."""
        self._fixed: dict[PlayerName, FixedOpponent] = {}
        _, self.collector = learner_and_collector(
            name,
            published.spec,
            published.settings,
            Compute(_CPU, published.seed, precision=published.precision),
            self if published.settings.self_play is not None else None,
            first_agent=first_agent,
        )

    def update(self, published: PublishedPolicy, stream: tuple[int, int]) -> None:
        """Acts with this policy from now on. stream: the quota and the worker, for random numbers."""
        self.published = published
        acting, others = np.random.SeedSequence([published.seed, published.step, *stream]).generate_state(
            2, np.uint64
        )
        self.collector.actor.load_state_dict(as_tensors(published.state), int(acting) >> 1)
        self._opponent_of = {
            team: Snapshot(as_tensors(weights), 0, 0.0) for team, weights in published.opponents.items()
        }
        for team, opponent in published.fixed_opponents.items():
            # Keep the known opponent, with its memory.
            if opponent.name not in self._fixed:
                self._fixed[opponent.name] = _fixed_opponent(opponent)
            self._opponent_of[team] = self._fixed[opponent.name]
        if self.collector.opponents is not None:
            self.collector.opponents.reseed(int(others) >> 1)

    def opponent(self, team: int) -> Snapshot | FixedOpponent | None:
        """The opponent that a side plays as; None for the newest policy."""
        return self._opponent_of.get(team)


def _fixed_opponent(published: PublishedOpponent) -> FixedOpponent:
    checkpoint = None
    if published.checkpoint is not None:
        checkpoint = parse_checkpoint(as_tensors(published.checkpoint), Path(published.name.text))
    return FixedOpponent(published.name, checkpoint, 0.0)


class _LogBuffer(logging.Handler):
    """A buffer of the worker's log entries, for the trainer's log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[tuple[int, str, str]] = deque(maxlen=_MAX_LOG)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((record.levelno, record.getMessage(), getattr(record, "topic", "")))

    def drain(self) -> list[tuple[int, str, str]]:
        """Returns the lines since the last call."""
        lines = list(self._lines)
        self._lines.clear()
        return lines
