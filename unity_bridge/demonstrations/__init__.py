"""Recordings of demonstrators: ML-Agents' .demo files, read and written as a stream."""

from unity_bridge.demonstrations.reader import SUFFIX as SUFFIX
from unity_bridge.demonstrations.reader import DemonstrationFile as DemonstrationFile
from unity_bridge.demonstrations.reader import open_demonstrations as open_demonstrations
from unity_bridge.demonstrations.records import DemonstratedSegment as DemonstratedSegment
from unity_bridge.demonstrations.writer import DemonstrationWriter as DemonstrationWriter
from unity_bridge.errors import DemonstrationError as DemonstrationError
from unity_bridge.wire.demonstration_meta_pb2 import DemonstrationMetaProto

DemonstrationMeta = DemonstrationMetaProto
"""The header of a recording."""
