"""Starts rollout workers, and makes them the source of a run's experience when its behaviors are known."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer_service.config import DistributedSettings, RunOptions
from trainer_service.distributed.ray_cluster import ray_cluster
from trainer_service.distributed.ray_workers import ray_workers
from trainer_service.distributed.rollout_workers import RolloutWorkers
from trainer_service.running.curriculum import Curriculum
from trainer_service.running.metrics.console import Console
from trainer_service.running.runs.folder import RunFolder

if TYPE_CHECKING:
    from trainer_service.running.behaviors.registry import Behaviors
    from trainer_service.running.metrics.timers import Timers
    from trainer_service.running.training.recorder import Recorder
    from trainer_service.running.training.run import Source
    from trainer_service.running.training.sources import MakeSource

_logger = logging.getLogger(__name__)


@contextmanager
def rollout_workers(
    options: RunOptions, folder: RunFolder, curriculum: Curriculum, console: Console
) -> Iterator[MakeSource]:
    """Yields rollout workers, which have their own simulators."""
    settings = options.distributed or DistributedSettings()
    with ray_cluster(settings, settings.num_workers) as cluster:
        environment = options.env_settings
        _logger.info(
            "Starting %d rollout workers on %s, each with %d x %s",
            settings.num_workers, cluster.name, environment.num_envs, environment.env_path,
        )  # fmt: skip
        with ray_workers(cluster, settings, options, folder.path if folder.writable else None) as pool:

            def make(behaviors: Behaviors, recorder: Recorder, timers: Timers, device_type: str) -> Source:
                return RolloutWorkers(
                    pool, settings, behaviors, curriculum, recorder.add, timers, console.details,
                    timeout_wait_s=environment.timeout_wait,
                )  # fmt: skip

            yield make
