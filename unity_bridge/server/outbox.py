"""What a simulator shall hear on side channels, while it waits for a reply that can carry it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from unity_bridge.side_channels import SideChannelRecord, packed_size

REPLY_BYTES = 3 * 2**20
"""Records in one reply. Unity takes no message over 4 MiB; what is left is for the actions."""


class Outbox:
    """Records in the order in which they were put."""

    def __init__(self) -> None:
        self._records: deque[SideChannelRecord] = deque()

    def put(self, records: Iterable[SideChannelRecord]) -> None:
        """Behind all that waits."""
        self._records.extend(records)

    def put_first(self, records: Sequence[SideChannelRecord]) -> None:
        """Before all that waits."""
        self._records.extendleft(reversed(records))

    def take(self) -> list[SideChannelRecord]:
        """As many as one reply can carry, and one at least if there is any. The others wait for the next."""
        taken: list[SideChannelRecord] = []
        left = REPLY_BYTES
        while self._records and (not taken or packed_size(self._records[0]) <= left):
            taken.append(self._records.popleft())
            left -= packed_size(taken[-1])
        return taken
