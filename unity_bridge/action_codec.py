"""Actions to bytes and back: serialized ListAgentActionProto."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError

from unity_bridge.errors import WireError
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.wire.agent_action_pb2 import AgentActionProto
from unity_bridge.wire.unity_rl_input_pb2 import UnityRLInputProto

ListAgentActionProto = UnityRLInputProto.ListAgentActionProto


def encode_actions(actions: ActionBatch) -> bytes:
    """One behavior's actions as a serialized ListAgentActionProto, rows in order.

    The deprecated list (continuous, then discrete as floats) is filled in too: old simulators read only that.
    """
    return _encode_row_by_row(actions)


def decode_actions(data: bytes, rows: int, spec: ActionSpec, where: str) -> ActionBatch:
    """The actions for ``rows`` waiting agents, as a simulator reads them.

    As in Unity: no rows at all, or an empty list in a row, mean zeros; surplus rows and numbers are ignored.

    Args:
        data: A serialized ListAgentActionProto; empty where the trainer left the behavior out.
        rows: Number of agents that asked for a decision.
        spec: The behavior's actions.
        where: Begins the text of an error: names the behavior.

    Raises:
        WireError: The bytes cannot be parsed, or there are fewer rows or numbers than asked for.
    """
    return _decode_row_by_row(data, rows, spec, where)


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
