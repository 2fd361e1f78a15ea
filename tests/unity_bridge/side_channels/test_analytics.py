"""Messages for the Editor's usage statistics."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any

from unity_bridge.side_channels import (
    TRAINING_ANALYTICS,
    TrainingBehaviorInitialized,
    analytics_records,
    hashed_name,
)
from unity_bridge.wire.training_analytics_pb2 import TrainingBehaviorInitialized as WireBehavior

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


def test_messages_are_packed_under_the_name_unity_expects() -> None:
    (record,) = analytics_records([BEHAVIOR])
    assert record.channel == TRAINING_ANALYTICS
    envelope = Any.FromString(record.body)
    assert envelope.type_url == "type.googleapis.com/communicator_objects.TrainingBehaviorInitialized"
    assert WireBehavior.FromString(envelope.value).num_network_hidden_units == 128


def test_names_are_hashed_with_the_shared_key() -> None:
    # echo -n 3DBall | openssl dgst -sha256 -hmac unity.ml-agents
    assert hashed_name("3DBall") == "7fb08c31c9c1eb51cb6e40d0b764d4a18e77d367627c0a6072d9d128fd5e3b6b"
    assert hashed_name("Größe") != hashed_name("Grosse")
