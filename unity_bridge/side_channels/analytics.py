"""Trainer to simulator: what is being trained, for the Unity Editor's own usage statistics.

Nothing in here comes back to the trainer, and no simulator needs it. Names that users gave are hashed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from uuid import UUID

from google.protobuf.any_pb2 import Any

from unity_bridge.side_channels.framing import SideChannelRecord
from unity_bridge.wire.training_analytics_pb2 import (
    TrainingBehaviorInitialized as TrainingBehaviorInitialized,
)
from unity_bridge.wire.training_analytics_pb2 import (
    TrainingEnvironmentInitialized as TrainingEnvironmentInitialized,
)

TRAINING_ANALYTICS = UUID("b664a4a9-d86f-5a5f-95cb-e8353a7e8356")

AnalyticsMessage = TrainingEnvironmentInitialized | TrainingBehaviorInitialized
"""The start of a run, or of a behavior's training. Configurations are JSON, with names by ``hashed_name``."""

_KEY = b"unity.ml-agents"


def hashed_name(name: str) -> str:
    """A name that tells nothing about its user, the same in every run: HMAC-SHA256 in hexadecimal digits."""
    return hmac.new(_KEY, name.encode(), hashlib.sha256).hexdigest()


def analytics_records(messages: Iterable[AnalyticsMessage]) -> list[SideChannelRecord]:
    """The messages on their channel, in this order."""
    return [SideChannelRecord(TRAINING_ANALYTICS, _body(message)) for message in messages]


def _body(message: AnalyticsMessage) -> bytes:
    envelope = Any()
    envelope.Pack(message)
    return envelope.SerializeToString(deterministic=True)
