"""The engine's settings, one message of each kind."""

from __future__ import annotations

import pytest

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    ENGINE_CONFIGURATION,
    EngineConfiguration,
    apply_engine_message,
    engine_records,
    pack_records,
)


def test_time_scale_of_twenty_has_the_bytes_that_unity_expects() -> None:
    expected = bytes.fromhex("2c3451e97e4fea11b238784f4387d1f7 08000000 02000000 0000a041")
    assert pack_records([engine_records(EngineConfiguration(time_scale=20.0))[2]]) == expected


def test_settings_travel_as_one_message_per_kind() -> None:
    records = engine_records(EngineConfiguration(width=640, height=480, quality_level=3))
    assert {record.channel for record in records} == {ENGINE_CONFIGURATION}
    assert [record.body[0] for record in records] == [0, 1, 2, 3, 4]
    assert records[0].body == bytes.fromhex("00000000 80020000 e0010000")
    assert records[1].body == bytes.fromhex("01000000 03000000")
    assert records[3].body == bytes.fromhex("03000000 ffffffff")


@pytest.mark.parametrize("kind", [-1, 5])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    with pytest.raises(WireError, match=f"engine configuration: expected a kind from 0 to 4, got {kind}"):
        apply_engine_message(EngineConfiguration(), kind.to_bytes(4, "little", signed=True) + bytes(4))
