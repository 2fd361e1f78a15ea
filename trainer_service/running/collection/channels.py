"""Side-channel messages from and to simulators."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from uuid import UUID

import torch

from trainer_service.config import RunOptions, TrainerSettings
from trainer_service.running.collection import analytics
from trainer_service.running.collection.router import parse_behavior_id
from trainer_service.running.metrics.statistics import MAX_NAMES
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
"""The most side-channel messages that are read in one tick of one simulator."""

MAX_NAME_LENGTH = 200
"""The most characters in the name of a statistic."""


class Channels:
    """The side channels of a run: environment parameters, statistics, analytics, and user-defined channels."""

    def __init__(
        self,
        options: RunOptions,
        messages: Callable[[int], Sequence[EnvironmentParameterMessage]],
        hub: ChannelHub,
        *,
        device_type: str = "cpu",
    ) -> None:
        """Stores the messages for simulators.

        Args:
            options: of the run, for simulators that accept analytics.
            messages: returns the current environment parameters of a simulator, by its number.
            hub: the user-defined channels.
            device_type: the run's kind of device: ``cpu``, ``cuda`` ….
        """
        self._options = options
        self._messages = messages
        self._hub = hub
        self._device_type = device_type
        self._told: dict[int, Sequence[EnvironmentParameterMessage]] = {}
        """The parameters that each greeted simulator knows."""
        self._behaviors: dict[int, set[str]] = {}
        """Names of each simulator's behaviors."""
        self._throttled = ThrottledLogger(_logger)
        self._topics: set[str] = set()
        """Topics of logged notices."""
        self._unknown: set[UUID] = set()
        """Unknown channels that a warning has named."""

    def greeting(self, simulator: int, info: SimulatorInfo) -> list[SideChannelRecord]:
        """Returns the messages of a simulator's first reset, such as the current parameters."""
        introduction: list[SideChannelRecord] = []
        if analytics.CAPABILITY in info.capabilities:
            introduction = analytics_records([self._run_message(simulator)])
        self._told[simulator] = parameters = self._messages(simulator)
        return [*parameter_records(parameters), *introduction, *self._hub.greeting(simulator)]

    def announce(self, name: str, settings: TrainerSettings, bridge: Bridge) -> None:
        """Notifies the first simulator, if it subscribed, of a newly trained behavior."""
        info = bridge.simulators.get(0)
        if info is not None and analytics.CAPABILITY in info.capabilities:
            message = analytics.behavior_message(name, settings, self._options)
            bridge.send(analytics_records([message]), 0)

    def send_parameters(self, bridge: Bridge) -> None:
        """Sends each simulator the environment parameters that have changed: others continue with their draws."""
        for simulator, told in self._told.items():
            self._told[simulator] = parameters = self._messages(simulator)
            bridge.send(parameter_records(each for each in parameters if each not in told), simulator)

    def outgoing(self, simulator: int) -> list[SideChannelRecord]:
        """Returns the present messages of user-defined channels for a simulator."""
        return self._hub.outgoing(simulator) if self._hub.has_channels else []

    def handle(self, tick: Tick, add_stat: Callable[[str, StatMessage], bool]) -> None:
        """Handles a tick's messages. A simulator's statistics belong to each of its behaviors.

        add_stat: adds a statistic to a behavior. Returns False if the behavior has too many names.
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
                self._hub.deliver(tick.simulator, record)  # a channel of the user's gets a copy
            elif record.channel == NOTICES:
                self._handle_notice(tick.simulator, record.body)
            elif record.channel != EXPERT and not self._hub.deliver(tick.simulator, record):
                self._warn_of_unknown_channel(tick.simulator, record.channel)

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that left."""
        self._told.pop(simulator, None)
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
        for name in self._behaviors.get(simulator, ()):
            # The most recent value of several simulators is arbitrary, so the first simulator's counts.
            first = min(number for number, names in self._behaviors.items() if name in names)
            if stat.aggregation is Aggregation.MOST_RECENT and simulator != first:
                continue
            if not add_stat(name, stat):
                self._throttled.log(
                    ("names", name),
                    f"Simulator {simulator}: ignored: statistic {quoted(stat.name)}: '{name}' has {MAX_NAMES} "
                    "names of statistics, and gets no more.",
                    most=1,
                )

    def _handle_notice(self, simulator: int, body: bytes) -> None:
        """Logs a simulator's notice, once for all simulators."""
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
        _logger.warning("Simulator %d: %s.", simulator, text, extra={"topic": topic})

    def _warn_of_unknown_channel(self, simulator: int, channel: UUID) -> None:
        """Warns once of each of the first unknown channels, since more messages will follow on them."""
        if channel not in self._unknown and len(self._unknown) < MAX_LOGGED:
            self._unknown.add(channel)
            self._throttled.log(
                "unheard",
                f"Simulator {simulator} sends messages on side channel {channel}, which has no receiver.",
            )
