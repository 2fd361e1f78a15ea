"""Side channels that users wrote, between their objects and the simulators."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID

from unity_bridge import mlagents_alias
from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.throttled_logger import ThrottledLogger

_logger = logging.getLogger(__name__)


class SideChannel(Protocol):
    """The interface of ``mlagents_envs.side_channel.SideChannel`` and its subclasses."""

    message_queue: list[Any]
    """Bodies that wait to be sent, as bytes or bytearrays."""

    @property
    def channel_id(self) -> UUID:
        """The id of the records that are for it."""

    def on_message_received(self, msg: Any) -> None:
        """Takes an ``IncomingMessage``."""


class ChannelHub:
    """The channels of all simulators: collects their outgoing records, and delivers incoming ones.

    A list of channels is shared by all simulators: what was queued before the first of them came is sent to each
    one that comes, and what is queued later to all that are there. A function makes channels for each simulator
    alone, and others for its successor when it is started again.
    """

    def __init__(self, channels: Sequence[SideChannel] | Callable[[int], Sequence[SideChannel]] = ()) -> None:
        """Takes the channels, or a function that makes those of simulator number n.

        Raises:
            ValueError: two channels have one id.
            TypeError: something is no list, or no channel.
            ImportError: mlagents-envs, which defines their messages, cannot be imported.
        """
        self.has_channels = bool(channels)
        """False if there is none, so that there is nothing to send either."""
        self._make = channels if callable(channels) else None
        self._shared = _ChannelGroup(() if callable(channels) else channels)
        self._groups: dict[int, _ChannelGroup] = {}

    def greeting(self, simulator: int) -> list[SideChannelRecord]:
        """The records for a simulator's first reset; from then on it takes part. ValueError as above."""
        self._groups[simulator] = _ChannelGroup(self._make(simulator)) if self._make else self._shared
        return self._groups[simulator].join(simulator)

    def outgoing(self, simulator: int) -> list[SideChannelRecord]:
        """The records queued for a simulator since the last call: channel by channel, each in its order."""
        group = self._groups.get(simulator)
        return group.outgoing(simulator) if group else []

    def deliver(self, simulator: int, record: SideChannelRecord) -> bool:
        """Hands a simulator's message to its channel. False if there is none of that id.

        Exceptions of the channel are logged, and end nothing.
        """
        group = self._groups.get(simulator)
        return group is not None and group.deliver(simulator, record)

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that departed. A successor of its number is greeted again."""
        group = self._groups.pop(simulator, None)
        if group:
            group.leave(simulator)


class _ChannelGroup:
    """Channels, and the simulators that they speak to."""

    def __init__(self, channels: Iterable[SideChannel]) -> None:
        self._channels: dict[UUID, SideChannel] = {}
        if not isinstance(channels, Iterable):
            raise TypeError(
                f"side_channels: expected a list, or a function that returns one, got {channels!r:.60}"
            )
        for channel in channels:
            if not isinstance(getattr(channel, "channel_id", None), UUID):
                raise TypeError(
                    f"side_channels: expected side channels of mlagents_envs, got {channel!r:.60}"
                )
            if self._channels.setdefault(channel.channel_id, channel) is not channel:
                raise ValueError(f"two side channels have the id {channel.channel_id}")
        self._incoming_message = _import_incoming_message() if self._channels else None
        self._initial_records: list[SideChannelRecord] | None = None
        self._pending: dict[int, list[SideChannelRecord]] = {}
        self._throttled = ThrottledLogger(_logger)

    def join(self, simulator: int) -> list[SideChannelRecord]:
        initial_records = self._gather()
        self._pending[simulator] = []
        return list(initial_records)

    def leave(self, simulator: int) -> None:
        self._pending.pop(simulator, None)

    def outgoing(self, simulator: int) -> list[SideChannelRecord]:
        if not self._channels:
            return []
        self._gather()
        records = self._pending[simulator]
        self._pending[simulator] = []
        return records

    def deliver(self, simulator: int, record: SideChannelRecord) -> bool:
        channel = self._channels.get(record.channel)
        if channel is None or self._incoming_message is None:
            return False
        try:
            channel.on_message_received(self._incoming_message(record.body))
        except Exception as error:
            self._throttled.log(
                record.channel,
                f"Side channel {record.channel} failed on a message of simulator {simulator}.",
                error=error,
                level=logging.ERROR,
            )
        return True

    def _gather(self) -> list[SideChannelRecord]:
        """Empties the channels' queues into those of the simulators. Returns the records that each gets first."""
        queued = [record for channel in self._channels.values() for record in _take_queued(channel)]
        if self._initial_records is None:
            self._initial_records = queued
        for pending in self._pending.values():
            pending.extend(queued)
        return self._initial_records


def _take_queued(channel: SideChannel) -> list[SideChannelRecord]:
    # Emptied in place, and by what was read: another thread of the user's may be adding to it.
    bodies = list(channel.message_queue)
    del channel.message_queue[: len(bodies)]
    return [SideChannelRecord(channel.channel_id, bytes(body)) for body in bodies]


def _import_incoming_message() -> Callable[[bytes], Any]:
    mlagents_alias.install()
    message: Callable[[bytes], Any] = importlib.import_module("mlagents_envs.side_channel").IncomingMessage
    return message
