"""A run's metrics in the text format of Prometheus. The only module that imports its package."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from trainer_service._version import __version__
from trainer_service.monitoring.run_monitor import RunMonitor

CONTENT_TYPE = CONTENT_TYPE_LATEST

_BEHAVIOR = ("behavior",)


class RunMetrics(Collector):
    """The metrics of a run, read from its monitor whenever Prometheus asks."""

    def __init__(self, monitor: RunMonitor, run_id: str) -> None:
        self._monitor = monitor
        self._run_id = run_id
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics as they are now."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yields each metric with its values."""
        yield InfoMetricFamily(
            "trainer_service_run", "The run.", value={"run_id": self._run_id, "version": __version__}
        )
        state = self._monitor.state
        yield GaugeMetricFamily(
            "trainer_service_simulators",
            "Simulators that are connected; with rollout workers, the workers that are there.",
            state.simulators,
        )
        yield CounterMetricFamily(
            "trainer_service_simulator_restarts",
            "Simulators, or workers, that were started again.",
            state.restarts,
        )
        if (age_s := self._monitor.tick_age_s) is not None:
            yield GaugeMetricFamily(
                "trainer_service_last_tick_age_seconds", "Time since the training loop's last tick.", age_s
            )
        yield from self._progress()
        yield from self._summaries()
        yield from self._checkpoints()

    def _progress(self) -> Iterator[Metric]:
        steps = CounterMetricFamily("trainer_service_steps", "Agent steps.", labels=_BEHAVIOR)
        budget = GaugeMetricFamily(
            "trainer_service_max_steps", "The budget of agent steps.", labels=_BEHAVIOR
        )
        rate = GaugeMetricFamily(
            "trainer_service_steps_per_second",
            "Agent steps per second since the last summary.",
            labels=_BEHAVIOR,
        )
        episodes = CounterMetricFamily("trainer_service_episodes", "Episodes of agents.", labels=_BEHAVIOR)
        for name, behavior in self._monitor.state.behaviors.items():
            steps.add_metric([name], behavior.step)
            budget.add_metric([name], behavior.max_steps)
            rate.add_metric([name], behavior.steps_per_s)
            episodes.add_metric([name], behavior.episodes)
        yield from (steps, budget, rate, episodes)

    def _summaries(self) -> Iterator[Metric]:
        returns = GaugeMetricFamily(
            "trainer_service_mean_return",
            "Mean return of agents in the last summary with episodes.",
            labels=_BEHAVIOR,
        )
        of_groups = GaugeMetricFamily(
            "trainer_service_mean_group_return", "Mean return of groups in that summary.", labels=_BEHAVIOR
        )
        last = GaugeMetricFamily(
            "trainer_service_last_summary_timestamp_seconds", "When the last summary came.", labels=_BEHAVIOR
        )
        for name, (summary, came_s) in self._monitor.summaries.items():
            for metric, value in (
                (returns, summary.stats.mean_return),
                (of_groups, summary.stats.mean_group_return),
            ):
                if value is not None:
                    metric.add_metric([name], value)
            last.add_metric([name], came_s)
        yield from (returns, of_groups, last)

    def _checkpoints(self) -> Iterator[Metric]:
        steps = GaugeMetricFamily(
            "trainer_service_checkpoint_step",
            "Agent steps of the newest numbered checkpoint.",
            labels=_BEHAVIOR,
        )
        written = GaugeMetricFamily(
            "trainer_service_checkpoint_timestamp_seconds",
            "When what --resume reads was written.",
            labels=_BEHAVIOR,
        )
        for name in self._monitor.state.behaviors:
            saved = self._monitor.saved(name)
            if saved.step is not None:
                steps.add_metric([name], saved.step)
            if saved.saved_s is not None:
                written.add_metric([name], saved.saved_s)
        yield from (steps, written)
