"""Framing of side channel payloads, byte by byte, and the engine's messages."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    ENGINE_CONFIGURATION,
    EngineSettings,
    SideChannelRecord,
    engine_records,
    pack_records,
    unpack_records,
)

RECORDS = st.lists(st.builds(SideChannelRecord, st.uuids(), st.binary(max_size=40)), max_size=5)


def test_time_scale_of_twenty_has_the_bytes_that_unity_expects() -> None:
    expected = bytes.fromhex("2c3451e97e4fea11b238784f4387d1f7 08000000 02000000 0000a041")
    assert pack_records([engine_records(EngineSettings(time_scale=20.0))[2]]) == expected


def test_engine_settings_travel_as_one_message_per_kind() -> None:
    records = engine_records(EngineSettings(width=640, height=480, quality_level=3))
    assert {record.channel for record in records} == {ENGINE_CONFIGURATION}
    assert [record.body[0] for record in records] == [0, 1, 2, 3, 4]
    assert records[0].body == bytes.fromhex("00000000 80020000 e0010000")
    assert records[1].body == bytes.fromhex("01000000 03000000")
    assert records[3].body == bytes.fromhex("03000000 ffffffff")


def test_the_channel_id_is_in_dotnet_order() -> None:
    channel = UUID("00112233-4455-6677-8899-aabbccddeeff")
    payload = pack_records([SideChannelRecord(channel, b"")])
    assert payload[:16].hex() == "33221100554477668899aabbccddeeff"


@given(RECORDS)
def test_what_is_packed_comes_out_again(records: list[SideChannelRecord]) -> None:
    assert unpack_records(pack_records(records)) == records


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
