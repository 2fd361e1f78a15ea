"""Simulators of this process, started; what makes them a run's source of experience once its behaviors are known.

A source gets its behaviors later than its simulators are started, for these start up meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainer_service.config import RunOptions
from trainer_service.running.callbacks import CallbackList
from trainer_service.running.collection.channels import Channels
from trainer_service.running.collection.heterogeneous_groups import HeterogeneousGroups
from trainer_service.running.collection.launching import are_isolated, bridge_settings
from trainer_service.running.collection.router import Router
from trainer_service.running.collection.simulators import Simulators
from trainer_service.running.curriculum import Curriculum
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.training.local_simulators import LocalLearners
from unity_bridge.programs.executables import Command
from unity_bridge.server.bridge import Bridge
from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.side_channels.channel_hub import ChannelHub

if TYPE_CHECKING:
    from trainer_service.running.behaviors.registry import Behaviors
    from trainer_service.running.metrics.timers import Timers
    from trainer_service.running.training.recorder import Recorder
    from trainer_service.running.training.run import Source

    MakeSource = Callable[[Behaviors, Recorder, Timers, str], Source]
    """Makes the source for behaviors, what records them, the run's timers and the type of its device."""
_logger = logging.getLogger(__name__)


def num_workers(options: RunOptions) -> int:
    """Returns the number of rollout workers; 0 if the simulators belong to this process."""
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
    """The simulators of this process: launched at once, or attached at its port."""

    def greeting(simulator: int) -> Sequence[SideChannelRecord]:
        return channels[0].greeting(simulator, bridge.simulators[simulator])

    channels: list[Channels] = []
    isolated = command is not None and are_isolated(options, command)
    run_logs = folder.run_logs if folder.writable else None
    with Bridge(bridge_settings(options, run_logs, greeting)) as bridge:
        if command is not None:
            count = options.env_settings.num_envs
            if isolated:
                _logger.info("Starting %d x %s", count, command.env)
            else:
                _logger.info(
                    "%d x %s runs in this process (--isolate: in one of its own).",
                    count, command.env,
                )  # fmt: skip
            bridge.launch(command, count)
        else:
            listen(bridge)

        def make(behaviors: Behaviors, recorder: Recorder, timers: Timers, device_type: str) -> Source:
            channels.append(Channels(options, curriculum.messages, hub, device_type=device_type))
            return Simulators(
                bridge,
                Router(behaviors.env_steps),
                channels[0],
                LocalLearners(behaviors, recorder, channels[0], bridge),
                timers,
                HeterogeneousGroups(options.teams),
                callbacks.listener("on_step"),
            )

        yield make
        if (isolated or command is None) and (leaving := len(bridge.simulators)):
            _logger.info("Waiting for %d simulator%s to leave.", leaving, "s" if leaving > 1 else "")
