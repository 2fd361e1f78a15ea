"""Records that wait for a reply which can carry them."""

from __future__ import annotations

from uuid import UUID

from unity_bridge.server.connections import REPLY_BYTES, Outbox
from unity_bridge.side_channels import SideChannelRecord, pack_records

CHANNEL = UUID(int=1)


def record(size: int, mark: int = 0) -> SideChannelRecord:
    return SideChannelRecord(CHANNEL, mark.to_bytes(4, "big") + bytes(size - 4))


def test_everything_is_taken_once_in_its_order() -> None:
    outbox = Outbox()
    outbox.put(record(4, mark) for mark in (2, 3))
    outbox.put_first([record(4, mark) for mark in (0, 1)])
    assert outbox.take() == [record(4, mark) for mark in range(4)]
    assert outbox.take() == []


def test_a_reply_is_never_larger_than_unity_takes() -> None:
    outbox = Outbox()
    records = [record(1000, mark) for mark in range(10_000)]
    outbox.put(records)
    replies = []
    while taken := outbox.take():
        replies.append(taken)
        assert len(pack_records(taken)) <= REPLY_BYTES
    assert len(replies) == 4
    assert [each for taken in replies for each in taken] == records


def test_an_overlarge_record_goes_alone() -> None:
    outbox = Outbox()
    records = [record(4), record(2 * REPLY_BYTES), record(4)]
    outbox.put(records)
    assert [outbox.take() for _ in range(4)] == [records[:1], records[1:2], records[2:], []]
