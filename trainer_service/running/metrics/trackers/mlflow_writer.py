"""Runs on MLflow: on a server, or in files of this machine."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer_service.running.metrics.summary import Summary
from trainer_service.running.metrics.trackers import PROJECT, TrackedRun, Tracker, scalars
from trainer_service.running.metrics.writers import RunEnd

_STATUS: dict[RunEnd, str] = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
_FORBIDDEN = re.compile(r"[^\w\-. :/]", re.ASCII)
_LONGEST_VALUE = 500
"""Letters of a parameter that all of its servers store."""
_BATCH = 100
"""Parameters that it takes in one request."""

_logger = logging.getLogger(__name__)


class MlflowWriter(Tracker):
    """A writer to a run of MLflow: options as parameters, statistics as metrics, films as artifacts.

    Everything else is said with MLflow's own variables: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME and so on.
    """

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        self._client: Any = None
        self._id = ""

    def open(self) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        known = self._run.recall().get("run_id")
        if known:
            self._client.update_run(known, status="RUNNING")
            self._id = known
        else:
            self._id = self._create()
            self._run.remember(run_id=self._id)
        self._client.log_dict(self._id, dict(self._run.configuration), "configuration.yaml")
        _logger.info("MLflow: run %s at %s", self._id, self._client.tracking_uri)

    def write(self, summary: Summary) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        metrics = [
            Metric(_FORBIDDEN.sub("_", tag), value, now_ms, summary.step)
            for tag, value in scalars(summary).items()
        ]
        for start in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._id, metrics=metrics[start : start + _BATCH])

    def write_film(self, behavior: str, step: int, film: Path) -> None:
        self._client.log_artifact(self._id, str(film), f"films/{behavior}")

    def close(self, end: RunEnd = "finished") -> None:
        self._client.set_terminated(self._id, _STATUS[end])

    def _create(self) -> str:
        """Makes a run with the options as its parameters; they can be set once only. Returns its id."""
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        where = experiment.experiment_id if experiment else self._client.create_experiment(name)
        run_id: str = self._client.create_run(where, run_name=self._run.run_id).info.run_id
        params = [
            Param(_FORBIDDEN.sub("_", key), str(value)[:_LONGEST_VALUE])
            for key, value in _flat(self._run.configuration)
        ]
        for start in range(0, len(params), _BATCH):
            self._client.log_batch(run_id, params=params[start : start + _BATCH])
        return run_id


def _flat(values: Mapping[str, Any] | Sequence[Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields everything that is no mapping, nor a list with mappings in it, under its dotted path."""
    pairs = values.items() if isinstance(values, Mapping) else enumerate(values)
    for key, value in pairs:
        path = f"{above}{key}"
        if isinstance(value, Mapping) or (
            isinstance(value, list) and any(isinstance(each, Mapping) for each in value)
        ):
            yield from _flat(value, f"{path}.")
        else:
            yield path, value
