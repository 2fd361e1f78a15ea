"""A message's rows as columns, one array per field, while they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from unity_bridge.codec.pictures import Picture
from unity_bridge.codec.sensor_layout import SensorLayout
from unity_bridge.errors import WireError
from unity_bridge.specs import ObservationSpec
from unity_bridge.steps import Observation, as_floats

LARGEST_COLUMN = 1 << 28
"""Maximum count of numbers that the compressed pictures of one message decode to: 12 000 of 84 x 84 in colour. A
decoded picture can be a thousand times as large as its file, so the size of a message is no bound."""

MAX_DECODED = 1 << 25
MAX_DECODED_PER_BYTE = 256
"""Most numbers that the PNG files of one message may decode to: a fixed number, and this many for each of their bytes.
A black picture of 84 x 84 decodes to 211 for a byte; no picture of a camera decodes to a thousand."""


class PictureColumn:
    """The observations of one sensor of rank 3: floats in some rows, PNG files in others.

    Floats are assigned as to an array. No memory is taken before all rows of the message are known to fit.
    """

    def __init__(self, rows: int, spec: ObservationSpec, layout: SensorLayout) -> None:
        self._rows = rows
        self._spec = spec
        self._layout = layout
        self._floats: list[tuple[NDArray[np.intp] | int, NDArray[np.float32]]] = []
        self._pictures: list[tuple[int, Picture]] = []

    def __setitem__(self, rows: NDArray[np.intp] | int, floats: NDArray[np.float32]) -> None:
        """Stores floats as they came: [rows, size], or [size] for a single row."""
        self._floats.append((rows, floats))

    def add(self, row: int, picture: Picture) -> None:
        """Stores the PNG files of one row."""
        self._pictures.append((row, picture))

    def reserve(self, room: int, where: str) -> int:
        """Returns how many of ``room`` numbers are left once these rows are decoded; floats take none.

        Raises:
            WireError: they are too many.
        """
        size = self._rows * self._spec.size if self._pictures else 0
        if size > room:
            raise WireError(
                f"{where}: expected compressed pictures of {room} numbers at most, "
                f"got {self._rows} of {self._spec.size}"
            )
        return room - size

    @property
    def pictures(self) -> Iterator[Picture]:
        """The pictures that came as files."""
        return (picture for _, picture in self._pictures)

    def to_array(self) -> Observation:
        """Returns all rows: [N, *shape of the spec]; bytes if all of them are.

        Raises:
            WireError: a file cannot be decoded.
        """
        if not self._pictures:
            return self._layout.arrange(self._all_floats(), self._spec)
        shape = (self._rows, *self._spec.shape)
        column: Observation = np.empty(shape, np.uint8)
        if self._floats:
            column = np.empty(shape, np.float32)
        for row, picture in self._pictures:
            pixels = picture.pixels()  # one at a time: the next one finds its memory warm
            if pixels.dtype != np.uint8:
                column = as_floats(column)
            column[row] = pixels if column.dtype == np.uint8 else as_floats(pixels)
        for rows, floats in self._floats:
            column[rows] = self._layout.arrange(np.atleast_2d(floats), self._spec)
        return column

    def _all_floats(self) -> NDArray[np.float32]:
        column = np.empty((self._rows, self._spec.size), np.float32)
        for rows, floats in self._floats:
            column[rows] = floats
        return column


SensorColumn = NDArray[np.float32] | PictureColumn
"""A sensor's rows while they are read: a flat array, [N, floats], unless PNG files may come."""


def to_arrays(columns: Sequence[SensorColumn], wheres: Sequence[str]) -> tuple[Observation, ...]:
    """Returns an array for every sensor of a message, once all its rows are read.

    Args:
        columns: one per sensor.
        wheres: their names in error messages.

    Raises:
        WireError: pictures would be too large together, or a file cannot be decoded.
    """
    room = LARGEST_COLUMN
    for column, where in zip(columns, wheres, strict=True):
        if isinstance(column, PictureColumn):
            room = column.reserve(room, where)
    pictures = [column for column in columns if isinstance(column, PictureColumn)]
    sent = sum(len(file.data) for column in pictures for picture in column.pictures for file in picture.sent)
    size = sum(picture.decoded_size for column in pictures for picture in column.pictures)
    if size > MAX_DECODED + MAX_DECODED_PER_BYTE * sent:
        raise WireError(
            f"{wheres[0]}: expected PNG files of {sent} bytes to unfold to {MAX_DECODED + MAX_DECODED_PER_BYTE * sent} "
            f"numbers at most, got {size}"
        )
    return tuple(column.to_array() if isinstance(column, PictureColumn) else column for column in columns)


Sensor = TypeVar("Sensor", SensorColumn, Observation)


class Columns(NamedTuple, Generic[Sensor]):
    """A table of rows in wire order, one array per field, before it is checked and sorted. N rows."""

    agent_ids: NDArray[np.int64]
    rewards: NDArray[np.float32]
    done: NDArray[np.bool_]
    interrupted: NDArray[np.bool_]
    """Meaningful where done."""
    allowed: NDArray[np.bool_]
    observations: tuple[Sensor, ...]
    """[N, …]"""
    group_ids: NDArray[np.int64]
    group_rewards: NDArray[np.float32]

    @staticmethod
    def empty(rows: int, mask_size: int, observations: tuple[SensorColumn, ...]) -> Columns[SensorColumn]:
        """Returns room for ``rows`` rows: everything allowed, everything else zero."""
        return Columns(
            agent_ids=np.zeros(rows, np.int64),
            rewards=np.zeros(rows, np.float32),
            done=np.zeros(rows, np.bool_),
            interrupted=np.zeros(rows, np.bool_),
            allowed=np.ones((rows, mask_size), np.bool_),
            observations=observations,
            group_ids=np.zeros(rows, np.int64),
            group_rewards=np.zeros(rows, np.float32),
        )

    def with_arrays(self, observations: tuple[Observation, ...]) -> Columns[Observation]:
        """Returns these rows with arrays for observations, once all are read."""
        return Columns(**{**self._asdict(), "observations": observations})

    def take(self: Columns[Observation], rows: NDArray[np.intp]) -> Columns[Observation]:
        """Returns the given rows, in the given order."""
        taken = {name: values[rows] for name, values in self._asdict().items() if name != "observations"}
        return Columns(observations=tuple(values[rows] for values in self.observations), **taken)
