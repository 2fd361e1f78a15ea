"""A queue of side channel records that wait for a reply which can carry them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from unity_bridge.side_channels import SideChannelRecord, packed_size

REPLY_BYTES = 3 * 2**20
"""Bytes of records in one reply. Unity takes no message over 4 MiB; the rest is for the actions."""


class Outbox:
    """Records in the order in which they were put."""

    def __init__(self) -> None:
        self._records: deque[SideChannelRecord] = deque()

    def put(self, records: Iterable[SideChannelRecord]) -> None:
        """Adds records at the end."""
        self._records.extend(records)

    def put_first(self, records: Sequence[SideChannelRecord]) -> None:
        """Adds records at the beginning."""
        self._records.extendleft(reversed(records))

    def take(self) -> list[SideChannelRecord]:
        """Takes as many as one reply can carry, but at least one if there is any. The others wait for the next."""
        taken: list[SideChannelRecord] = []
        left = REPLY_BYTES
        while self._records and (not taken or packed_size(self._records[0]) <= left):
            taken.append(self._records.popleft())
            left -= packed_size(taken[-1])
        return taken
