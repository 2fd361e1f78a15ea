"""What is said to simulators and heard from them beside steps and actions."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping

from trainer_service.behavior import Behavior
from trainer_service.behaviors import parse_behavior_id
from trainer_service.curriculum import Curriculum
from unity_bridge.channel_hub import ChannelHub
from unity_bridge.errors import WireError
from unity_bridge.server import Tick
from unity_bridge.side_channels import STATS, Aggregation, SideChannelRecord, parameter_records, parse_stat

_logger = logging.getLogger(__name__)


class Channels:
    """The side channels of a run: environment parameters, statistics, and those that users wrote."""

    def __init__(
        self,
        curriculum: Curriculum,
        hub: ChannelHub,
        introduction: Callable[[int], Iterable[SideChannelRecord]] = lambda simulator: (),
    ) -> None:
        """Takes what there is to say.

        Args:
            curriculum: the parameters.
            hub: the channels of users.
            introduction: what else simulator number n hears first.
        """
        self._curriculum = curriculum
        self._hub = hub
        self._introduction = introduction
        self._behaviors: dict[int, set[str]] = {}
        """Names of the behaviors that each simulator has."""
        self._complaints: set[str] = set()

    def greeting(self, simulator: int) -> list[SideChannelRecord]:
        """What a simulator hears with its first reset: parameters as they are in force, and the rest."""
        return [
            *self.parameters(),
            *self._introduction(simulator),
            *self._hub.greeting(simulator),
        ]

    def parameters(self) -> list[SideChannelRecord]:
        """All environment parameters as they are in force."""
        return parameter_records(self._curriculum.messages())

    def outgoing(self, simulator: int) -> list[SideChannelRecord]:
        """What users' channels want to say to a simulator now."""
        return self._hub.outgoing(simulator)

    def hear(self, tick: Tick, behaviors: Mapping[str, Behavior]) -> None:
        """Takes what a simulator said. Its statistics belong to every behavior that it has."""
        if tick.new_specs:
            names = {parse_behavior_id(behavior_id)[0] for behavior_id in tick.new_specs}
            self._behaviors.setdefault(tick.simulator, set()).update(names)
        for record in tick.messages:
            if record.channel == STATS:
                self._hear_stat(tick.simulator, record.body, behaviors)
            elif not self._hub.deliver(tick.simulator, record):
                self._complain_once(
                    f"Simulator {tick.simulator} speaks on side channel {record.channel}, to which nobody listens."
                )

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that left."""
        self._behaviors.pop(simulator, None)
        self._hub.drop(simulator)

    def _hear_stat(self, simulator: int, body: bytes, behaviors: Mapping[str, Behavior]) -> None:
        try:
            stat = parse_stat(body)
        except WireError as error:
            self._complain_once(f"Simulator {simulator} sent a statistic that is ignored: {error}.")
            return
        if not math.isfinite(stat.value):
            self._complain_once(f"Statistic '{stat.name}' of simulator {simulator} is no number: ignored.")
            return
        # What is latest among several simulators is chance, so one of them speaks for all.
        if stat.aggregation is Aggregation.MOST_RECENT and simulator != min(self._behaviors, default=0):
            return
        for name in self._behaviors.get(simulator, ()):
            behaviors[name].add_stat(stat)

    def _complain_once(self, message: str) -> None:
        if message not in self._complaints:
            self._complaints.add(message)
            _logger.warning("%s", message)
