"""Side channels: small messages that ride along with the exchanges, outside observations and actions.

Each channel has a file of its own, with its id, its messages, and both ways across the wire.
"""

from __future__ import annotations

from unity_bridge.side_channels.analytics import TRAINING_ANALYTICS as TRAINING_ANALYTICS
from unity_bridge.side_channels.analytics import AnalyticsMessage as AnalyticsMessage
from unity_bridge.side_channels.analytics import TrainingBehaviorInitialized as TrainingBehaviorInitialized
from unity_bridge.side_channels.analytics import (
    TrainingEnvironmentInitialized as TrainingEnvironmentInitialized,
)
from unity_bridge.side_channels.analytics import analytics_records as analytics_records
from unity_bridge.side_channels.analytics import hashed_name as hashed_name
from unity_bridge.side_channels.engine import ENGINE_CONFIGURATION as ENGINE_CONFIGURATION
from unity_bridge.side_channels.engine import EngineConfiguration as EngineConfiguration
from unity_bridge.side_channels.engine import apply_engine_message as apply_engine_message
from unity_bridge.side_channels.engine import engine_records as engine_records
from unity_bridge.side_channels.expert import EXPERT as EXPERT
from unity_bridge.side_channels.expert import expert_record as expert_record
from unity_bridge.side_channels.expert import parse_expert as parse_expert
from unity_bridge.side_channels.framing import SideChannelRecord as SideChannelRecord
from unity_bridge.side_channels.framing import pack_records as pack_records
from unity_bridge.side_channels.framing import packed_size as packed_size
from unity_bridge.side_channels.framing import unpack_records as unpack_records
from unity_bridge.side_channels.notices import NOTICES as NOTICES
from unity_bridge.side_channels.notices import Notice as Notice
from unity_bridge.side_channels.notices import notice_record as notice_record
from unity_bridge.side_channels.notices import parse_notice as parse_notice
from unity_bridge.side_channels.parameters import ENVIRONMENT_PARAMETERS as ENVIRONMENT_PARAMETERS
from unity_bridge.side_channels.parameters import EnvironmentParameterMessage as EnvironmentParameterMessage
from unity_bridge.side_channels.parameters import FloatParameter as FloatParameter
from unity_bridge.side_channels.parameters import GaussianSampler as GaussianSampler
from unity_bridge.side_channels.parameters import MultiRangeUniformSampler as MultiRangeUniformSampler
from unity_bridge.side_channels.parameters import UniformSampler as UniformSampler
from unity_bridge.side_channels.parameters import parameter_records as parameter_records
from unity_bridge.side_channels.parameters import parse_parameter as parse_parameter
from unity_bridge.side_channels.properties import FLOAT_PROPERTIES as FLOAT_PROPERTIES
from unity_bridge.side_channels.properties import FloatProperty as FloatProperty
from unity_bridge.side_channels.properties import parse_property as parse_property
from unity_bridge.side_channels.properties import property_record as property_record
from unity_bridge.side_channels.stats import STATS as STATS
from unity_bridge.side_channels.stats import Aggregation as Aggregation
from unity_bridge.side_channels.stats import StatMessage as StatMessage
from unity_bridge.side_channels.stats import parse_stat as parse_stat
from unity_bridge.side_channels.stats import stat_records as stat_records
