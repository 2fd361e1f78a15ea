"""Named numbers, on the channel's own id or another."""

from __future__ import annotations

from uuid import UUID

from unity_bridge.side_channels import FLOAT_PROPERTIES, FloatProperty, parse_property, property_record


def test_a_property_has_the_bytes_that_unity_expects() -> None:
    record = property_record(FloatProperty("size", 1.0))
    assert record.channel == FLOAT_PROPERTIES
    assert record.body == bytes.fromhex("04000000 73697a65 0000803f")
    assert parse_property(record.body) == FloatProperty("size", 1.0)


def test_a_channel_may_have_any_id() -> None:
    channel = UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert property_record(FloatProperty("size", 1.0), channel).channel == channel
