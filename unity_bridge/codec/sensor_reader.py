"""The reading of one sensor's observations from protobuf objects, which are checked against its spec."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unity_bridge.codec.columns import PictureColumn, SensorColumn
from unity_bridge.codec.pictures import parse_picture
from unity_bridge.codec.rows import varint_width
from unity_bridge.codec.sensor_layout import SensorLayout
from unity_bridge.errors import WireError
from unity_bridge.specs import MOST_DIMENSIONS, ObservationSpec
from unity_bridge.steps import Observation, as_floats
from unity_bridge.untrusted_text import quoted
from unity_bridge.wire.observation_pb2 import PNG, ObservationProto

COMPRESSIBLE_RANK = 3
"""Dimensions of an observation that may come as PNG files. With other dimensions the compression type is ignored."""

BYTES_PER_NUMBER = 5
"""Most that a number takes in a row: a float that is not packed. A pixel in a PNG file takes less, though each channel
may come as a file of four and each of its rows begins with a byte."""

ROOM_PER_OBSERVATION = 8192
"""Bytes that an observation may take besides; of a picture each channel, which may be a file with a colour profile."""


class SensorReader:
    """A reader of the observations of one sensor of one simulator."""

    def __init__(self, index: int, spec: ObservationSpec, layout: SensorLayout) -> None:
        self.name = f"sensor {index} {quoted(spec.name)}"
        """For error messages."""
        self.spec = spec
        self.layout = layout
        self.size = spec.size
        self.batch_shape = (-1, *spec.shape)
        self.may_be_compressed = len(spec.shape) == COMPRESSIBLE_RANK
        """Whether some of its observations may be PNG files."""
        self.most_bytes = most_bytes(spec.shape)
        """Most bytes of one observation as it comes."""

    def column(self, rows: int) -> SensorColumn:
        """Returns room for the observations of ``rows`` agents."""
        if self.may_be_compressed:
            return PictureColumn(rows, self.spec, self.layout)
        return np.zeros((rows, self.size), np.float32)

    def adopt(self, values: Observation) -> Observation:
        """Returns a copy of observations of a simulator in this process, in the shape of decoded observations."""
        if self.may_be_compressed and values.dtype == np.uint8:
            return values.copy()
        floats: NDArray[np.float32] = np.array(as_floats(values)).reshape(len(values), self.size)
        return self.layout.arrange(floats, self.spec) if self.may_be_compressed else floats

    def require_fit(self, observation: ObservationProto, where: str) -> None:
        """Raises WireError unless the observation is one of this sensor; PNG files are not looked into."""
        name, shape = observation.name, tuple(observation.shape)
        if name and self.spec.name and name != self.spec.name:
            raise WireError(f"{where}: expected the sensor of the first message, got {quoted(name)}")
        if shape and shape != self.layout.shape:
            got = f"{shape}" if len(shape) <= MOST_DIMENSIONS else f"{len(shape)} dimensions"
            raise WireError(f"{where}: expected shape {self.layout.shape}, got {got}")
        if not is_compressed(observation, len(self.spec.shape)):
            require_floats(observation, self.size, where)

    def store(self, column: SensorColumn, row: int, observation: ObservationProto, where: str) -> None:
        """Puts an observation that fits into its row; raises WireError if its PNG files do not fit."""
        if isinstance(column, PictureColumn) and is_compressed(observation, len(self.spec.shape)):
            mapping = tuple(observation.compressed_channel_mapping)
            column.add(row, parse_picture(observation.compressed_data, self.spec.shape, mapping, where))
        else:
            column[row] = self._floats(observation)

    def _floats(self, observation: ObservationProto) -> NDArray[np.float32]:
        """Returns the floats as they came, [size], from serialized bytes: one by one they would be objects first."""
        packed = observation.float_data.SerializeToString()
        return np.frombuffer(packed, "<f4", self.size, offset=1 + varint_width(4 * self.size))


def most_bytes(shape: tuple[int, ...]) -> int:
    """Returns the most bytes of an observation in a row: floats or incompressible PNG files, and its description."""
    if len(shape) != COMPRESSIBLE_RANK:
        return ROOM_PER_OBSERVATION + BYTES_PER_NUMBER * math.prod(shape)
    channels, height, width = shape
    return channels * (ROOM_PER_OBSERVATION + BYTES_PER_NUMBER * height * (width + 1))


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
