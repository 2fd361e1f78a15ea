"""Trainer to simulator: what is being trained, for the Unity Editor's own usage statistics.

Nothing in here comes back to the trainer, and no simulator needs it. Names that users gave are hashed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from uuid import UUID

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message

from unity_bridge.errors import WireError
from unity_bridge.side_channels.framing import SideChannelRecord
from unity_bridge.untrusted_text import quoted
from unity_bridge.wire import training_analytics_pb2 as wire

TRAINING_ANALYTICS = UUID("b664a4a9-d86f-5a5f-95cb-e8353a7e8356")

_KEY = b"unity.ml-agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEnvironmentInitialized:
    """The start of a run. The defaults are those of a library user without a trainer."""

    mlagents_version: str = "Custom"
    mlagents_envs_version: str = ""
    python_version: str = ""
    torch_version: str = "Unknown"
    torch_device_type: str = "Unknown"
    num_envs: int = 0
    num_environment_parameters: int = 0
    run_options: str = ""
    """The configuration as JSON; names of behaviors, parameters and lessons by ``hashed_name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBehaviorInitialized:
    """The start of a behavior's training."""

    behavior_name: str
    """By ``hashed_name``."""
    trainer_type: str
    extrinsic_reward_enabled: bool = False
    gail_reward_enabled: bool = False
    curiosity_reward_enabled: bool = False
    rnd_reward_enabled: bool = False
    behavioral_cloning_enabled: bool = False
    recurrent_enabled: bool = False
    visual_encoder: str = ""
    num_network_layers: int = 0
    num_network_hidden_units: int = 0
    trainer_threaded: bool = False
    self_play_enabled: bool = False
    curriculum_enabled: bool = False
    config: str = ""
    """The behavior's configuration as JSON."""


AnalyticsMessage = TrainingEnvironmentInitialized | TrainingBehaviorInitialized

_MESSAGES: dict[type[AnalyticsMessage], type[Message]] = {
    TrainingEnvironmentInitialized: wire.TrainingEnvironmentInitialized,
    TrainingBehaviorInitialized: wire.TrainingBehaviorInitialized,
}


def hashed_name(name: str) -> str:
    """A name that tells nothing about its user, the same in every run: HMAC-SHA256 in hexadecimal digits."""
    return hmac.new(_KEY, name.encode(), hashlib.sha256).hexdigest()


def analytics_records(messages: Iterable[AnalyticsMessage]) -> list[SideChannelRecord]:
    """The messages on their channel, in this order."""
    return [SideChannelRecord(TRAINING_ANALYTICS, _body(message)) for message in messages]


def parse_analytics(body: bytes) -> AnalyticsMessage:
    """Parses a message on the channel.

    Raises:
        WireError: it is neither of the two messages.
    """
    try:
        envelope = Any.FromString(body)
        for ours, theirs in _MESSAGES.items():
            if envelope.TypeName() == theirs.DESCRIPTOR.full_name:
                message = theirs.FromString(envelope.value)
                return ours(**{field.name: getattr(message, field.name) for field in fields(ours)})
    except DecodeError as error:
        raise WireError(f"training analytics: {len(body)} bytes that are no message") from error
    raise WireError(f"training analytics: expected one of our two messages, got {quoted(envelope.type_url)}")


def _body(message: AnalyticsMessage) -> bytes:
    envelope = Any()
    envelope.Pack(_MESSAGES[type(message)](**asdict(message)))
    return envelope.SerializeToString(deterministic=True)
