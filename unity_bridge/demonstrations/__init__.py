"""Recordings of demonstrators: ML-Agents' .demo files, read and written as a stream."""

from unity_bridge.demonstrations.reader import SUFFIX, DemonstrationFile, open_demonstrations
from unity_bridge.demonstrations.records import DemonstratedSegment, DemonstrationMeta
from unity_bridge.demonstrations.writer import DemonstrationWriter
from unity_bridge.errors import DemonstrationError

DemonstratedPiece = DemonstratedSegment
"""The name of earlier releases."""

__all__ = [
    "SUFFIX",
    "DemonstratedPiece",
    "DemonstratedSegment",
    "DemonstrationError",
    "DemonstrationFile",
    "DemonstrationMeta",
    "DemonstrationWriter",
    "open_demonstrations",
]
