from __future__ import annotations

from uuid import UUID

import pytest

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    ENGINE_CONFIGURATION,
    ENVIRONMENT_PARAMETERS,
    FLOAT_PROPERTIES,
    STATS,
    TRAINING_ANALYTICS,
    Aggregation,
    EngineConfiguration,
    FloatParameter,
    FloatProperty,
    SideChannelRecord,
    StatMessage,
    engine_records,
    pack_records,
    parameter_records,
    parse_property,
    parse_stat,
    property_record,
    unpack_records,
)
from unity_bridge.simulators.academy import ECHO, Academy


def test_engine_settings_are_kept() -> None:
    academy = Academy()
    wanted = EngineConfiguration(
        width=640, height=480, quality_level=2, time_scale=3.5, target_frame_rate=30, capture_frame_rate=0
    )
    academy.receive(pack_records(engine_records(wanted)))
    assert academy.engine == wanted
    assert academy.outgoing() == b""


def test_a_float_property_is_kept_and_confirmed() -> None:
    academy = Academy()
    academy.receive(pack_records([property_record(FloatProperty("gravity", 0.1))]))
    (record,) = unpack_records(academy.outgoing())
    assert record.channel == FLOAT_PROPERTIES
    confirmed = parse_property(record.body)
    assert (confirmed.name, confirmed.value) == ("gravity", pytest.approx(0.1))
    assert academy.properties == {"gravity": confirmed.value}


def test_raw_bytes_come_back_once_and_in_their_order() -> None:
    academy = Academy()
    records = [SideChannelRecord(ECHO, body) for body in (b"first", b"", b"\xff\x00")]
    academy.receive(pack_records(records[:2]))
    academy.receive(pack_records(records[2:]))
    assert unpack_records(academy.outgoing()) == records
    assert academy.outgoing() == b""


def test_statistics_are_sent_once() -> None:
    academy = Academy()
    academy.add_statistic("Goal/Right", 2, Aggregation.SUM)
    academy.add_statistic("Wall/Height", 1.5)
    records = unpack_records(academy.outgoing())
    assert {record.channel for record in records} == {STATS}
    assert [parse_stat(record.body) for record in records] == [
        StatMessage("Goal/Right", 2.0, Aggregation.SUM),
        StatMessage("Wall/Height", 1.5, Aggregation.AVERAGE),
    ]
    assert academy.outgoing() == b""


@pytest.mark.parametrize("channel", [UUID(int=7), TRAINING_ANALYTICS])
def test_unknown_channels_are_ignored(channel: UUID) -> None:
    academy = Academy()
    known = parameter_records([FloatParameter("height", 4)])
    academy.receive(pack_records([SideChannelRecord(channel, b"\xff\xff\xff"), *known]))
    assert academy.outgoing() == b""
    assert academy.parameters.read("height", 0, 1).tolist() == [4]


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (SideChannelRecord(ENGINE_CONFIGURATION, b"\x09\0\0\0"), "engine configuration: expected a kind"),
        (SideChannelRecord(ENVIRONMENT_PARAMETERS, b"\1\0\0\0h\5\0\0\0"), "environment parameter 'h'"),
        (SideChannelRecord(FLOAT_PROPERTIES, b"\1\0\0\0h\5\0"), "float property"),
    ],
)
def test_a_message_that_makes_no_sense_is_named(record: SideChannelRecord, complaint: str) -> None:
    with pytest.raises(WireError, match=f"^the trainer's side channels: {complaint}"):
        Academy().receive(pack_records([record]))
