"""Side channels: small messages that ride along with the exchanges, outside observations and actions.

Each channel has a file of its own, with its id, its messages, and both ways across the wire.
"""

from __future__ import annotations

from unity_bridge.side_channels.analytics import (
    TRAINING_ANALYTICS,
    AnalyticsMessage,
    TrainingBehaviorInitialized,
    TrainingEnvironmentInitialized,
    analytics_records,
    hashed_name,
    parse_analytics,
)
from unity_bridge.side_channels.engine import (
    ENGINE_CONFIGURATION,
    EngineConfiguration,
    apply_engine_message,
    engine_records,
)
from unity_bridge.side_channels.expert import EXPERT, expert_record, parse_expert
from unity_bridge.side_channels.framing import (
    SideChannelRecord,
    pack_records,
    packed_size,
    unpack_records,
)
from unity_bridge.side_channels.notices import NOTICES, Notice, notice_record, parse_notice
from unity_bridge.side_channels.parameters import (
    ENVIRONMENT_PARAMETERS,
    EnvironmentParameterMessage,
    FloatParameter,
    GaussianSampler,
    MultiRangeUniformSampler,
    UniformSampler,
    parameter_records,
    parse_parameter,
)
from unity_bridge.side_channels.properties import (
    FLOAT_PROPERTIES,
    FloatProperty,
    parse_property,
    property_record,
)
from unity_bridge.side_channels.stats import STATS, Aggregation, StatMessage, parse_stat, stat_records

__all__ = [
    "ENGINE_CONFIGURATION",
    "ENVIRONMENT_PARAMETERS",
    "EXPERT",
    "FLOAT_PROPERTIES",
    "NOTICES",
    "STATS",
    "TRAINING_ANALYTICS",
    "Aggregation",
    "AnalyticsMessage",
    "EngineConfiguration",
    "EnvironmentParameterMessage",
    "FloatParameter",
    "FloatProperty",
    "GaussianSampler",
    "MultiRangeUniformSampler",
    "Notice",
    "SideChannelRecord",
    "StatMessage",
    "TrainingBehaviorInitialized",
    "TrainingEnvironmentInitialized",
    "UniformSampler",
    "analytics_records",
    "apply_engine_message",
    "engine_records",
    "expert_record",
    "hashed_name",
    "notice_record",
    "pack_records",
    "packed_size",
    "parameter_records",
    "parse_analytics",
    "parse_expert",
    "parse_notice",
    "parse_parameter",
    "parse_property",
    "parse_stat",
    "property_record",
    "stat_records",
    "unpack_records",
]
