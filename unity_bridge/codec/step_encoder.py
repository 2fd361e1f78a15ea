"""The encoder of agents' steps as a serialized ListAgentInfoProto, for simulators."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unity_bridge.codec.agent_info_layout import (
    ACTION_MASK,
    DONE,
    GROUP_ID,
    GROUP_REWARD,
    ID,
    MAX_STEP_REACHED,
    REWARD,
    agent_info_values,
    observation_name,
)
from unity_bridge.codec.pictures import channel_mapping, encode_png
from unity_bridge.codec.rows import RowLayout, Value, varint_width, write_varints
from unity_bridge.specs import BehaviorSpec, ObservationSpec
from unity_bridge.steps import Observation, StepBatch, as_floats
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.observation_pb2 import PNG, ObservationProto
from unity_bridge.wire.unity_rl_output_pb2 import UnityRLOutputProto

LENGTH = "length"
"""Name, in a layout, of the value that says how long the rest of the row is."""

LARGEST_INT32 = 2**31 - 1

LONG_ROW = 1 << 12
"""Bytes from which on it is cheaper to copy what stays of a row than to look at each of its bytes."""


class Gap(NamedTuple):
    """Bytes that some rows leave out."""

    start: int
    stop: int
    """Both counted from the first byte of the column's value; −1 is its tag."""

    absent: NDArray[np.bool_]
    """Which rows leave them out. Shape [N]."""

    def after(self, start: int) -> Gap:
        """Returns this gap, counted from the first byte of the row instead."""
        return Gap(start + self.start, start + self.stop, self.absent)


class Column(NamedTuple):
    """One field of every row, left out where it is zero."""

    name: str

    values: NDArray[Any]
    """As they are written: [N], or [N, width] for the bytes of varints."""

    width: int
    """Bytes of the widest value; 0 where all rows leave the field out."""

    gaps: tuple[Gap, ...]


_PACKED_DATA_TAG = b"\x0a"


def encode_steps(batch: StepBatch, spec: BehaviorSpec) -> bytes:
    """Returns one behavior's rows as a serialized ListAgentInfoProto, in the batch's order.

    As from Unity, zeros are left out. Masks are sent, for all rows, as soon as one row forbids something.
    Pictures that are bytes are sent as PNG files, other observations as floats.

    Without compressed pictures every row is first written in full, as a record of a table; then the bytes of the
    zeros are cut out.

    Raises:
        ValueError: The observations do not have the spec's shapes, or an id is not one of 0 to 2³¹ − 1.
    """
    require_valid(batch, spec)
    if not len(batch):
        return b""
    columns = [column for column in _columns(batch) if column.width]
    if 1 in [values.itemsize for values in batch.observations]:  # bytes
        return _encode_compressed(batch, spec)
    masked = bool(np.count_nonzero(batch.allowed_actions) < batch.allowed_actions.size)
    layout = _full_layout(spec, masked, tuple((column.name, column.width) for column in columns))
    table = layout.blank(len(batch))
    for sensor, values in enumerate(batch.observations):
        table[observation_name(sensor)] = values.reshape(len(batch), -1)
    if masked:
        table[ACTION_MASK] = ~batch.allowed_actions
    for column in columns:
        table[column.name] = column.values
    return _without_zeros(table, layout, columns)


def _columns(batch: StepBatch) -> list[Column]:
    return [
        _fixed(REWARD, batch.rewards, np.int32),
        _fixed(DONE, batch.terminated | batch.truncated, np.int8),
        _fixed(MAX_STEP_REACHED, batch.truncated, np.int8),
        _varint(ID, batch.agent_ids),
        _varint(GROUP_ID, batch.group_ids),
        _fixed(GROUP_REWARD, batch.group_rewards, np.int32),
    ]


def _fixed(name: str, values: NDArray[Any], bits: type[np.signedinteger[Any]]) -> Column:
    # Minus zero is not left out: only a value whose bits are all zero is the default.
    absent = values.view(bits) == 0
    missing = np.count_nonzero(absent)
    width = values.itemsize if missing < len(absent) else 0
    return Column(name, values, width, (Gap(-1, width, absent),) if missing else ())


def _varint(name: str, numbers: NDArray[np.int64]) -> Column:
    largest = largest_number(name, numbers)
    if not largest:
        return Column(name, numbers, 0, ())
    width = varint_width(largest)
    gaps = (Gap(-1, 1, numbers == 0), *_gaps_of_short(numbers, width))
    return Column(name, write_varints(numbers, width), width, gaps)


def largest_number(name: str, numbers: NDArray[np.int64]) -> int:
    """The largest of some ids, [N]; raises ValueError where one is not of 0 to 2³¹ − 1."""
    largest = int(numbers.view(np.uint64).max(initial=0))  # a negative number looks like a huge one
    if largest > LARGEST_INT32:
        raise ValueError(f"{name}: expected numbers of 0 to {LARGEST_INT32}, got {numbers.tolist()}")
    return largest


def _gaps_of_short(numbers: NDArray[np.int64], width: int) -> list[Gap]:
    """Returns the bytes of varints that shorter ones do not have."""
    return [Gap(byte, byte + 1, numbers < 1 << 7 * byte) for byte in range(1, width)]


@lru_cache(maxsize=256)
def _full_layout(spec: BehaviorSpec, masked: bool, widths: tuple[tuple[str, int], ...]) -> RowLayout:
    """Returns the layout of a row that leaves out nothing but the columns which every row leaves out.

    A row begins with its tag and length as an element of the list.
    """
    width_of = dict(widths)
    info = AgentInfoProto(
        reward=1.0 if REWARD in width_of else 0.0,
        done=DONE in width_of,
        max_step_reached=MAX_STEP_REACHED in width_of,
        id=1 << 7 * (width_of[ID] - 1) if ID in width_of else 0,
        action_mask=[True] * spec.action_spec.mask_size if masked else (),
        group_id=1 << 7 * (width_of[GROUP_ID] - 1) if GROUP_ID in width_of else 0,
        group_reward=1.0 if GROUP_REWARD in width_of else 0.0,
    )
    for sensor in spec.observation_specs:
        observation = info.observations.add(
            shape=sensor.shape,
            dimension_properties=[int(flags) for flags in sensor.dimension_property],
            observation_type=sensor.observation_type.value,
            name=sensor.name,
        )
        observation.float_data.data.extend([1.0] * sensor.size)
    example = UnityRLOutputProto.ListAgentInfoProto(value=[info]).SerializeToString()
    start = len(example) - info.ByteSize()
    values = agent_info_values(example, start) or {}
    return RowLayout(example, {LENGTH: Value.number(1, start), **values})


def _without_zeros(table: NDArray[np.void], layout: RowLayout, columns: list[Column]) -> bytes:
    """Writes the rows' lengths, and removes the left-out fields from every row."""
    head = layout.values[LENGTH]
    lengths = np.full(len(table), layout.size - head.stop)
    gaps = [gap.after(layout.values[column.name].start) for column in columns for gap in column.gaps]
    gaps = [gap for gap in gaps if np.count_nonzero(gap.absent)]
    for start, stop, absent in gaps:
        lengths -= (stop - start) * absent
    width = head.stop - head.start
    table[LENGTH] = write_varints(lengths, width)
    gaps += [gap.after(head.start) for gap in _gaps_of_short(lengths, width)]
    if layout.size >= LONG_ROW:
        return _without_gaps(table, gaps)
    data = table.tobytes()
    if not gaps:
        return data
    kept = np.ones((len(table), layout.size), np.bool_)
    for start, stop, absent in gaps:
        kept[absent, start:stop] = False
    return np.frombuffer(data, np.uint8)[kept.ravel()].tobytes()


def _without_gaps(table: NDArray[np.void], gaps: list[Gap]) -> bytes:
    """Returns the bytes between the gaps, end to end. Gaps never overlap."""
    ends = [
        (row * table.itemsize + start, row * table.itemsize + stop)
        for start, stop, absent in gaps
        for row in np.flatnonzero(absent).tolist()
    ]
    starts, stops = zip(*sorted(ends), strict=True) if ends else ((), ())
    data = table.view(np.uint8).data
    return b"".join(data[begin:end] for begin, end in zip((0, *stops), (*starts, len(data)), strict=True))


def require_valid(batch: StepBatch, spec: BehaviorSpec) -> None:
    """Raises ValueError where observations or masks do not have the spec's shapes."""
    expected = [sensor.shape for sensor in spec.observation_specs]
    shapes = [values.shape[1:] for values in batch.observations]
    if shapes != expected:
        raise ValueError(f"expected observations of shapes {expected}, got {shapes}")
    if batch.allowed_actions.shape[1] not in (0, spec.action_spec.mask_size):  # 0: everything is allowed
        raise ValueError(
            f"expected masks of {spec.action_spec.mask_size} choices, got {batch.allowed_actions.shape[1]}"
        )


def _encode_compressed(batch: StepBatch, spec: BehaviorSpec) -> bytes:
    """Returns one behavior's rows with compressed pictures as bytes.

    PNG files differ in length, so these rows are no table; most of their time goes into compressing the pictures.
    """
    message = UnityRLOutputProto.ListAgentInfoProto()
    forbidden = ~batch.allowed_actions
    masks = forbidden.tolist() if forbidden.any() else [()] * len(batch)
    sensors = [
        _observations(sensor, values)
        for sensor, values in zip(spec.observation_specs, batch.observations, strict=True)
    ]
    for row, mask in enumerate(masks):
        message.value.append(
            AgentInfoProto(
                reward=batch.rewards[row],
                done=bool(batch.terminated[row] or batch.truncated[row]),
                max_step_reached=bool(batch.truncated[row]),
                id=int(batch.agent_ids[row]),
                action_mask=mask,
                observations=[observations[row] for observations in sensors],
                group_id=int(batch.group_ids[row]),
                group_reward=batch.group_rewards[row],
            )
        )
    return message.SerializeToString()


def _observations(sensor: ObservationSpec, values: Observation) -> list[ObservationProto]:
    """Returns one sensor's observation of each agent; pictures of bytes are compressed."""
    observations = [
        ObservationProto(
            shape=sensor.shape,
            dimension_properties=[int(flags) for flags in sensor.dimension_property],
            observation_type=sensor.observation_type.value,  # type: ignore[arg-type]  # the enum's numbers
            name=sensor.name,
        )
        for _ in values
    ]
    if values.dtype == np.uint8 and values.ndim == 4:
        for observation, picture in zip(observations, values, strict=True):
            observation.compression_type = PNG
            observation.compressed_data = encode_png(picture)
            observation.compressed_channel_mapping.extend(channel_mapping(len(picture)))
    else:
        width = varint_width(4 * sensor.size)
        head = _PACKED_DATA_TAG + write_varints(np.array([4 * sensor.size]), width).tobytes()
        for observation, floats in zip(observations, as_floats(values), strict=True):
            observation.float_data.ParseFromString(head + floats.astype("<f4", copy=False).tobytes())
    return observations
