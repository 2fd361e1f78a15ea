"""Actions to bytes and back: serialized ListAgentActionProto."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from google.protobuf.message import DecodeError

from unity_bridge.codec.rows import RowLayout, Value, entries
from unity_bridge.errors import WireError
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.agent_action_pb2 import AgentActionProto
from unity_bridge.wire.unity_rl_input_pb2 import UnityRLInputProto

ListAgentActionProto = UnityRLInputProto.ListAgentActionProto

DEPRECATED, CONTINUOUS, DISCRETE = "vector_actions_deprecated", "continuous_actions", "discrete_actions"
"""Names of the values in a layout; lists that are empty have none."""

LARGEST_SMALL_NUMBER = 127
"""Largest index that takes one byte."""


def encode_actions(actions: ActionBatch) -> bytes:
    """Returns one behavior's actions as a serialized ListAgentActionProto, rows in order.

    The deprecated list (continuous, then discrete as floats) is filled in too: old simulators read only that.
    """
    continuous, discrete = actions.continuous, actions.discrete
    if np.count_nonzero((discrete < 0) | (discrete > LARGEST_SMALL_NUMBER)):
        return _encode_row_by_row(actions)  # some index is wider than a byte, so rows may differ in length
    size = continuous.shape[1]
    layout = _layout(size, discrete.shape[1])
    table = layout.blank(len(actions))
    if CONTINUOUS in layout.values:
        table[CONTINUOUS] = continuous
        table[DEPRECATED][:, :size] = continuous
    if DISCRETE in layout.values:
        table[DISCRETE] = discrete
        table[DEPRECATED][:, size:] = discrete
    return table.tobytes()


def decode_actions(data: bytes, rows: int, spec: ActionSpec, where: str) -> ActionBatch:
    """Returns the actions for ``rows`` waiting agents, as a simulator reads them.

    As in Unity: no rows at all, or an empty list in a row, mean zeros; surplus rows and numbers are ignored.

    Args:
        data: A serialized ListAgentActionProto; empty where the trainer left the behavior out.
        rows: Number of agents that asked for a decision.
        spec: The behavior's actions.
        where: Begins the text of an error: names the behavior.

    Raises:
        WireError: The bytes cannot be parsed, or there are fewer rows or numbers than asked for.
    """
    layout = _layout(spec.continuous_size, spec.discrete_size)
    if not rows or len(data) < rows * layout.size or not layout.fits(data):
        return _decode_row_by_row(data, rows, spec, where)
    table = layout.table(data)[:rows]
    actions = ActionBatch.zeros(rows, spec)
    if CONTINUOUS in layout.values:
        actions.continuous[:] = table[CONTINUOUS]
    if DISCRETE in layout.values:
        actions.discrete[:] = table[DISCRETE]
    return actions


@lru_cache(maxsize=256)
def _layout(continuous_size: int, discrete_size: int) -> RowLayout:
    """Returns the layout of a row with small indices, its tag and length as an element of the list included."""
    action = AgentActionProto(
        vector_actions_deprecated=[0.0] * (continuous_size + discrete_size),
        continuous_actions=[0.0] * continuous_size,
        discrete_actions=[0] * discrete_size,
    )
    example = ListAgentActionProto(value=[action]).SerializeToString()
    (row,) = entries(example, 0, len(example))
    values = {}
    for entry in entries(example, row.start, row.stop):
        name = AgentActionProto.DESCRIPTOR.fields_by_number[entry.number].name
        kind = Value.number if name == DISCRETE else Value.floats
        values[name] = kind(entry.start, entry.stop)
    return RowLayout(example, values)


def _encode_row_by_row(actions: ActionBatch) -> bytes:
    message = ListAgentActionProto()
    for continuous, discrete in zip(actions.continuous.tolist(), actions.discrete.tolist(), strict=True):
        message.value.add(
            vector_actions_deprecated=[*continuous, *discrete],
            continuous_actions=continuous,
            discrete_actions=discrete,
        )
    return message.SerializeToString()


def _decode_row_by_row(data: bytes, rows: int, spec: ActionSpec, where: str) -> ActionBatch:
    actions = ActionBatch.zeros(rows, spec)
    try:
        messages: Sequence[AgentActionProto] = ListAgentActionProto.FromString(data).value
    except DecodeError as error:
        raise WireError(f"{where}: expected a ListAgentActionProto, got {len(data)} other bytes") from error
    if not messages:
        return actions
    if len(messages) < rows:
        raise WireError(f"{where}: expected actions for {rows} agents, got {len(messages)}")
    for row, message in enumerate(messages[:rows]):
        for name, given, target in (
            ("continuous_actions", message.continuous_actions, actions.continuous[row]),
            ("discrete_actions", message.discrete_actions, actions.discrete[row]),
        ):
            if not given:
                continue
            if len(given) < len(target):
                raise WireError(f"{where}, row {row}: expected {len(target)} {name}, got {len(given)}")
            target[:] = np.asarray(given[: len(target)], target.dtype)
    return actions
