"""The sources of a run's experience, opened: simulators of this process, or rollout workers.

A source gets its behaviors later than its simulators are started, for these start up while torch is being loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer_service.callbacks import CallbackList
from trainer_service.collection.launching import bridge_settings
from trainer_service.config import DistributedSettings, RunOptions
from trainer_service.curriculum import Curriculum
from trainer_service.metrics.console import Console
from trainer_service.runs.folder import RunFolder
from unity_bridge.programs.executables import Command
from unity_bridge.server.bridge import Bridge
from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.side_channels.channel_hub import ChannelHub

if TYPE_CHECKING:
    from trainer_service.behaviors.registry import Behaviors
    from trainer_service.collection.channels import Channels
    from trainer_service.metrics.timers import Timers
    from trainer_service.training.recorder import Recorder
    from trainer_service.training.run import Source

    MakeSource = Callable[[Behaviors, Recorder, Timers, str], Source]
    """Makes the source for behaviors, what records them, the run's timers and the type of its device."""

_logger = logging.getLogger(__name__)


def num_workers(options: RunOptions) -> int:
    """Rollout workers of a run; 0 where simulators are this process's own."""
    return 0 if options.distributed is None else options.distributed.num_workers


@contextmanager
def local_simulators(
    options: RunOptions,
    folder: RunFolder,
    curriculum: Curriculum,
    hub: ChannelHub,
    command: Command | None,
    listen: Callable[[Bridge], None],
    callbacks: CallbackList,
) -> Iterator[MakeSource]:
    """Simulators of this process: launched at once, or those that attach where it listens."""

    def greeting(simulator: int) -> Sequence[SideChannelRecord]:
        return channels[0].greeting(simulator, bridge.simulators[simulator])

    channels: list[Channels] = []
    run_logs = folder.run_logs if folder.writable else None
    with Bridge(bridge_settings(options, run_logs, greeting)) as bridge:
        if command is not None:
            _logger.info("Starting %d x %s", options.env_settings.num_envs, command.env)
            bridge.launch(command, options.env_settings.num_envs)
        else:
            listen(bridge)

        def make(behaviors: Behaviors, recorder: Recorder, timers: Timers, device_type: str) -> Source:
            from trainer_service.collection.channels import Channels
            from trainer_service.collection.heterogeneous_groups import HeterogeneousGroups
            from trainer_service.training.local_simulators import simulators_of

            channels.append(Channels(options, curriculum.messages, hub, device_type=device_type))
            return simulators_of(
                bridge,
                channels[0],
                behaviors,
                recorder,
                timers,
                HeterogeneousGroups(options.teams),
                callbacks,
            )

        yield make
        if leaving := len(bridge.simulators):
            _logger.info("Waiting for %d simulator%s to leave.", leaving, "s" if leaving > 1 else "")


@contextmanager
def rollout_workers(
    options: RunOptions, folder: RunFolder, curriculum: Curriculum, console: Console
) -> Iterator[MakeSource]:
    """Rollout workers, which have simulators of their own."""
    from trainer_service.distributed.ray_cluster import ray_cluster

    settings = options.distributed or DistributedSettings()
    with ray_cluster(settings, settings.num_workers) as cluster:
        from trainer_service.distributed.ray_workers import ray_workers
        from trainer_service.distributed.rollout_workers import RolloutWorkers

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
