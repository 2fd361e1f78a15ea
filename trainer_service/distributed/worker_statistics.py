"""What is known of each rollout worker, and what is reported of all."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from trainer_service.behaviors.behavior import Behavior
from trainer_service.distributed.records import CollectionQuota, SampleResult
from trainer_service.metrics.timers import Timers
from unity_bridge.side_channels import Aggregation, StatMessage

_INTERVAL_S = 2.0
"""How often what is reported is computed."""


@dataclass(slots=True)
class WorkerState:
    """What the trainer knows of one worker."""

    promised: list[CollectionQuota] = field(default_factory=list)
    """Quotas that it has not fulfilled, oldest first."""

    results: list[SampleResult] = field(default_factory=list)
    """Results that wait until all workers of the round are done."""

    collected: int = 0
    """Agent steps that it has delivered in all."""

    version: int = 0
    """Of the policy that its last result was collected with."""

    is_lost: bool = False
    """Whether its last process ended, and the next has not delivered anything."""

    is_gone: bool = False
    """Whether it is not started again."""

    steps_at_once: Mapping[str, int] = field(default_factory=dict)
    """Agent steps that each of its ticks has a multiple of, by behavior."""

    losses: int = 0
    """How often its process ended."""

    @property
    def wanted(self) -> int:
        """Agent steps of the quotas that it has not fulfilled."""
        return sum(sum(quota.steps.values()) for quota in self.promised)

    @property
    def in_hand(self) -> int:
        """Agent steps in complete trajectories that wait."""
        batches = [batch for result in self.results for _, batch in result.batches]
        return sum(len(batch.trajectories) for batch in batches if batch.trajectories is not None)


class WorkerStatistics:
    """Where the time of a run with workers goes, for its summaries and its table."""

    def __init__(self, timers: Timers) -> None:
        """timers: of the trainer's process, with the blocks ``wait``, ``add``, ``publish`` and ``update``."""
        self._timers = timers
        self._then = time.monotonic()
        self._spent = self._read()
        self._collected: dict[int, int] = {}
        self.lines: Sequence[str] = ()
        """A line on each worker."""

    def update(self, workers: Mapping[int, WorkerState], ready: int, behaviors: Collection[Behavior]) -> None:
        """Adds the number of workers to the behaviors' next summaries, and what happened since the last time if that
        was long enough ago."""
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
    """Adds a value to what the behavior's next summary says under ``Distributed/``."""
    behavior.add_stat(StatMessage(f"Distributed/{name}", float(value), aggregation))
