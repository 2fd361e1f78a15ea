"""The state of each rollout worker, and statistics over all workers."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from trainer_service.distributed.records import CollectionQuota, SampleResult
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.metrics.timers import Timers
from unity_bridge.side_channels import Aggregation, StatMessage

_INTERVAL_S = 2.0
"""Seconds between computations of the statistics."""


@dataclass(slots=True)
class WorkerState:
    """The trainer's knowledge of one worker."""

    promised: list[CollectionQuota] = field(default_factory=list)
    """Unfulfilled quotas, oldest first."""

    results: list[SampleResult] = field(default_factory=list)
    """Results that wait for the other workers of the round."""

    collected: int = 0
    """Total number of delivered agent steps."""

    version: int = 0
    """Version of the policy in its last result."""

    is_lost: bool = False
    """Whether its last process ended, and the next one has not delivered a result."""

    is_gone: bool = False
    """Whether it is not restarted."""

    steps_at_once: Mapping[str, int] = field(default_factory=dict)
    """Common divisor of the agent steps of its ticks, by behavior."""

    losses: int = 0
    """Number of ended processes."""

    @property
    def wanted(self) -> int:
        """Agent steps of the unfulfilled quotas."""
        return sum(sum(quota.steps.values()) for quota in self.promised)

    @property
    def in_hand(self) -> int:
        """Agent steps in the waiting complete trajectories."""
        batches = [batch for result in self.results for _, batch in result.batches]
        return sum(len(batch.trajectories) for batch in batches if batch.trajectories is not None)


class WorkerStatistics:
    """The time of a run's workers by activity, for summaries and the table of workers."""

    def __init__(self, timers: Timers) -> None:
        """timers: of the trainer's process, with the blocks ``wait``, ``add``, ``publish`` and ``update``."""
        self._timers = timers
        self._then = time.monotonic()
        self._spent = self._read()
        self._collected: dict[int, int] = {}
        self.lines: Sequence[str] = ()
        """One line for each worker."""

    def update(self, workers: Mapping[int, WorkerState], ready: int, behaviors: Collection[Behavior]) -> None:
        """Adds the number of workers to the behaviors' next summaries, and at intervals recent changes."""
        for behavior in behaviors:
            add_statistic(behavior, "Workers", ready, Aggregation.MOST_RECENT)
        now = time.monotonic()
        if (elapsed := now - self._then) < _INTERVAL_S:
            return
        spent, before = self._read(), self._spent
        self._then, self._spent = now, spent
        seconds = {name: spent[name][0] - before[name][0] for name in spent}
        rounds = max(spent["publish"][1] - before["publish"][1], 1)
        speeds = {
            number: (state.collected - self._collected.get(number, 0)) / elapsed
            for number, state in workers.items()
        }
        self._collected = {number: state.collected for number, state in workers.items()}
        for behavior in behaviors:
            add_statistic(behavior, "Steps per Second", sum(speeds.values()), Aggregation.AVERAGE)
            add_statistic(behavior, "Collect Share", seconds["wait"] / elapsed, Aggregation.AVERAGE)
            add_statistic(behavior, "Update Share", seconds["update"] / elapsed, Aggregation.AVERAGE)
            milliseconds = 1e3 * (seconds["publish"] + seconds["add"]) / rounds
            add_statistic(behavior, "Sync Milliseconds", milliseconds, Aggregation.AVERAGE)
        self.lines = [_line(number, state, speeds[number]) for number, state in workers.items()]

    def _read(self) -> dict[str, tuple[float, int]]:
        return {name: self._timers.spent(name) for name in ("wait", "add", "publish", "update")}


def _line(number: int, state: WorkerState, steps_per_s: float) -> str:
    what = (
        "gone"
        if state.is_gone
        else "away"
        if state.is_lost
        else f"{steps_per_s:,.0f} steps/s, policy {state.version}"
    )
    lost = f", lost {state.losses} time{'s' if state.losses != 1 else ''}" if state.losses else ""
    return f"worker {number}: {what}{lost}"


def add_statistic(behavior: Behavior, name: str, value: float, aggregation: Aggregation) -> None:
    """Adds a value to the behavior's next summary, under ``Distributed/``."""
    behavior.add_stat(StatMessage(f"Distributed/{name}", float(value), aggregation), is_own=True)
