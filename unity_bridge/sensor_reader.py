"""One sensor's observations, from protobuf objects: held against its spec, then taken as floats or as PNG files."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unity_bridge.columns import PictureColumn, SensorColumn
from unity_bridge.errors import WireError
from unity_bridge.pictures import find_picture
from unity_bridge.rows import varint_width
from unity_bridge.sensor_layout import SensorLayout
from unity_bridge.specs import ObservationSpec
from unity_bridge.wire.observation_pb2 import PNG, ObservationProto

COMPRESSIBLE_RANK = 3
"""Dimensions of what may come as PNG files; for any other, a compression type says nothing."""


class SensorReader:
    """Reads what one sensor of one simulator saw."""

    def __init__(self, index: int, spec: ObservationSpec, layout: SensorLayout) -> None:
        self.name = f"sensor {index} '{spec.name}'"
        """For error messages."""
        self.spec = spec
        self.layout = layout
        self.size = spec.size
        self.batch_shape = (-1, *spec.shape)
        self.may_be_compressed = len(spec.shape) == COMPRESSIBLE_RANK
        """Whether some of its observations may be PNG files."""

    def column(self, rows: int) -> SensorColumn:
        """Room for what ``rows`` agents saw."""
        if self.may_be_compressed:
            return PictureColumn(rows, self.spec, self.layout)
        return np.zeros((rows, self.size), np.float32)

    def require_fit(self, observation: ObservationProto, where: str) -> None:
        """Raises WireError unless the observation is one of this sensor; PNG files are not looked into."""
        name, shape = observation.name, tuple(observation.shape)
        if name and self.spec.name and name != self.spec.name:
            raise WireError(f"{where}: expected the sensor of the first message, got '{name}'")
        if shape and shape != self.layout.shape:
            raise WireError(f"{where}: expected shape {self.layout.shape}, got {shape}")
        if not is_compressed(observation, len(self.spec.shape)):
            require_floats(observation, self.size, where)

    def store(self, column: SensorColumn, row: int, observation: ObservationProto, where: str) -> None:
        """Puts an observation that fits where it belongs; raises WireError if its PNG files do not."""
        if isinstance(column, PictureColumn) and is_compressed(observation, len(self.spec.shape)):
            mapping = tuple(observation.compressed_channel_mapping)
            column.add(row, find_picture(observation.compressed_data, self.spec.shape, mapping, where))
        else:
            column[row] = self._floats(observation)

    def _floats(self, observation: ObservationProto) -> NDArray[np.float32]:
        """As they came, [size]. Serialized they are an array already; one by one they would be objects first."""
        packed = observation.float_data.SerializeToString()
        return np.frombuffer(packed, "<f4", self.size, offset=1 + varint_width(4 * self.size))


def is_compressed(observation: ObservationProto, rank: int) -> bool:
    """Whether PNG files are to be read. Floats that came are floats, whatever the compression type says."""
    return (
        observation.compression_type == PNG
        and rank == COMPRESSIBLE_RANK
        and not observation.HasField("float_data")
    )


def require_floats(observation: ObservationProto, size: int, where: str) -> None:
    """Raises WireError unless ``size`` floats came."""
    if observation.HasField("compressed_data"):
        kind = observation.compression_type
        raise WireError(f"{where}: expected {size} floats, got compressed data of type {kind}")
    count = len(observation.float_data.data)
    if count != size:
        raise WireError(f"{where}: expected {size} floats, got {count}")
