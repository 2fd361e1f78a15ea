"""Messages to and from simulators beside steps and actions."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from uuid import UUID

import torch

from trainer_service.collection import analytics
from trainer_service.collection.router import parse_behavior_id
from trainer_service.config import RunOptions, TrainerSettings
from trainer_service.metrics.statistics import MAX_NAMES
from unity_bridge.errors import WireError
from unity_bridge.server.bridge import Bridge, SimulatorInfo, Tick
from unity_bridge.side_channels import (
    EXPERT,
    NOTICES,
    STATS,
    Aggregation,
    EnvironmentParameterMessage,
    SideChannelRecord,
    StatMessage,
    TrainingEnvironmentInitialized,
    analytics_records,
    parameter_records,
    parse_notice,
    parse_stat,
)
from unity_bridge.side_channels.channel_hub import ChannelHub
from unity_bridge.throttled_logger import MAX_LOGGED, ThrottledLogger
from unity_bridge.untrusted_text import harmless, quoted

_logger = logging.getLogger(__name__)

MAX_MESSAGES = 10_000
"""Messages on side channels that are read, of one tick of one simulator."""

MAX_NAME_LENGTH = 200
"""Characters that the name of a statistic may have."""


class Channels:
    """The side channels of a run: environment parameters, statistics, analytics, and those that users wrote."""

    def __init__(
        self,
        options: RunOptions,
        messages: Callable[[], Sequence[EnvironmentParameterMessage]],
        hub: ChannelHub,
        *,
        device_type: str = "cpu",
    ) -> None:
        """Stores the messages that simulators will get.

        Args:
            options: of the run, for simulators that ask for analytics.
            messages: returns the environment parameters as they are in force.
            hub: the channels of users.
            device_type: where the run computes: ``cpu``, ``cuda`` ….
        """
        self._options = options
        self._messages = messages
        self._hub = hub
        self._device_type = device_type
        self._behaviors: dict[int, set[str]] = {}
        """Names of the behaviors that each simulator has."""
        self._throttled = ThrottledLogger(_logger)
        self._topics: set[str] = set()
        """Topics of notices that were logged."""
        self._unknown: set[UUID] = set()
        """Channels without a listener that a warning has named."""

    def greeting(self, simulator: int, info: SimulatorInfo) -> list[SideChannelRecord]:
        """The messages of a simulator's first reset: parameters as they are in force, and the rest."""
        introduction: list[SideChannelRecord] = []
        if analytics.CAPABILITY in info.capabilities:
            introduction = analytics_records([self._run_message(simulator)])
        return [*self.parameters(), *introduction, *self._hub.greeting(simulator)]

    def announce(self, name: str, settings: TrainerSettings, bridge: Bridge) -> None:
        """Notifies the first simulator, if it subscribed, of a newly trained behavior."""
        info = bridge.simulators.get(0)
        if info is not None and analytics.CAPABILITY in info.capabilities:
            message = analytics.behavior_message(name, settings, self._options)
            bridge.send(analytics_records([message]), 0)

    def parameters(self) -> list[SideChannelRecord]:
        """All environment parameters as they are in force."""
        return parameter_records(self._messages())

    def outgoing(self, simulator: int) -> list[SideChannelRecord]:
        """Messages that users' channels have for a simulator now."""
        return self._hub.outgoing(simulator)

    def handle(self, tick: Tick, add_stat: Callable[[str, StatMessage], bool]) -> None:
        """Takes in a tick's messages. A simulator's statistics belong to every behavior that it has.

        add_stat: adds a statistic to those of a behavior; False where that has too many names already.
        """
        if tick.new_specs:
            names = {parse_behavior_id(behavior_id)[0] for behavior_id in tick.new_specs}
            self._behaviors.setdefault(tick.simulator, set()).update(names)
        if len(tick.messages) > MAX_MESSAGES:
            self._throttled.log(
                "too many",
                f"Simulator {tick.simulator} says {len(tick.messages)} things on side channels with one message; the "
                f"first {MAX_MESSAGES} are heard.",
            )
        for record in tick.messages[:MAX_MESSAGES]:
            if record.channel == STATS:
                self._handle_statistic(tick.simulator, record.body, add_stat)
            elif record.channel == NOTICES:
                self._handle_notice(tick.simulator, record.body)
            elif record.channel != EXPERT and not self._hub.deliver(tick.simulator, record):
                self._warn_of_unknown_channel(tick.simulator, record.channel)

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that left."""
        self._behaviors.pop(simulator, None)
        self._hub.drop(simulator)

    def _run_message(self, simulator: int) -> TrainingEnvironmentInitialized:
        if simulator != 0:
            return analytics.anonymous_environment_message()
        return analytics.environment_message(
            self._options, torch_version=torch.__version__, device_type=self._device_type
        )

    def _handle_statistic(
        self, simulator: int, body: bytes, add_stat: Callable[[str, StatMessage], bool]
    ) -> None:
        try:
            stat = parse_stat(body)
        except WireError as error:
            self._throttled.log("bad statistic", f"Simulator {simulator}: ignored: {str(error)[:200]}.")
            return
        if not math.isfinite(stat.value):
            self._throttled.log(
                "not finite",
                f"Simulator {simulator}: ignored: statistic {quoted(stat.name)} is {stat.value}.",
            )
            return
        if len(stat.name) > MAX_NAME_LENGTH or not stat.name.isprintable():
            self._throttled.log(
                "name",
                f"Simulator {simulator}: ignored: statistic {quoted(stat.name)}: expected a name of at most "
                f"{MAX_NAME_LENGTH} printable characters.",
            )
            return
        # The most recent among several simulators is chance, so the first one's counts.
        if stat.aggregation is Aggregation.MOST_RECENT and simulator != min(self._behaviors, default=0):
            return
        for name in self._behaviors.get(simulator, ()):
            if not add_stat(name, stat):
                self._throttled.log(
                    ("names", name),
                    f"Simulator {simulator}: ignored: statistic {quoted(stat.name)}: '{name}' has {MAX_NAMES} "
                    "names of statistics, and gets no more.",
                    most=1,
                )

    def _handle_notice(self, simulator: int, body: bytes) -> None:
        """Logs what a simulator has to say, once for all simulators that say it."""
        try:
            notice = parse_notice(body)
        except WireError as error:
            self._throttled.log("bad notice", f"Simulator {simulator}: ignored: {str(error)[:200]}.")
            return
        topic = notice.topic[:MAX_NAME_LENGTH]
        if topic in self._topics or len(self._topics) >= MAX_LOGGED:
            return
        self._topics.add(topic)
        text = harmless(notice.text.replace("\n", " "))
        _logger.warning("Simulator %d: %s.", simulator, text)

    def _warn_of_unknown_channel(self, simulator: int, channel: UUID) -> None:
        """Warns once of each of the first such channels: there will be more messages on them."""
        if channel not in self._unknown and len(self._unknown) < MAX_LOGGED:
            self._unknown.add(channel)
            self._throttled.log(
                "unheard",
                f"Simulator {simulator} speaks on side channel {channel}, which nobody listens to.",
            )
