"""Side channels written as ``mlagents_envs.side_channel.SideChannel``, on one conversation."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from uuid import UUID

from mlagents_envs.exception import UnityEnvironmentException

from unity_bridge import mlagents_alias
from unity_bridge.side_channels import NOTICES, SideChannelRecord
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.untrusted_text import harmless

mlagents_alias.install()

from mlagents_envs.side_channel import IncomingMessage, SideChannel  # noqa: E402  needs the messages installed

LOGGER = logging.getLogger(__name__)


class EnvironmentChannels:
    """The channels of one environment. What their handlers raise goes through to the caller of a step."""

    def __init__(self, channels: Iterable[SideChannel]) -> None:
        """Raises UnityEnvironmentException if two channels have one id."""
        self._channels: dict[UUID, SideChannel] = {}
        self._throttled = ThrottledLogger(LOGGER)
        for channel in channels:
            if channel.channel_id in self._channels:
                raise UnityEnvironmentException(f"two side channels have the id {channel.channel_id}")
            self._channels[channel.channel_id] = channel

    def outgoing(self) -> list[SideChannelRecord]:
        """Everything that the channels have queued, channel by channel; their queues are empty afterwards."""
        records = [
            SideChannelRecord(channel.channel_id, bytes(message))
            for channel in self._channels.values()
            for message in channel.message_queue
        ]
        for channel in self._channels.values():
            channel.message_queue = []
        return records

    def deliver(self, records: Iterable[SideChannelRecord]) -> None:
        """Hands each message to its channel. Notices are logged once a topic, and unknown channels once each."""
        for record in records:
            channel = self._channels.get(record.channel)
            if channel is not None:
                channel.on_message_received(IncomingMessage(record.body))
                continue
            kind: Hashable = record.channel
            text = f"the simulator sends messages on side channel {record.channel}, which has no receiver"
            if record.channel == NOTICES:
                kind, _, text = record.body.decode(errors="replace").partition("\n")
            if not self._throttled.count(kind):
                self._throttled.log(kind, harmless(text))
