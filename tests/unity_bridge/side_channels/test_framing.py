"""Framing of side channel payloads, byte by byte."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    ENGINE_CONFIGURATION,
    SideChannelRecord,
    pack_records,
    packed_size,
    unpack_records,
)

RECORDS = st.lists(st.builds(SideChannelRecord, st.uuids(), st.binary(max_size=40)), max_size=5)


def test_the_channel_id_is_in_dotnet_order() -> None:
    channel = UUID("00112233-4455-6677-8899-aabbccddeeff")
    payload = pack_records([SideChannelRecord(channel, b"")])
    assert payload[:16].hex() == "33221100554477668899aabbccddeeff"


@given(RECORDS)
def test_records_survive_packing(records: list[SideChannelRecord]) -> None:
    payload = pack_records(records)
    assert unpack_records(payload) == records
    assert len(payload) == sum(map(packed_size, records))


@given(RECORDS.filter(bool), st.data())
def test_a_payload_cut_inside_a_record_is_refused(
    records: list[SideChannelRecord], data: st.DataObject
) -> None:
    payload = pack_records(records)
    last = len(pack_records(records[-1:]))
    cut = data.draw(st.integers(len(payload) - last + 1, len(payload) - 1))
    with pytest.raises(WireError, match=f"side channel record {len(records) - 1}"):
        unpack_records(payload[:cut])


def test_a_negative_length_is_refused() -> None:
    payload = ENGINE_CONFIGURATION.bytes_le + (-1).to_bytes(4, "little", signed=True)
    with pytest.raises(WireError, match="says it has -1 bytes, got 0"):
        unpack_records(payload)
