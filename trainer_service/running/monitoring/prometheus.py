"""Metrics of a run, or of served policies, in the text format of Prometheus. No other module imports its package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from trainer_service._version import __version__
from trainer_service.running.monitoring.run_monitor import RunMonitor
from trainer_service.running.serving.served_runs import ServedRun

CONTENT_TYPE = CONTENT_TYPE_LATEST

_Kind = type[CounterMetricFamily] | type[GaugeMetricFamily]
_OF_POLICIES: Mapping[str, tuple[_Kind, str]] = {
    "calls": (CounterMetricFamily, "Messages that came."),
    "calls_refused": (CounterMetricFamily, "Messages that did not fit the behavior."),
    "decisions": (CounterMetricFamily, "Actions of callers."),
    "batches": (CounterMetricFamily, "Forward passes."),
    "batch_seconds": (CounterMetricFamily, "Time in them."),
    "callers_remembered": (GaugeMetricFamily, "Callers with a memory."),
    "callers_forgotten": (CounterMetricFamily, "Callers that were forgotten."),
    "policy_step": (GaugeMetricFamily, "Agent steps that the policy was trained for."),
}


class _Metrics(Collector):
    """Metrics that are read whenever Prometheus asks."""

    def text(self) -> bytes:
        """All metrics as they are now."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)


class PolicyMetrics(_Metrics):
    """The counters of served policies."""

    def __init__(self, runs: Mapping[str, ServedRun]) -> None:
        self._runs = runs

    def collect(self) -> Iterator[Metric]:
        """Yields each metric with its values, by run and behavior."""
        for name, (kind, about) in _OF_POLICIES.items():
            family = kind(f"trainer_service_{name}", about, labels=("run", "behavior"))
            for run_name, run in self._runs.items():
                for behavior, each in list(run.policies.items()):
                    memories = {
                        "callers_remembered": len(each.memories),
                        "callers_forgotten": each.memories.forgotten,
                    }
                    values = {**each.counters, **memories, "policy_step": each.policy.step}
                    family.add_metric([run_name, behavior], values.get(name, 0))
            yield family


class RunMetrics(_Metrics):
    """The metrics of a run, read from its monitor."""

    def __init__(self, monitor: RunMonitor, run_id: str) -> None:
        self._monitor = monitor
        self._run_id = run_id

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
        for kind, name, about, values in self._families():
            family = kind(f"trainer_service_{name}", about, labels=("behavior",))
            for behavior, value in values.items():
                if value is not None:
                    family.add_metric([behavior], value)
            yield family

    def _families(self) -> Iterator[tuple[_Kind, str, str, Mapping[str, float | None]]]:
        """Yields the metrics of behaviors: kind, name, description and values; None is left out."""
        monitor = self._monitor
        behaviors, came = monitor.state.behaviors, {name: at for name, (_, at) in monitor.summaries.items()}
        stats = {name: summary.stats for name, (summary, _) in monitor.summaries.items()}
        saved = {name: monitor.saved(name) for name in behaviors}
        counter, gauge = CounterMetricFamily, GaugeMetricFamily
        yield counter, "steps", "Agent steps.", {name: each.step for name, each in behaviors.items()}
        budgets = {name: each.max_steps for name, each in behaviors.items()}
        yield gauge, "max_steps", "The budget of agent steps.", budgets
        rates = {name: each.steps_per_s for name, each in behaviors.items()}
        yield gauge, "steps_per_second", "Agent steps per second since the last summary.", rates
        episodes = {name: each.episodes for name, each in behaviors.items()}
        yield counter, "episodes", "Episodes of agents.", episodes
        returns = {name: each.mean_return for name, each in stats.items()}
        yield gauge, "mean_return", "Mean return of agents in the last summary with episodes.", returns
        of_groups = {name: each.mean_group_return for name, each in stats.items()}
        yield gauge, "mean_group_return", "Mean return of groups in that summary.", of_groups
        yield gauge, "last_summary_timestamp_seconds", "Time of the last summary.", came
        steps = {name: each.step for name, each in saved.items()}
        yield gauge, "checkpoint_step", "Agent steps of the newest numbered checkpoint.", steps
        written = {name: each.saved_s for name, each in saved.items()}
        yield gauge, "checkpoint_timestamp_seconds", "When what --resume reads was written.", written
