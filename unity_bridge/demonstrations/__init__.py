"""Recordings of demonstrators: ML-Agents' .demo files, read and written as a stream."""

from unity_bridge.demonstrations.reader import SUFFIX, DemonstrationFile, open_demonstrations
from unity_bridge.demonstrations.records import DemonstratedPiece, DemonstrationMeta
from unity_bridge.demonstrations.writer import DemonstrationWriter
from unity_bridge.errors import DemonstrationError

__all__ = [
    "SUFFIX",
    "DemonstratedPiece",
    "DemonstrationError",
    "DemonstrationFile",
    "DemonstrationMeta",
    "DemonstrationWriter",
    "open_demonstrations",
]
