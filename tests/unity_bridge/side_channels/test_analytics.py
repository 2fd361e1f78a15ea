"""Messages for the Editor's usage statistics."""

from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any

from unity_bridge.errors import WireError
from unity_bridge.side_channels import (
    TRAINING_ANALYTICS,
    AnalyticsMessage,
    TrainingBehaviorInitialized,
    TrainingEnvironmentInitialized,
    analytics_records,
    hashed_name,
    parse_analytics,
)
from unity_bridge.wire.header_pb2 import HeaderProto
from unity_bridge.wire.training_analytics_pb2 import TrainingBehaviorInitialized as WireBehavior

RUN = TrainingEnvironmentInitialized(
    mlagents_version="1.1.0", torch_device_type="cpu", num_envs=4, run_options='{"behaviors": {}}'
)
BEHAVIOR = TrainingBehaviorInitialized(
    behavior_name=hashed_name("3DBall"),
    trainer_type="ppo",
    extrinsic_reward_enabled=True,
    visual_encoder="simple",
    num_network_layers=2,
    num_network_hidden_units=128,
    curriculum_enabled=True,
    config="{}",
)


@pytest.mark.parametrize("message", [RUN, BEHAVIOR])
def test_messages_survive_a_round_trip(message: AnalyticsMessage) -> None:
    (record,) = analytics_records([message])
    assert record.channel == TRAINING_ANALYTICS
    assert parse_analytics(record.body) == message


def test_messages_are_packed_under_the_name_unity_expects() -> None:
    (record,) = analytics_records([BEHAVIOR])
    envelope = Any.FromString(record.body)
    assert envelope.type_url == "type.googleapis.com/communicator_objects.TrainingBehaviorInitialized"
    assert WireBehavior.FromString(envelope.value).num_network_hidden_units == 128


def test_names_are_hashed_with_the_shared_key() -> None:
    # echo -n 3DBall | openssl dgst -sha256 -hmac unity.ml-agents
    assert hashed_name("3DBall") == "7fb08c31c9c1eb51cb6e40d0b764d4a18e77d367627c0a6072d9d128fd5e3b6b"
    assert hashed_name("Größe") != hashed_name("Grosse")


def other_message() -> bytes:
    envelope = Any()
    envelope.Pack(HeaderProto(status=200))
    return envelope.SerializeToString()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (other_message(), "expected one of our two messages, got 'type.googleapis.com/.*HeaderProto'"),
        (b"", "expected one of our two messages, got ''"),
        (b"\xff\xff\xff", "3 bytes that are no message"),
    ],
)
def test_anything_else_is_refused(body: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=f"training analytics: {complaint}"):
        parse_analytics(body)
