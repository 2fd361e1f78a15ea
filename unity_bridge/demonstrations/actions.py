"""The reader of recorded actions: serialized AgentActionProtos to arrays, rows of equal layout at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from unity_bridge.codec.rows import LENGTH, RowLayout, Value, entries
from unity_bridge.errors import WireError
from unity_bridge.specs import ActionSpec
from unity_bridge.wire.agent_action_pb2 import AgentActionProto

_DEPRECATED, _CONTINUOUS, _DISCRETE = 1, 6, 7
"""Field numbers of the lists of an AgentActionProto."""

_NAMES = {_DEPRECATED: "deprecated", _CONTINUOUS: "continuous", _DISCRETE: "discrete"}
"""Their names in a layout."""

_LARGEST_SMALL = 0x7F
"""Largest choice that takes one byte."""

ActionArrays = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]
"""Continuous ones [N, size], discrete ones [N, branches], and which rows hold an action at all [N]."""


class ActionReader:
    """Reads the actions of one recording. Recordings of old packages fill in the deprecated list only."""

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self._layouts: dict[int, RowLayout] = {}

    def read(self, rows: Sequence[bytes]) -> ActionArrays:
        """The actions of N rows; zeros where a row holds none.

        Raises:
            WireError: a row cannot be parsed or does not fit the behavior.
        """
        continuous = np.zeros((len(rows), self._spec.continuous_size), np.float32)
        discrete = np.zeros((len(rows), self._spec.discrete_size), np.int64)
        has_action = np.ones(len(rows), np.bool_)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        for length in np.unique(lengths).tolist():
            same_length = np.flatnonzero(lengths == length)
            for row in self._read_fitting(rows, same_length, length, continuous, discrete).tolist():
                has_action[row] = self._read_one(rows[row], row, continuous[row], discrete[row])
        self._require_possible(continuous, discrete)
        return continuous, discrete, has_action

    def _read_fitting(
        self,
        rows: Sequence[bytes],
        same_length: NDArray[np.intp],
        length: int,
        continuous: NDArray[np.float32],
        discrete: NDArray[np.int64],
    ) -> NDArray[np.intp]:
        """Reads those of the equally long rows that are written as usual; returns the others."""
        layout = self._layout(length, rows[same_length[0]])
        if layout is None:
            return same_length
        data = b"".join([rows[row] for row in same_length.tolist()])
        fitting = layout.fitting(data)
        table = layout.table(data)[fitting]
        if "continuous" in layout.values:
            continuous[same_length[fitting]] = table["continuous"]
        if "discrete" in layout.values:
            discrete[same_length[fitting]] = table["discrete"]
        return same_length[~fitting]

    def _layout(self, length: int, example: bytes) -> RowLayout | None:
        """The layout of rows of this length: the one that was met before, or the example's if it is usual."""
        if length not in self._layouts:
            values = self._values(example)
            if values is None:
                return None
            self._layouts[length] = RowLayout(example, values)
        return self._layouts[length]

    def _values(self, example: bytes) -> dict[str, Value] | None:
        """The places of the lists in a row, if both are there in full, once, packed and with small numbers."""
        try:
            AgentActionProto.FromString(example)
            found = list(entries(example, 0, len(example)))
        except (DecodeError, ValueError):
            return None
        sizes = {_CONTINUOUS: 4 * self._spec.continuous_size, _DISCRETE: self._spec.discrete_size}
        values = {}
        for entry in found:
            size = sizes.pop(entry.number, entry.stop - entry.start if entry.number == _DEPRECATED else -1)
            if entry.wire_type != LENGTH or entry.stop - entry.start != size:
                return None
            kind = Value.number if entry.number == _DISCRETE else Value.floats
            values[entry.number] = kind(entry.start, entry.stop)
        if any(sizes.values()) or max(_payload(example, values.get(_DISCRETE)), default=0) > _LARGEST_SMALL:
            return None
        return {_NAMES[number]: value for number, value in values.items()}

    def _read_one(
        self, data: bytes, row: int, continuous: NDArray[np.float32], discrete: NDArray[np.int64]
    ) -> bool:
        """Reads a row that is written in another way. Returns whether it holds an action."""
        try:
            action = AgentActionProto.FromString(data)
        except DecodeError as error:
            raise WireError(f"row {row}: expected an action, got {len(data)} other bytes") from error
        floats = np.array(action.continuous_actions, np.float32)
        integers = np.array(action.discrete_actions, np.int64)
        if not len(floats) and not len(integers):
            floats = np.array(action.vector_actions_deprecated, np.float32)
            if not self._spec.continuous_size:
                # What is no number is no choice either, and is refused as one that is out of range.
                integers, floats = np.nan_to_num(floats, nan=-1.0).astype(np.int64), floats[:0]
        if not len(floats) and not len(integers):
            return False
        for numbers, target, kind in ((floats, continuous, "continuous"), (integers, discrete, "discrete")):
            if len(numbers) != len(target):
                raise WireError(f"row {row}: expected {len(target)} {kind} actions, got {len(numbers)}")
            target[:] = numbers
        return True

    def _require_possible(self, continuous: NDArray[np.float32], discrete: NDArray[np.int64]) -> None:
        if not np.isfinite(continuous).all():
            row, index = np.argwhere(~np.isfinite(continuous))[0].tolist()
            got = continuous[row, index]
            raise WireError(f"row {row}, continuous action {index}: expected a finite number, got {got}")
        impossible = (discrete < 0) | (discrete >= np.array(self._spec.discrete_branches, np.int64))
        if impossible.any():
            row, branch = np.argwhere(impossible)[0].tolist()
            most = self._spec.discrete_branches[branch] - 1
            raise WireError(
                f"row {row}, branch {branch}: expected a choice of 0 to {most}, got {discrete[row, branch]}"
            )


def _payload(example: bytes, value: Value | None) -> bytes:
    return example[value.start : value.stop] if value else b""
