"""Simulator to trainer: statistics of its own that shall appear beside the trainer's."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from unity_bridge.errors import WireError
from unity_bridge.side_channels.framing import SideChannelRecord
from unity_bridge.side_channels.values import BodyReader, BodyWriter
from unity_bridge.untrusted_text import quoted

STATS = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")


class Aggregation(enum.IntEnum):
    """The aggregation of all values of one name between two summaries."""

    AVERAGE = 0
    MOST_RECENT = 1
    SUM = 2
    HISTOGRAM = 3


@dataclass(frozen=True, slots=True)
class StatMessage:
    """One value of one statistic."""

    name: str
    """ASCII; the tag in TensorBoard."""
    value: float
    aggregation: Aggregation


def stat_records(messages: Iterable[StatMessage]) -> list[SideChannelRecord]:
    """The statistics as messages on their channel, in this order."""
    return [
        SideChannelRecord(
            STATS, BodyWriter().string(each.name).float32(each.value).int32(each.aggregation).body()
        )
        for each in messages
    ]


def parse_stat(body: bytes) -> StatMessage:
    """Parses a message on the channel.

    Raises:
        WireError: a way of aggregation that there is not, a name that is no ASCII text, or a number cut in the
            middle.
    """
    reader = BodyReader(body, "statistic")
    name, value, aggregation = reader.string(), reader.float32(), reader.int32()
    try:
        return StatMessage(name, value, Aggregation(aggregation))
    except ValueError:
        raise WireError(
            f"statistic {quoted(name)}: expected an aggregation from 0 to {max(Aggregation)}, got {aggregation}"
        ) from None
