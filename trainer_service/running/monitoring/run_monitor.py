"""The state of a running run, stored so that another thread may read it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainer_service.errors import UserError
from trainer_service.running.metrics.summary import Summary
from trainer_service.running.metrics.writers import SummaryWriter
from trainer_service.running.runs.layout import RunLayout, existing_state

if TYPE_CHECKING:
    from trainer_service.running.behaviors.registry import Behaviors
    from trainer_service.running.metrics.timers import Timers
    from trainer_service.running.training.recorder import Recorder
    from trainer_service.running.training.run import Source
    from trainer_service.running.training.sources import MakeSource

_INTERVAL_S = 1.0
"""How often the state of behaviors is noted; the ticks in between cost a look at the clock."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BehaviorState:
    """How far a behavior is."""

    step: int
    max_steps: int
    steps_per_s: float
    episodes: int


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one of its ticks."""

    simulators: int = 0
    """Simulators that are connected; with rollout workers, the workers that are there."""

    restarts: int = 0
    """How often one of these was started again."""

    behaviors: Mapping[str, BehaviorState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedState:
    """The newest files of a behavior."""

    step: int | None
    """Agent steps of its newest numbered checkpoint."""

    saved_s: float | None
    """When what ``--resume`` reads was written, in seconds since 1970."""


class RunMonitor(SummaryWriter):
    """The state of a run for threads that answer questions about it. The run waits for none of them.

    The run's own thread replaces whole records, so that a reader sees one of them or its successor.
    """

    def __init__(
        self,
        run: RunLayout,
        address: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            run: the folder of its results.
            address: where questions are answered, for the log.
            clock: in seconds.
            now: in seconds since 1970.
        """
        self.run = run
        self.state = RunState()
        self.summaries: Mapping[str, tuple[Summary, float]] = {}
        """The last summary of each behavior, and when it came, in seconds since 1970."""
        self.address = address
        self._clock = clock
        self._now = now
        self._last_tick: float | None = None
        self._noted_at = -_INTERVAL_S

    @property
    def tick_age_s(self) -> float | None:
        """Seconds since the loop's last tick; None before the first."""
        return None if self._last_tick is None else self._clock() - self._last_tick

    def is_stuck(self, limit_s: float) -> bool:
        """Whether simulators are there, and the loop has not ticked for longer than this."""
        age_s = self.tick_age_s
        return age_s is not None and age_s > limit_s and self.state.simulators > 0

    def saved(self, behavior: str) -> SavedState:
        """The newest files of a behavior, as the disk has them now."""
        try:
            steps = list(self.run.numbered_states(behavior))
        except (OSError, UserError):
            steps = []
        try:
            saved_s = existing_state(self.run.checkpoint(behavior)).stat().st_mtime
        except (OSError, UserError):
            saved_s = None
        return SavedState(max(steps, default=None), saved_s)

    def write(self, summary: Summary) -> None:
        """Notes a summary."""
        self.summaries = {**self.summaries, summary.behavior: (summary, self._now())}

    def tick(self, source: Source, behaviors: Behaviors) -> None:
        """Notes that the loop is alive, and now and then how far the run is."""
        self._last_tick = now = self._clock()
        if now - self._noted_at < _INTERVAL_S:
            return
        self._noted_at = now
        self.state = RunState(
            source.num_simulators,
            source.num_restarts,
            {
                each.name: BehaviorState(each.step, each.settings.max_steps, each.steps_per_s, each.episodes)
                for each in behaviors.values()
            },
        )

    def watching(self, make_source: MakeSource) -> MakeSource:
        """A maker of the same source of experience, whose every ``collect`` is a tick here."""

        def make(behaviors: Behaviors, recorder: Recorder, timers: Timers, device_type: str) -> Source:
            _logger.info(
                "Metrics for Prometheus on %s/metrics, health checks on %s/health.",
                self.address,
                self.address,
            )
            return _WatchedSource(make_source(behaviors, recorder, timers, device_type), behaviors, self)

        return make


class _WatchedSource:
    """A source of experience that tells a monitor of each tick."""

    def __init__(self, source: Source, behaviors: Behaviors, monitor: RunMonitor) -> None:
        self._source = source
        self._behaviors = behaviors
        self._monitor = monitor
        self.send_parameters = source.send_parameters
        self.restart = source.restart
        self.act = source.act

    @property
    def num_simulators(self) -> int:
        return self._source.num_simulators

    @property
    def num_restarts(self) -> int:
        return self._source.num_restarts

    def collect(self) -> None:
        self._source.collect()
        self._monitor.tick(self._source, self._behaviors)
